from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.inference.calibrate import calibrate, calibrate_new, check
from hire.inference.model import load
from hire.training.run import CALIBRATION, MODEL
from hire.util.tensors import load_tensors, save_tensors


def test_a_calibration_is_kept_found_and_checked(umls_run: Path) -> None:
    content = json.loads((umls_run / CALIBRATION).read_text())
    assert content["split"] == "dev" and set(content["shots"]) == set(content["reports"]) == {"1", "3"}
    assert {"fitted", "left_out"} == set(content["reports"]["3"])
    trained = load(umls_run)
    assert set(trained.calibrations) == {1, 3}
    before = (umls_run / CALIBRATION).read_bytes()
    found = check(trained, "test", [3], draws=1)["reports"]["3"]
    assert found["relations"] == 4 and 0 <= found["answers"]["ece"] <= 1 and found["reachable"] == 1
    assert [entry["confidence"] for entry in found["coverage"]] == [0.5, 0.8, 0.9, 0.95]
    assert all(1 <= entry["median_size"] <= 134 for entry in found["coverage"])
    assert (umls_run / CALIBRATION).read_bytes() == before


def test_of_other_weights_it_says_nothing(umls_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(umls_run, tmp_path / "run")
    assert load(run).calibrations
    weights = load_tensors(run / MODEL)
    save_tensors(run / MODEL, {name: tensor * 1.01 for name, tensor in weights.items()})
    trained = load(run)
    assert not trained.calibrations
    assert trained.teach([("tissue", "cell")]).predict("plant", 1)[0].confidence is None
    with pytest.raises(HireError, match="not calibrated"):
        check(trained, "test", [3], draws=1)
    calibrate(trained, run, [1], draws=1)
    assert set(load(run).calibrations) == {1}


def test_a_new_run_is_calibrated_once_and_if_it_can_be(
    umls_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(umls_run, tmp_path / "run")
    before = (run / CALIBRATION).read_bytes()
    assert calibrate_new(run) and (run / CALIBRATION).read_bytes() == before
    (run / CALIBRATION).unlink()
    monkeypatch.setattr("hire.inference.calibrate.SHOTS", (10_000,))
    assert not calibrate_new(run) and not (run / CALIBRATION).exists()
    monkeypatch.setattr("hire.inference.calibrate.SHOTS", (2,))
    assert calibrate_new(run) and set(load(run).calibrations) == {2}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weights": 1}', "null"])
def test_a_damaged_one_is_told(umls_run: Path, tmp_path: Path, content: str) -> None:
    run = shutil.copytree(umls_run, tmp_path / "run")
    (run / CALIBRATION).write_text(content)
    with pytest.raises(HireError, match=r"calibration\.json: is damaged") as caught:
        load(run)
    assert caught.value.problems[0].remedy == "delete it; hire calibrate makes it anew"


def test_tasks_with_too_few_triples_are_told(umls_run: Path) -> None:
    with pytest.raises(HireError, match="references and a query need"):
        check(load(umls_run), "test", [1_000], draws=1)


def test_relations_that_were_asked_about_are_not_kept(umls_run: Path) -> None:
    trained = load(umls_run)
    check(trained, "test", [1], draws=1)
    assert not trained._recent
