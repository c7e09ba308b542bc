from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hire.data.dataset import FewShotDataset
from hire.inference.calibrate import calibrate
from hire.inference.fit import fit
from hire.inference.model import load
from tests.faults.support import TORTURE
from tests.faults.table import Row, tables
from tests.support import small_settings

DONE = "done"  # the property of a test's report that tells what it did


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Say what a test has done, as a row of a table at the end of `make torture`."""

    def told(table: str, name: str, **cells: int | float) -> None:
        record_property(DONE, [table, name, cells])

    return told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was done to the program, and what came of it."""
    reports = terminalreporter.getreports("passed") if TORTURE else []
    rows = [Row(*value) for report in reports for name, value in report.user_properties if name == DONE]
    for line in tables(rows):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def umls_folder(umls: FewShotDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled dataset as a folder."""
    folder = tmp_path_factory.mktemp("faults") / "umls"
    umls.save(folder)
    return folder


@pytest.fixture(scope="session")
def levels_run(umls_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated run of HiRe and the path level, each with weights of its own."""
    run = tmp_path_factory.mktemp("faults") / "levels"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        settings = small_settings("ensemble", path__training__steps=2, path__training__tasks=1)
        fit(umls_folder, run, settings, calibrate=False)
        calibrate(load(run), run, (3,), draws=1)
    return run
