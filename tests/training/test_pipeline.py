from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result

from hire.data.dataset import FewShotDataset
from hire.embeddings.trainer import EmbeddingSettings, EmbeddingTrainer, pretrain
from hire.errors import HireError
from hire.inference.model import load
from hire.systems.ensemble import HirePath
from hire.systems.hire.model import Hire
from hire.systems.hire.settings import HireSettings
from hire.systems.hire.trainer import TrainingSettings
from hire.systems.path.settings import PathSettings, PathTrainingSettings
from hire.training.pipeline import embeddings_of, embeddings_path, fit
from hire.training.run import CONFIG, METRICS, MODEL, PATH_MODEL, PATH_STATE, STATE, weights_fingerprint
from hire.training.settings import FitSettings, RunSettings
from hire.util.tensors import load_tensors
from tests.conftest import write_layout

MODEL_SETTINGS = HireSettings(dimension=8, inner_negatives=16)
TRAINING = TrainingSettings(steps=12, tasks=4, queries=4, negatives=16, inner_negatives=8, context_references=2)
EMBEDDING = EmbeddingSettings(dimension=8, batch_size=64, negatives=16, steps=20)
SETTINGS = RunSettings(MODEL_SETTINGS, TRAINING, EMBEDDING, FitSettings(evaluate_every=5))


def fit_umls(run: Path, *, training: TrainingSettings = TRAINING, **options: Any) -> dict[str, Any]:
    return fit("umls-one", run, replace(SETTINGS, training=training), **options)


def same(one: Path, other: Path) -> bool:
    first, second = load_tensors(one), load_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_holds_what_is_needed(tmp_path: Path) -> None:
    best = fit_umls(tmp_path / "run")
    assert best["finished"] and best["steps"] == 12 and best["step"] in (5, 10, 12)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {CONFIG, MODEL, STATE, METRICS, "README.md", "curves.svg"}
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    assert steps == [5, 10, 12]
    trained = load(tmp_path / "run")
    model, dataset = trained.model, trained.dataset
    assert dataset.name == "umls-one"
    figures = [model.score(model.adapt(task.pairs[:3]), task.pairs[:5, 0], task.pairs[:5, 1]) for task in dataset.tasks]
    assert all(scores.isfinite().all() for scores in figures)


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    fit_umls(tmp_path / "whole")
    for _ in range(15):
        if fit_umls(tmp_path / "parts", resume=(tmp_path / "parts").exists(), max_minutes=1e-9)["finished"]:
            break
    for name in (MODEL, STATE):
        assert same(tmp_path / "whole" / name, tmp_path / "parts" / name)
    assert (tmp_path / "whole" / METRICS).read_text() == (tmp_path / "parts" / METRICS).read_text()


def test_the_path_level_is_trained_after_the_others_and_resumed_bit_for_bit(tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, path=PathSettings(members=2), path_training=PathTrainingSettings(steps=6, tasks=1, queries=3)
    )
    fit("umls-one", tmp_path / "whole", settings)
    stops = 0
    while not fit("umls-one", tmp_path / "parts", settings, resume=stops > 0, max_minutes=1e-9)["finished"]:
        stops += 1
        assert isinstance(load(tmp_path / "parts").model, Hire)  # as far as it is
    assert stops >= 16
    assert same(tmp_path / "whole" / PATH_MODEL, tmp_path / "parts" / PATH_MODEL)
    assert same(tmp_path / "whole" / MODEL, tmp_path / "parts" / MODEL)
    assert not (tmp_path / "parts" / PATH_STATE).exists()
    trained = load(tmp_path / "whole")
    model = trained.model
    assert isinstance(model, HirePath)
    pairs = trained.dataset.split("test")[0].pairs
    candidates = np.arange(40)
    joined = model.score(model.adapt(pairs[:3], candidates), pairs[:4, 0], candidates)
    paths = model.path.score(model.path.adapt(pairs[:3]), pairs[:4, 0], candidates)
    hire = model.hire.score(model.hire.adapt(pairs[:3], candidates), pairs[:4, 0], candidates)
    weight = settings.path.hire_weight * model.hire.network.log_temperature.exp().item()
    assert torch.allclose(joined, paths + weight * hire, atol=1e-5)
    explained = model.explain(model.adapt(pairs[:3], candidates), int(pairs[0, 0]), 7)
    assert explained.score == pytest.approx(joined[0, 7].item(), abs=1e-4)
    before = weights_fingerprint(tmp_path / "whole")
    (tmp_path / "whole" / PATH_MODEL).write_bytes((tmp_path / "whole" / MODEL).read_bytes())
    assert weights_fingerprint(tmp_path / "whole") != before  # what was calibrated before is so no more
    with pytest.raises(HireError, match="does not fit the settings"):
        load(tmp_path / "whole")


