from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer, TripleBatch
from hire.errors import HireError
from hire.inference.fit import fit
from hire.inference.model import load
from hire.systems.base import Support
from hire.systems.ensemble import Ensemble
from hire.training.card import CARD
from hire.training.embedding import embeddings_of, embeddings_path
from hire.training.loop import CURVES, METRICS, STATE
from hire.training.run import CONFIG, LOCK, MEMBERS, MODEL, weights_fingerprint
from hire.training.settings import RunSettings
from hire.util.tensors import load_tensors
from tests.conftest import write_layout
from tests.support import small_settings

SETTINGS = small_settings("hire", training__steps=12, training__tasks=4, selection__evaluate_every=5)
EMBEDDING = EmbeddingSettings(dimension=8, batch_size=64, negatives=16, steps=20)


def fit_umls(run: Path, settings: RunSettings = SETTINGS, **options: Any) -> dict[str, Any]:
    return fit("umls-one", run, settings, calibrate=False, **options)


def same(one: Path, other: Path) -> bool:
    first, second = load_tensors(one), load_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_holds_what_is_needed(tmp_path: Path) -> None:
    best = fit_umls(tmp_path / "run")
    assert best["finished"] and best["steps"] == 12 and best["step"] in (5, 10, 12)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {CONFIG, MODEL, STATE, METRICS, CARD, CURVES}
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    assert steps == [5, 10, 12]
    trained = load(tmp_path / "run")
    system, dataset = trained.system, trained.dataset
    assert dataset.name == "umls-one"
    scores = [
        system.score(system.adapt(Support(task.pairs[:3])), task.pairs[:5, 0], task.pairs[:5, 1])
        for task in dataset.tasks
    ]
    assert all(found.isfinite().all() for found in scores)


def test_the_config_says_what_the_run_is(tmp_path: Path) -> None:
    fit_umls(tmp_path / "run")
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    assert config["system"] == "hire" and config["settings"]["training"]["steps"] == 12
    assert {"hire", "python", "torch", "numpy"} == config["versions"].keys()
    assert config["commit"] is None or len(config["commit"]) == 40
    assert config["teaching"]["max_candidates"] == 20_000 and config["settings"]["model"]["rejection_weight"] == 0.3
    (tmp_path / "run" / CONFIG).write_text(json.dumps({**config, "format": 3}))
    with pytest.raises(HireError, match="has format 3; this version reads format 5") as caught:
        load(tmp_path / "run")
    assert "train again" in str(caught.value.problems[0].remedy)


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    fit_umls(tmp_path / "whole")
    for _ in range(15):
        if fit_umls(tmp_path / "parts", resume=(tmp_path / "parts").exists(), max_minutes=1e-9)["finished"]:
            break
    for name in (MODEL, STATE):
        assert same(tmp_path / "whole" / name, tmp_path / "parts" / name)
    assert (tmp_path / "whole" / METRICS).read_text() == (tmp_path / "parts" / METRICS).read_text()


def test_the_members_of_an_ensemble_are_trained_in_turn_and_resumed_bit_for_bit(tmp_path: Path) -> None:
    settings = small_settings("ensemble", hire__training__steps=6, path__training__steps=4)
    fit_umls(tmp_path / "whole", settings)
    stops = 0
    while not fit_umls(tmp_path / "parts", settings, resume=stops > 0, max_minutes=1e-9)["finished"]:
        stops += 1
        with pytest.raises(HireError, match="has no weights yet") as caught:
            load(tmp_path / "parts")
        assert "--resume" in str(caught.value.problems[0].remedy)
    assert stops >= 8
    for name in ("hire", "path"):
        assert same(tmp_path / "whole" / MEMBERS / name / MODEL, tmp_path / "parts" / MEMBERS / name / MODEL)
    trained = load(tmp_path / "whole")
    system = trained.system
    assert isinstance(system, Ensemble)
    pairs, candidates = trained.dataset.split("test")[0].pairs, np.arange(40)
    support = Support(np.asarray(pairs[:3]), candidates)
    joined = system.score(system.adapt(support), pairs[:4, 0], candidates)
    path, hire = (
        system.members[name].score(system.members[name].adapt(support), pairs[:4, 0], candidates)
        for name in ("path", "hire")
    )
    assert torch.allclose(joined, path + 0.3 * system.members["hire"].scale * hire, atol=1e-5)
    explained = system.explain(system.adapt(support), int(pairs[0, 0]), 7)
    assert explained.score == pytest.approx(joined[0, 7].item(), abs=1e-4)
    before = weights_fingerprint(tmp_path / "whole")
    weights = tmp_path / "whole" / MEMBERS / "path" / MODEL
    weights.write_bytes((tmp_path / "whole" / MEMBERS / "hire" / MODEL).read_bytes())
    assert weights_fingerprint(tmp_path / "whole") != before  # what was calibrated before is so no more
    with pytest.raises(HireError, match="does not fit the settings"):
        load(tmp_path / "whole")


