"""Mutated inputs over every reader, the loader of runs, settings, options and HTTP: read or refused, nothing else.

`make test` runs some of a fixed seed; with HIRE_TORTURE=1, as by `make torture`, it is 100,000. No case may raise
anything but HireError, take more than 5 seconds, or take the process above 1.5 GiB.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from hire.data.dataset import FewShotDataset
from tests.faults.targets import OPTIONS, SOURCES, Targets, passes

TORTURE = bool(os.environ.get("HIRE_TORTURE"))
CASES = 4_000 if TORTURE else 40  # of each target
SEED = int(os.environ.get("HIRE_FUZZ_SEED", "20261117"))
SECONDS = 5.0  # for one case
MAX_BYTES = 1_500 << 20  # of the process
NAMES = (
    *(f"reader of {name}" for name in SOURCES),
    "reader of compressed tables",
    "reader of references",
    "reader of heads",
    "reader of published layouts",
    "reader of SPARQL results",
    "reader of archives",
    "arrays",
    "ids of a dataset",
    "configuration",
    "settings of a run",
    "configuration of a run",
    "calibration",
    "calibration of a run",
    "weights",
    "TOML files",
    "assignments",
    "options",
)

ONE_SIDED = {  # of few cases, all or none may be read
    *("reader of archives", "weights", "arrays", "calibration", "reader of SPARQL results"),
    *("reader of compressed tables", "reader of published layouts", "assignments", "calibration of a run"),
    *("configuration of a run", "reader of graph.rdf"),
}


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer."""

    def late(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def resident_bytes() -> int:
    found = re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture(scope="module")
def targets(umls: FewShotDataset, umls_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Targets:
    run = tmp_path_factory.mktemp("fuzzed") / "run"
    shutil.copytree(umls_run, run)
    return Targets(tmp_path_factory.mktemp("inputs"), umls, run)


def test_every_target_is_named(targets: Targets) -> None:
    assert set(NAMES) == targets.all().keys() and len(OPTIONS) == 11


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mutated_is_read_or_refused(targets: Targets, name: str) -> None:
    target, read, start = targets.all()[name], 0, time.monotonic()
    for case in range(CASES):
        try:
            with deadline(SECONDS):
                read += passes(target, Random(f"{SEED} {name} {case}"))
        except BaseException as error:
            error.add_note(f"case {case} of {name!r}, seed {SEED}")
            raise
    assert resident_bytes() < MAX_BYTES
    assert 0 < read < CASES or name in ONE_SIDED
    print(f"{name}: {CASES:,} cases, {read:,} read, {time.monotonic() - start:.1f} s")