def test_training_stops_where_dev_gets_no_better(tmp_path: Path) -> None:
    settings = replace(SETTINGS, training=replace(TRAINING, steps=10_000), fit=FitSettings(1, patience=3))
    found = fit("umls-one", tmp_path / "run", settings)
    assert found["finished"] and found["steps"] == found["step"] + 3 < 10_000
    again = fit("umls-one", tmp_path / "run", settings, resume=True)
    assert again["steps"] == found["steps"]


def test_embeddings_are_gone_on_with(tmp_path: Path, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path))
    whole = pretrain(umls.graph, EMBEDDING)
    steps: list[int] = []
    train_step = EmbeddingTrainer.train_step

    def interrupt(self: EmbeddingTrainer) -> float:
        steps.append(self.step)
        if self.step == 7 and steps.count(7) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(self)

    monkeypatch.setattr(EmbeddingTrainer, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        embeddings_of(umls, EMBEDDING)
    found = embeddings_of(umls, EMBEDDING)
    assert steps == list(range(EMBEDDING.steps))  # the step was finished, and none is done twice
    assert torch.equal(found.entities, whole.entities) and torch.equal(found.relations, whole.relations)
    assert [path.name for path in tmp_path.iterdir()] == [embeddings_path(umls, EMBEDDING).name]


def test_embeddings_of_a_file(run: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "umls.safetensors"
    made = run("pretrain", "umls-one", "--dimension", "8", "--steps", "5", "--model", "transd", "-o", file, "--json")
    about = json.loads(made.stdout)
    assert about["file"] == str(file) and about["entities"] == [135, 16] and about["relations"] == [92, 16]
    fit_umls(tmp_path / "run", embeddings=file)
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    assert config["embedding"] == {"file": str(file), "dimension": 8}
    fit_umls(tmp_path / "run", embeddings=file, resume=True)
    with pytest.raises(HireError, match="other settings: file is"):
        fit_umls(tmp_path / "run", embeddings=tmp_path / "other", resume=True)
    with pytest.raises(HireError, match="no such file"):
        fit_umls(tmp_path / "new", embeddings=tmp_path / "none")
    wider = SETTINGS.changed(model={"dimension": 32}, embedding={"dimension": 32})
    with pytest.raises(HireError, match="has 16 dimensions, not 32"):
        fit("umls-one", tmp_path / "new", wider, embeddings=file)
    assert not (tmp_path / "new").exists()
    other = write_layout(tmp_path / "layout")
    with pytest.raises(HireError, match="has no embeddings of"):
        fit(other, tmp_path / "new", SETTINGS.changed(training={"shots": (1,)}), embeddings=file)


def test_what_cannot_be_is_told_before_the_work(run: Callable[..., Result], tmp_path: Path) -> None:
    options = ("umls-one", "--dimension", "8", "--steps", "3")
    for problem, command in (
        ("could not be written", ("pretrain", *options, "-o", tmp_path / "missing" / "x.safetensors")),
        ("dimensions are odd", ("pretrain", "umls-one", "--dimension", "7", "--model", "complex")),
        ("is a file", ("train", *options, "-o", __file__)),
    ):
        result = run(*command)
        assert result.exit_code == 2 and problem in result.output
    assert not list(tmp_path.iterdir())


def test_one_k_given_twice_is_one_k() -> None:
    assert SETTINGS.changed(training={"shots": (3, 3)}).evaluated_shots == (3,)
    assert SETTINGS.changed(training={"shots": (2, 3)}).evaluated_shots == (1, 3, 5)


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit_umls(tmp_path / "run", tensorboard=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("dev MRR/mean")] == [5, 10, 12]


def test_a_run_is_not_overwritten_nor_resumed_with_other_settings(tmp_path: Path) -> None:
    fit_umls(tmp_path / "run")
    with pytest.raises(HireError, match="is a run already"):
        fit_umls(tmp_path / "run")
    with pytest.raises(HireError, match="steps is 99, was 12"):
        fit_umls(tmp_path / "run", resume=True, training=replace(TRAINING, steps=99))
    with pytest.raises(HireError, match="is not a run"):
        fit_umls(tmp_path / "none", resume=True)


def test_damage_is_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit_umls(run)
    with pytest.raises(HireError, match="was trained on another graph"):
        load(run, write_layout(tmp_path / "other"))
    weights = (run / MODEL).read_bytes()
    for damage in (b"", b"nonsense", weights[:-10]):
        (run / MODEL).write_bytes(damage)
        with pytest.raises(HireError, match=MODEL):
            load(run)
    (run / CONFIG).write_text("{")
    with pytest.raises(HireError, match="is not a run"):
        load(run)


def test_the_command_line(run: Callable[..., Result], tmp_path: Path) -> None:
    given = "--steps 4 --dimension 8 --embedding-steps 10 --evaluate-every 2 --path-steps 1 --seed 5"
    options = given.split()
    result = run("train", "umls-one", *options, "-o", tmp_path / "run")
    assert result.exit_code == 0 and "Best on dev" in result.output
    assert (tmp_path / "run" / PATH_MODEL).exists()
    assert json.loads((tmp_path / "run" / CONFIG).read_text())["path_training"]["seed"] == 5
    assert sorted(load(tmp_path / "run").calibrations) == [1, 3, 5]
    plain = run("train", "umls-one", *options, "--model", "hire", "--no-calibrate", "-o", tmp_path / "plain", "--json")
    assert plain.exit_code == 0 and json.loads(plain.stdout)["calibrated"] is False
    assert not (tmp_path / "plain" / PATH_MODEL).exists() and not load(tmp_path / "plain").calibrations
    for evidence, chosen in ((("--evidence", "background"), False), ((), True)):
        assert run("train", "umls-one", *options, *evidence, "--max-minutes", "1e-9", "-o", tmp_path / str(chosen))
        assert json.loads((tmp_path / str(chosen) / CONFIG).read_text())["path_training"]["train_facts"] is chosen
    found = json.loads(run("evaluate", tmp_path / "run", "--shots", "3", "--json").stdout)
    assert found["split"] == "dev" and found["shots"] == 3 and found["queries"] == 336 - 6
    for kind in ("realistic", "optimistic", "pessimistic"):
        assert {"mrr", "hits@10", "hits@5", "hits@1", "mrr_interval"} <= found[kind].keys()
    assert "precedes" in run("evaluate", tmp_path / "run").output
    everything = json.loads(run("evaluate", tmp_path / "run", "--candidates", "all", "--json").stdout)
    assert everything["candidates"] == "all"
    drawn = json.loads(run("evaluate", tmp_path / "run", "--draws", "2", "--json").stdout)
    assert len(drawn["draws"]) == 2 and drawn["shots"] == 5
    assert "deviation" in run("evaluate", tmp_path / "run", "--draws", "2").output
    for wrong in (
        ("evaluate", tmp_path),
        ("train", "no-such", "-o", "x"),
        ("evaluate", tmp_path / "run", "--shots", "99"),
    ):
        assert run(*wrong).exit_code == 2


def test_ctrl_c_ends_after_the_step_and_loses_nothing(tmp_path: Path) -> None:
    options = ["--steps", "100000", "--dimension", "8", "--embedding-steps", "10", "--evaluate-every", "5"]
    command = [sys.executable, "-m", "hire", "train", "umls-one", *options, "-o", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / STATE).exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2 and "interrupted" in errors and "Traceback" not in errors
    assert int(load_tensors(tmp_path / "run" / STATE)["step"]) >= 5