def test_weights_that_are_not_set_are_chosen_on_dev(tmp_path: Path) -> None:
    members = {
        "translation": {"system": "mean-translation", "embedding": {"steps": 20, "dimension": 8}},
        "popularity": {},
    }
    settings = RunSettings.of("ensemble", {"members": members})
    found = fit_umls(tmp_path / "run", settings)
    system = load(tmp_path / "run").system
    assert isinstance(system, Ensemble) and system.weights["translation"] == 1.0
    for weight in (0.0, 0.1, 0.5, 2.0):
        fixed = settings.changed({"translation.weight": 1.0, "popularity.weight": weight})
        other = fit_umls(tmp_path / str(weight), fixed)
        assert other["dev"]["mean"] <= found["dev"]["mean"] + 1e-9


def test_training_stops_where_dev_gets_no_better(tmp_path: Path) -> None:
    patient = {"training.steps": 10_000, "selection.evaluate_every": 1, "selection.patience": 3}
    found = fit_umls(tmp_path / "run", SETTINGS.changed(patient))
    assert found["finished"] and found["steps"] == found["step"] + 3 < 10_000
    again = fit_umls(tmp_path / "run", SETTINGS.changed(patient), resume=True)
    assert again["steps"] == found["steps"]


def test_embeddings_are_resumed(tmp_path: Path, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path))
    trainer = EmbeddingTrainer(umls.graph, EMBEDDING)
    for _ in range(trainer.steps):
        trainer.train_step()
    whole = trainer.embeddings()
    steps: list[int] = []
    train_step = EmbeddingTrainer.train_step

    def interrupt(self: EmbeddingTrainer, batch: TripleBatch | None = None) -> float:
        steps.append(self.step)
        if self.step == 7 and steps.count(7) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(self, batch)

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
    assert json.loads((tmp_path / "run" / CONFIG).read_text())["embeddings"] == str(file)
    fit_umls(tmp_path / "run", embeddings=file, resume=True)
    with pytest.raises(HireError, match="other settings: embeddings is"):
        fit_umls(tmp_path / "run", embeddings=tmp_path / "other", resume=True)
    with pytest.raises(HireError, match="no such file"):
        fit_umls(tmp_path / "new", embeddings=tmp_path / "none")
    wider = SETTINGS.changed({"model.dimension": 32, "embedding.dimension": 32})
    with pytest.raises(HireError, match="has 16 dimensions, not 32"):
        fit_umls(tmp_path / "new", wider, embeddings=file)
    other = write_layout(tmp_path / "layout")
    with pytest.raises(HireError, match="has no embeddings of"):
        fit(other, tmp_path / "new", SETTINGS.changed({"training.shots": 1}), embeddings=file)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_is_told_before_the_work(run: Callable[..., Result], tmp_path: Path) -> None:
    for problem, command in (
        (
            "no such file or directory",
            ("pretrain", "umls-one", "--steps", "3", "-o", tmp_path / "missing" / "x.safetensors"),
        ),
        ("dimensions are odd", ("pretrain", "umls-one", "--dimension", "7", "--model", "complex")),
        ("is a file", ("train", "umls-one", "--steps", "3", "-o", __file__)),
    ):
        result = run(*command)
        assert result.exit_code == 2 and problem in result.output
    assert not list(tmp_path.iterdir())


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit_umls(tmp_path / "run", tensorboard=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("dev MRR/mean")] == [5, 10, 12]


