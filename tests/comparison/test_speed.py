from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hire.comparison import speed as module
from hire.comparison.speed import SPEEDS, STEPS, WARM_UP, Speed, Speeds, _Trial, machine, measured, measured_embeddings
from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.evaluation.ranking import rank_split
from hire.systems.base import Support
from hire.systems.ensemble import GRID
from hire.systems.popularity import Popularity
from hire.training.loop import METRICS
from hire.training.pipeline import train_run
from hire.util.arrays import IntArray
from hire.util.settings import changed
from tests.support import small_settings

CPU = torch.device("cpu")


class Clock(threading.local):
    """A clock of each thread's own, which stands still unless it is moved."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: found.now, monotonic=lambda: found.now))
    return found


class Steps:
    """A trainer whose steps take a while by a clock."""

    def __init__(self, clock: Clock, times: list[float], steps: int = 1_000, draw: float = 0.0) -> None:
        self.clock, self.times, self.steps, self.draw, self.step = clock, times, steps, draw, 0

    def drawn(self, step: int) -> int:
        self.clock.now += self.draw
        return step

    def train_step(self, batch: int) -> float:
        assert batch == self.step
        self.clock.now += self.times[min(self.step, len(self.times) - 1)]
        self.step += 1
        return 0.0


def step_of(trainer: Any) -> float:
    trial: Any = _Trial(None, CPU)  # type: ignore[arg-type]
    return float(trial.step(trainer))


def test_the_median_step_leaves_out_the_first_ones(clock: Clock) -> None:
    trainer = Steps(clock, [9.0] * WARM_UP + [0.3, 0.1, 0.1, 5.0])
    assert step_of(trainer) == pytest.approx(0.2)
    assert trainer.step == WARM_UP + 4  # enough seconds were measured
    quick = Steps(clock, [9.0] * WARM_UP + [1e-3])
    assert step_of(quick) == pytest.approx(1e-3) and quick.step == WARM_UP + STEPS.stop
    short = Steps(clock, [9.0, 2.0], steps=2)
    assert step_of(short) == pytest.approx(2.0) and short.step == 2
    assert step_of(Steps(clock, [0.1], draw=0.7)) == pytest.approx(0.7)  # batches are drawn more slowly


class Slow(Popularity):
    """Takes 2 s for a task and 1 ms for a pair, by a clock."""

    clock: Clock

    def adapt(self, support: Support) -> Any:
        self.clock.now += 2
        return super().adapt(support)

    def score(self, state: Any, heads: IntArray, tails: IntArray) -> Tensor:
        self.clock.now += 1e-3 * len(np.unique(heads)) * len(tails)
        return super().score(state, heads, tails)


@pytest.mark.parametrize("among_all", [False, True])
def test_the_time_of_a_ranking_is_that_of_its_tasks_and_pairs(
    clock: Clock, umls: FewShotDataset, among_all: bool
) -> None:
    system = Slow.restore(umls, small_settings("popularity").settings, {})
    Slow.clock = clock
    task, pair = _Trial(umls, CPU).ranking(system, 1, among_all=among_all)
    assert task == pytest.approx(2) and pair == pytest.approx(1e-3)
    before = clock.now
    rank_split(system, umls, "test", 1, among_all=among_all)
    expected = Speed(task=task, pair=pair).ranking(umls, "test", among_all=among_all)
    assert expected == pytest.approx(clock.now - before, rel=0.05)  # the reference is no query


def test_a_training_has_the_steps_and_looks_that_were_expected(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    settings = small_settings("metar", training__steps=12, selection__evaluate_every=5)
    found = measured(umls, settings.system, settings.settings, CPU)
    assert found.steps == 12 and min(vars(found).values()) >= 0 and min(found.step, found.look) > 0
    assert found.training == pytest.approx(found.start + 12 * found.step + 3 * found.look)
    assert not list(tmp_path.iterdir())  # nothing was trained
    train_run("umls-one", tmp_path / "run", settings)
    assert len((tmp_path / "run" / METRICS).read_text().splitlines()) == found.looks == 3


def test_systems_of_every_kind(umls: FewShotDataset) -> None:
    for name in ("popularity", "transe"):
        settings = small_settings(name, **({"training__steps": 4} if name == "transe" else {}))
        found = measured(umls, name, settings.settings, CPU, among_all=True)
        assert found.looks == 1 and found.training > 0 and (found.steps > 0) == (name == "transe")
    of_embeddings = measured_embeddings(umls, EmbeddingSettings(dimension=8, steps=7), CPU)
    assert of_embeddings.steps == 7 and of_embeddings.training > 7 * of_embeddings.step > 0


def test_an_ensemble_takes_as_long_as_its_members_and_its_choice_of_weights(umls: FewShotDataset) -> None:
    settings = small_settings("ensemble").settings
    found = measured(umls, "ensemble", settings, CPU)
    members = [measured(umls, member.system, member.settings, CPU) for member in settings.members.values()]
    assert found.steps == 0 and found.looks == 1  # weights are given
    assert found.start > 0.2 * sum(member.training for member in members)
    chosen = changed(settings, "path.weight", None)
    assert measured(umls, "ensemble", chosen, CPU).looks == 1 + len(GRID)


def test_what_cannot_be_trained_is_not_measured(umls: FewShotDataset) -> None:
    without = FewShotDataset.of("without", umls.graph, {split: {} for split in ("train", "dev", "test")}, {})
    with pytest.raises(HireError, match="has no dev tasks"):
        measured(without, "popularity", small_settings("popularity").settings, CPU)


def test_speeds_are_kept_for_the_machine_that_they_were_measured_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(1.5, 0.25, 4, 0.5, 2, 0.125, 1e-6)
    folder = tmp_path / "comparison"
    Speeds(folder, CPU).put("one", speed)
    assert Speeds(folder, CPU).get("one") == speed and Speeds(folder, CPU).get("other") is None
    content = json.loads((folder / SPEEDS).read_text())
    assert content["machine"] == machine(CPU) and content["seconds"]["one"]["step"] == 0.25
    with monkeypatch.context() as patch:
        patch.setattr(module, "_processor", lambda: "another one")
        assert Speeds(folder, CPU).get("one") is None
    for damage in ("", "{}", (folder / SPEEDS).read_text().replace("0.25", "0.26")):
        (folder / SPEEDS).write_text(damage)
        assert Speeds(folder, CPU).get("one") is None
    (tmp_path / "file").write_text("")
    nowhere = Speeds(tmp_path / "file" / "below", CPU)
    nowhere.put("one", speed)  # kept until the process ends
    assert nowhere.get("one") == speed and np.isfinite(speed.training)
