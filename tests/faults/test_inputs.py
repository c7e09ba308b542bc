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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from hire.data.dataset import FewShotDataset
from tests.faults.support import TORTURE
from tests.faults.table import PEAK, SLOWEST
from tests.faults.targets import LAYOUT, LINE_BREAK, OPTIONS, SOURCES, Targets, passes, passes_bytes

CASES = 3_000 if TORTURE else 40  # of each target
SEED = int(os.environ.get("HIRE_FUZZ_SEED", "20261117"))
SECONDS = 5.0  # for one case
MAX_BYTES = 1_500 << 20  # of the process
NAMES = (
    *(*SOURCES, "graph.csv with a line break"),
    *("compressed tables", "references", "names", "heads", "SPARQL results", "archives", "arrays", "calibration.json"),
    *("weights", "TOML files", *(f"{name} of a layout" for name in LAYOUT)),
    *("published layouts", "SPARQL results as JSON", "ids of a dataset", "configuration", "settings of a run"),
    *("configuration of a run", "calibration", "assignments", "options"),
)
ONE_SIDED = {  # of few cases, all or none may be read
    *("archives", "weights", "arrays", "calibration", "calibration.json", "SPARQL results", "SPARQL results as JSON"),
    *("compressed tables", "published layouts", "assignments", "configuration of a run", "graph.rdf"),
    *("graph.trig", "TOML files", "graph.csv with a line break"),
    *(f"{name} of a layout" for name in LAYOUT),
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


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most bytes that this process had during the block, added to a list at its end."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    found: list[int] = []
    yield found
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert peak
    found.append(int(peak[1]) * 1024)


@pytest.fixture(scope="module")
def targets(umls: FewShotDataset, umls_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Targets:
    run = tmp_path_factory.mktemp("fuzzed") / "run"
    shutil.copytree(umls_run, run)
    return Targets(tmp_path_factory.mktemp("inputs"), umls, run)


def test_every_target_is_named(targets: Targets) -> None:
    assert set(NAMES) == targets.all().keys() and len(OPTIONS) == 11


def test_what_is_not_mutated_is_read(targets: Targets) -> None:
    for name, reader in (targets.readers() | targets.loaders()).items():
        for sample in reader.samples:
            assert passes_bytes(reader, sample) is (sample != LINE_BREAK), name


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mutated_is_read_or_refused(targets: Targets, name: str, tell: Callable[..., None]) -> None:
    target, read, slowest = targets.all()[name], 0, 0.0
    with peak_memory() as peak:
        for case in range(CASES):
            start = time.monotonic()
            try:
                with deadline(SECONDS):
                    read += passes(target, Random(f"{SEED} {name} {case}"))
            except BaseException as error:
                error.add_note(f"case {case} of {name!r}, seed {SEED}")
                raise
            slowest = max(slowest, time.monotonic() - start)
    assert peak[0] < MAX_BYTES
    assert 0 < read < CASES or name in ONE_SIDED
    tell("mutated inputs", name, cases=CASES, read=read, **{SLOWEST: slowest, PEAK: peak[0] >> 20})