def test_a_run_is_not_overwritten_nor_resumed_with_other_settings(tmp_path: Path) -> None:
    fit_umls(tmp_path / "run")
    with pytest.raises(HireError, match="the run folder already exists"):
        fit_umls(tmp_path / "run")
    with pytest.raises(HireError, match=r"training\.steps is 99, was 12"):
        fit_umls(tmp_path / "run", SETTINGS.changed({"training.steps": 99}), resume=True)
    with pytest.raises(HireError, match="system is 'popularity', was 'hire'"):
        fit_umls(tmp_path / "run", RunSettings.of("popularity"), resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("of somebody else")
    with pytest.raises(HireError, match="is not a run"):
        fit_umls(tmp_path / "other", resume=True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]


@pytest.mark.parametrize("there", [[], [".lock", ".config.json.partial-host-1-01234567"]])
def test_what_was_interrupted_before_it_began_can_be_resumed(tmp_path: Path, there: list[str]) -> None:
    fit_umls(tmp_path / "whole")
    for name in there:
        (tmp_path / "killed").mkdir(exist_ok=True)
        (tmp_path / "killed" / name).write_text("{")
    fit_umls(tmp_path / "killed", resume=True)
    assert same(tmp_path / "whole" / MODEL, tmp_path / "killed" / MODEL)


def test_a_run_exists_from_the_first_second_and_has_one_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    messages = []

    def opened(source: str) -> FewShotDataset:
        result = run("train", "umls-one", "-o", tmp_path / "run", "--seed", "1")
        messages.append((result.exit_code, result.output))
        return open_dataset(source)

    monkeypatch.setattr("hire.training.pipeline.open_dataset", opened)
    fit_umls(tmp_path / "run")
    ((code, output),) = messages
    assert code == 2 and f"is in use by process {os.getpid()} on" in output
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_missing_file_of_weights_is_told(tmp_path: Path) -> None:
    fit_umls(tmp_path / "run")
    (tmp_path / "run" / MODEL).unlink()
    with pytest.raises(HireError, match="has no weights yet"):
        load(tmp_path / "run")
    with pytest.raises(HireError, match=rf"{MODEL}: is missing, though the training"):
        fit_umls(tmp_path / "run", resume=True)


def test_weights_that_are_not_finite_are_neither_kept_nor_saved(tmp_path: Path) -> None:
    settings = SETTINGS.changed({"optimizer.learning_rate": 1e3, "optimizer.table_learning_rate": 1e3})
    with pytest.raises(HireError, match=r"not finite|is nan|is inf"):
        fit_umls(tmp_path / "run", settings)
    assert not list(tmp_path.rglob(MODEL))


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
    config = (run / CONFIG).read_text()
    for changed in ("{", config.replace('"seed": 0', '"seed": 1')):
        (run / CONFIG).write_text(changed)
        with pytest.raises(HireError, match=r"config\.json: is damaged"):
            load(run)


SHORT = ["--steps", "4", "--seed", "5", "--preset", "levels"]
for setting in ("model.dimension=8", "embedding.dimension=8", "embedding.steps=10"):
    SHORT += ["--set", setting]
for setting in ("hire.selection.evaluate_every=2", "path.training.steps=1", "path.training.tasks=1"):
    SHORT += ["--set", setting]


def test_the_command_line(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("train", "umls-one", *SHORT, "-o", tmp_path / "run")
    assert result.exit_code == 0 and "On dev" in result.output
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    members = config["settings"]["members"]
    assert members["path"]["settings"]["training"]["seed"] == members["hire"]["settings"]["embedding"]["seed"] == 5
    assert members["hire"]["settings"]["training"]["steps"] == 4
    assert sorted(load(tmp_path / "run").calibrations) == [1, 3, 5]
    found = json.loads(run("evaluate", tmp_path / "run", "--shots", "3", "--json").stdout)
    assert found["split"] == "dev" and found["shots"] == 3 and found["queries"] == 336 - 6
    for kind in ("realistic", "optimistic", "pessimistic"):
        assert {"mrr", "hits@10", "hits@5", "hits@1", "mrr_interval"} <= found[kind].keys()
    assert "precedes" in run("evaluate", tmp_path / "run").output
    everything = json.loads(run("evaluate", tmp_path / "run", "--candidates", "all", "--json").stdout)
    assert everything["candidates"] == "all"
    assert "among all entities" in run("evaluate", tmp_path / "run", "--candidates", "all").output
    drawn = json.loads(run("evaluate", tmp_path / "run", "--draws", "2", "--json").stdout)
    assert len(drawn["draws"]) == 2 and drawn["shots"] == 5
    assert "deviation" in run("evaluate", tmp_path / "run", "--draws", "2").output
    for wrong in (
        ("evaluate", tmp_path),
        ("train", "no-such", "-o", "x"),
        ("evaluate", tmp_path / "run", "--shots", "99"),
    ):
        assert run(*wrong).exit_code == 2


def test_without_a_preset_the_path_level_is_fine_tuned(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("train", "umls-one", "--steps", "2", "--no-calibrate", "-o", tmp_path / "run")
    assert result.exit_code == 0
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    assert config["system"] == "path" and config["settings"]["training"]["start"] == "pretrained"
    found = json.loads(run("evaluate", tmp_path / "run", "--shots", "3", "--json").stdout)
    assert found["realistic"]["mrr"] > 0.7  # two steps lead nowhere from random weights


def test_a_system_by_name_and_from_a_file(run: Callable[..., Result], tmp_path: Path) -> None:
    plain = run("train", "umls-one", "--system", "popularity", "--no-calibrate", "-o", tmp_path / "plain", "--json")
    assert plain.exit_code == 0 and json.loads(plain.stdout)["calibrated"] is False
    assert load(tmp_path / "plain").system.name == "popularity" and not load(tmp_path / "plain").calibrations
    file = tmp_path / "mine.toml"
    file.write_text('preset = "fast"\n[model]\ndimension = 8\n[embedding]\ndimension = 8\nsteps = 10\n')
    options = ("--config", file, "--set", "training.steps=2", "--set", "training.tasks=2", "--no-calibrate")
    assert run("train", "umls-one", *options, "-o", tmp_path / "mine").exit_code == 0
    config = json.loads((tmp_path / "mine" / CONFIG).read_text())
    assert config["settings"]["model"]["dimension"] == 8 and config["settings"]["training"]["steps"] == 2
    for given, message in (
        (("--preset", "levels", "--set", "training.stepz=2"), "hire.training.steps"),
        (("--system", "hire", "--set", "training.stepz=2"), "did you mean training.steps"),
        (("--system", "hiro"), "did you mean 'hire'"),
        (("--preset", "bst"), "did you mean 'best'"),
        (("--set", "training.steps=many"), "a whole number"),
        (("--set", "training.steps"), "training.steps=200"),
        (("--preset", "fast", "--system", "hire"), "give one of"),
        (("--config", tmp_path / "none.toml"), "none.toml: no such file"),
        (("--system", "ensemble"), "an ensemble needs members"),
        *([] if torch.cuda.is_available() else [(("--device", "cuda"), "no CUDA device")]),
    ):
        wrong = run("train", "umls-one", *given, "-o", tmp_path / "wrong")
        assert wrong.exit_code == 2 and message in wrong.output and "Traceback" not in wrong.output
    assert not (tmp_path / "wrong").exists()


def test_ctrl_c_ends_after_the_step_and_loses_nothing(tmp_path: Path) -> None:
    options = [*SHORT[4:], "--steps", "100000", "--set", "hire.selection.evaluate_every=5"]
    command = [sys.executable, "-m", "hire", "train", "umls-one", *options, "-o", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    state = tmp_path / "run" / MEMBERS / "hire" / STATE
    while not state.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2 and "interrupted" in errors and "Traceback" not in errors
    assert int(load_tensors(state)["step"]) >= 5
