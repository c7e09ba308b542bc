from __future__ import annotations

from pathlib import Path

import pytest

from hire.data.dataset import FewShotDataset
from hire.inference.calibrate import calibrate
from hire.inference.fit import fit
from hire.inference.model import load
from tests.support import small_settings


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
