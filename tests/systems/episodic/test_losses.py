from __future__ import annotations

import math

import pytest
import torch

from hire.systems.episodic.losses import crowd, margin_losses, softmax_losses


def test_what_negatives_stand_for_does_not_depend_on_how_many_are_drawn() -> None:
    for candidates, mass in ((40, 40), (100, 100), (400, 200), (10_000, 1_000)):
        for drawn in (1, 32, 512):
            each = crowd(torch.tensor([candidates]), drawn, full=100, crowding=0.5).exp().item()
            assert drawn * each == pytest.approx(mass, rel=1e-4)


def test_negatives_that_are_true_do_not_count() -> None:
    positive, negative = torch.tensor([[1.0, 2.0]]), torch.tensor([[[0.5, 9.0], [1.5, 1.8]]])
    false = torch.tensor([[[True, False], [True, True]]])
    hinges = margin_losses(positive, negative, 1.0, false)[0].tolist()
    assert hinges == pytest.approx([0.5, (0.5 + 0.8) / 2])
    entropies = softmax_losses(positive, negative, torch.tensor(2.0), false, torch.tensor([math.log(3.0)]))[0].tolist()
    masses = [3 * math.exp(1.0), 3 * (math.exp(3.0) + math.exp(3.6))]
    assert entropies == pytest.approx(
        [math.log(1 + mass / math.exp(2 * s)) for mass, s in zip(masses, [1.0, 2.0], strict=True)], rel=1e-5
    )
