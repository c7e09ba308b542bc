from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hire.errors import HireError
from hire.optim.settings import OptimizerSettings, SelectionSettings
from hire.optim.trainer import Loss, Trainer
from hire.training.loop import STATE, Stage, train
from hire.util.tensors import load_tensors


class Line(Trainer[torch.Tensor, nn.Linear]):
    """Learns the slope of a line; at one step its loss may be no number."""

    def __init__(self, steps: int = 20, broken_at: int | None = None) -> None:
        self.line = nn.Linear(1, 1)
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)
        self.broken_at = broken_at
        super().__init__(OptimizerSettings(learning_rate=0.1), steps=steps, seed=3, network=self.line)

    def batch(self, step: int) -> torch.Tensor:
        return torch.linspace(0, 1, 5)[:, None] + step

    def loss(self, batch: torch.Tensor) -> Loss:
        value = (self.line(batch) - 2 * batch).square().mean()
        return Loss(value * math.nan if self.step == self.broken_at else value)


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(tmp_path: Path) -> None:
    def evaluate() -> dict[str, float]:
        return {"mean": 0.5}

    stage = Stage("Line", tmp_path / STATE, selection=SelectionSettings(evaluate_every=4), evaluate=evaluate)
    with pytest.raises(
        HireError, match=r"loss of step 11 is nan; the last good checkpoint is .*state.safetensors, step 8"
    ):
        train(Line(broken_at=10), stage)
    assert int(load_tensors(tmp_path / STATE)["step"]) == 8
    with pytest.raises(HireError, match="no checkpoint was written"):
        train(Line(broken_at=2), Stage("Line"))


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    class Bursting(Line):
        def train_step(self, batch: torch.Tensor | None = None) -> float:
            loss = super().train_step(batch)
            self.line.weight.data.fill_(math.inf)  # the loss before the update was still a number
            return loss

    with pytest.raises(HireError, match="the weights after step 1 are not finite; no checkpoint was written"):
        train(Bursting(steps=3), Stage("Line", tmp_path / STATE, deadline=0.0))
    assert not (tmp_path / STATE).exists()


def test_batches_are_drawn_ahead_and_the_best_step_is_kept(tmp_path: Path) -> None:
    seen: list[int] = []
    kept: list[int] = []
    trainer = Line()
    values = iter([0.1, 0.5, 0.3, 0.2, 0.4])

    def evaluate() -> dict[str, float]:
        seen.append(trainer.step)
        return {"mean": next(values)}

    selection = SelectionSettings(evaluate_every=4, patience=2)
    stage = Stage(
        "Line", tmp_path / STATE, selection=selection, evaluate=evaluate, keep=lambda: kept.append(trainer.step)
    )
    finished, entries = train(trainer, stage)
    assert finished and seen == [4, 8, 12, 16] and kept == [4, 8] and [e["step"] for e in entries] == seen
    again = Line()
    assert train(again, stage)[0] and again.step == 16  # given up, and resumed as such


def test_threads_are_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    used: list[int] = []

    class Counting(Line):
        def loss(self, batch: torch.Tensor) -> Loss:
            used.append(torch.get_num_threads())
            return super().loss(batch)

    train(Counting(steps=2), Stage("Line", threads=2))
    assert used == [2, 2] and torch.get_num_threads() == before


def test_without_dev_the_last_step_counts(tmp_path: Path) -> None:
    found: tuple[bool, list[dict[str, Any]]] = train(Line(steps=3), Stage("Line", tmp_path / STATE))
    assert found == (True, [])
