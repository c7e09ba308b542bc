"""Inputs that are guided by the coverage of the code that reads them, by atheris; `make torture` installs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.support import torture
from tests.faults.table import PEAK
from tests.faults.targets import LAYOUT, SOURCES
from tests.faults.test_inputs import SEED

RUNS = 4_000  # of each reader
READERS = (
    *(*SOURCES, "graph.csv with a line break"),
    *("compressed tables", "references", "names", "heads", "SPARQL results", "archives", "arrays", "weights"),
    *("TOML files", *(f"{name} of a layout" for name in LAYOUT), "calibration.json", "configuration", "calibration"),
)


@torture
@pytest.mark.skipif(not find_spec("atheris"), reason="atheris is not here: it has no build for this platform or Python")
@pytest.mark.parametrize("name", READERS)
def test_no_input_that_reaches_new_code_breaks_a_reader(
    name: str, umls_run: Path, tmp_path: Path, tell: Callable[..., None]
) -> None:
    run = shutil.copytree(umls_run, tmp_path / "run")
    options = ("--run", run, "--work", tmp_path / "work", "--runs", RUNS, "--seed", SEED)
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.guided", name, *map(str, options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    found = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
    coverage = re.findall(r"cov: (\d+)", done.stderr)
    cases = int(found["number_of_executed_units"])
    assert cases >= RUNS and int(coverage[-1]) > 0
    tell(
        "guided inputs",
        name,
        cases=cases,
        new_code=int(found["new_units_added"]),
        **{PEAK: int(found["peak_rss_mb"])},
    )
