"""A system of another package, installed beside this one, does all that a system of this package does, by its name."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hire
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.inference.model import TrainedModel
from hire.systems import registry
from hire.systems.base import SystemTrainer
from hire.training.pipeline import Workshop
from hire.training.settings import RunSettings
from tests.support import request, serving

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "nearest-reference"
NAME = "nearest-reference"
SECONDS = 120  # on a busy machine; what hangs is ended then
SHORT = {"training.steps": 20, "training.tasks": 4, "embedding.steps": 20, "embedding.dimension": 16}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The package, installed without a network; the environment in which commands find it."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(PACKAGE)],
        check=True,
        timeout=SECONDS,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", str(target), os.pathsep)
        patch.syspath_prepend(target)
        registry._plug_ins.cache_clear()
        yield dict(os.environ)
    registry._plug_ins.cache_clear()


def run_hire(installed: dict[str, str], *arguments: str | Path) -> Any:
    command = [sys.executable, "-m", "hire", *map(str, arguments), "--json"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained_run(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "nearest"
    sets = [word for path, value in SHORT.items() for word in ("--set", f"{path}={value}")]
    found = run_hire(installed, "train", "umls-one", "--system", NAME, *sets, "-o", run)
    assert found["system"] == NAME and found["finished"] and found["steps"] == 20 and found["calibrated"]
    return run


@pytest.fixture(scope="module")
def model(trained_run: Path) -> TrainedModel:
    return hire.load(trained_run)


def new_trainer(dataset: FewShotDataset) -> SystemTrainer[Any, Any]:
    settings = RunSettings.of(NAME).changed(SHORT).settings
    trainer = registry.system_class(NAME).trainer(dataset, settings, Workshop(dataset, torch.device("cpu")))
    assert trainer is not None
    return trainer


def test_it_is_listed_beside_the_others(installed: dict[str, str]) -> None:
    found = {each["name"]: each for each in run_hire(installed, "systems")}
    assert set(registry.BUILT_IN) < set(found)
    assert not found[NAME]["built_in"] and found[NAME]["settings"]["training.steps"] == 300


def test_a_package_that_cannot_be_imported_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "broken-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(
        "[hire.systems]\nbroken = no_such_module:Broken\nhire = no_such_module:Hire\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry._plug_ins.cache_clear()
    try:
        found = {name: registry.describe(name) for name in registry.system_names()}
        assert found["hire"]["built_in"] and "No module named" in found["broken"]["summary"]
        with pytest.raises(HireError, match="cannot be loaded"):
            registry.system_class("broken")
    finally:
        registry._plug_ins.cache_clear()


def test_a_run_says_that_the_package_of_its_system_is_missing(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_plug_ins", dict)
    with pytest.raises(HireError, match="unknown system 'nearest-reference'") as raised:
        hire.load(trained_run)
    assert "install its package" in str(raised.value.problems[0].remedy)


def test_it_is_evaluated_by_name(installed: dict[str, str], trained_run: Path, model: TrainedModel) -> None:
    found = run_hire(installed, "evaluate", trained_run, "--split", "test", "--shots", "3")
    expected = evaluate(model.system, model.dataset, "test", 3)["realistic"]["mrr"]
    assert found["realistic"]["mrr"] == pytest.approx(expected, rel=1e-3) and expected > 0.2  # by chance, 0.04


@pytest.mark.usefixtures("installed")
def test_training_helps(umls: FewShotDataset) -> None:
    trainer = new_trainer(umls)
    losses = [trainer.train_step() for _ in range(20)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_a_relation_is_taught_and_predicted(model: TrainedModel) -> None:
    relation = model.teach([("cell_component", "cell"), ("tissue", "animal"), ("gene_or_genome", "cell")])
    answers = relation.predict("embryonic_structure", 5)
    assert len(answers) == 5 and all(0 < (answer.confidence or 0) < 1 for answer in answers)
    assert relation.explain("embryonic_structure", "cell").sentence
    rejected = relation.reject("embryonic_structure", answers[0].tail)
    assert answers[0].tail not in [answer.tail for answer in rejected.predict("embryonic_structure", 5)]


@pytest.mark.usefixtures("installed")
def test_a_resumed_training_ends_the_same_bit_for_bit(umls: FewShotDataset) -> None:
    whole, begun, resumed = (new_trainer(umls) for _ in range(3))
    for _ in range(4):
        whole.train_step()
    for _ in range(2):
        begun.train_step()
    resumed.load_state(begun.state())
    for _ in range(2):
        resumed.train_step()
    weights = zip(whole.system().tensors().values(), resumed.system().tensors().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


def test_it_keeps_the_contract(installed: dict[str, str], tmp_path: Path) -> None:
    """The contract test runs over whatever is registered, so over this one in an environment that has it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "pytest")]
    done = subprocess.run(
        [*command, "tests/systems/test_contract.py", "-k", NAME],
        cwd=ROOT,
        env=installed,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    passed = re.search(r"^(\d+) passed, \d+ deselected in", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and passed and int(passed[1]) >= 10, done.stdout


def test_it_is_served(installed: dict[str, str], trained_run: Path, model: TrainedModel) -> None:
    references = [("cell_component", "cell"), ("tissue", "animal")]
    with serving(trained_run, environment=installed) as (process, address):
        assert NAME in request(f"{address}/v1/graph")["model"]
        pairs = [{"head": head, "tail": tail} for head, tail in references]
        taught = request(f"{address}/v1/relations", {"name": "part", "references": pairs})
        answers = request(f"{address}/v1/relations/{taught['id']}/answers?head=embryonic_structure&k=3")["answers"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    expected = model.teach(references, "part").predict("embryonic_structure", 3)
    assert [answer["tail"]["id"] for answer in answers] == [answer.tail for answer in expected]
    confidences = [answer.confidence for answer in expected]
    assert [answer["confidence"] for answer in answers] == pytest.approx(confidences, abs=1e-4)
