from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from hire.inference import doctor
from hire.inference.doctor import diagnose
from hire.training.run import CALIBRATION, CONFIG, MODEL
from hire.util.memory import Available


def statuses(subject: str | Path | None = None) -> dict[str, str]:
    return {finding.check: finding.status for finding in diagnose(None if subject is None else str(subject))}


@pytest.fixture
def own_run(umls_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(umls_run, tmp_path / "run"))


def test_what_is_right_is_told_as_such(own_run: Path) -> None:
    found = statuses(own_run)
    assert {"Python", "packages", "memory", "disk", "cache folder", "weights", "calibration"} <= found.keys()
    assert set(found.values()) <= {"ok", "note"} and found["weights"] == found["calibration"] == "ok"
    assert statuses("umls-one")["dataset"] == "ok"


def test_what_is_wrong_with_a_run_is_told(own_run: Path) -> None:
    (own_run / CALIBRATION).unlink()
    assert statuses(own_run)["calibration"] == "note"
    (own_run / MODEL).unlink()
    assert statuses(own_run)["weights"] == "problem"
    (own_run / CONFIG).write_text("{}")
    assert statuses(own_run)["run"] == "problem"


def test_what_is_wrong_with_a_dataset_is_told(umls_run: Path, tmp_path: Path, graph_file: Path) -> None:
    assert statuses(graph_file)["dataset"] == "ok"
    assert statuses(tmp_path / "nothing")["dataset"] == "problem"
    (tmp_path / "bad.tsv").write_text("a\tb\n")
    assert statuses(tmp_path / "bad.tsv")["dataset"] == "problem"


def test_what_is_wrong_with_the_installation_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_memory", lambda: Available(1 << 20, "the machine"))
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "requires", lambda name: ["torch>=99.0", "nonesuch>=1.0", "extra>=1; extra == 'x'"])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    monkeypatch.setenv("HIRE_CACHE", "/proc/none")
    found = statuses()
    assert all(found[name] == "problem" for name in ("memory", "disk", "torch", "nonesuch", "cache folder"))
    assert found["service"] == "note" and "extra" not in found


def test_the_command_tells_remedies_and_ends_with_2(run: Callable[..., Result], tmp_path: Path) -> None:
    found = run("doctor", tmp_path / "nothing")
    assert found.exit_code == 2 and "1 problem" in found.output and "a graph is a file" in found.output
    plain = run("doctor", "umls-one", "--json")
    assert plain.exit_code == 0 and json.loads(plain.output)["problems"] == 0
