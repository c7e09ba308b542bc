from __future__ import annotations

from dataclasses import replace

import torch

from hire.systems.hire.entity import Vectors
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireModelSettings

SETTINGS = HireModelSettings(dimension=4, residual=False, drop_path=0.0, context_weight=0.0)


def _learned(settings: HireModelSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """R of 400 tasks with a network as it was initialized, and the same without any dropping."""
    torch.manual_seed(0)
    network = HireNetwork(settings)
    heads, tails = torch.randn(2, 400, 3, settings.dimension)
    dropping = network.dropping(400)
    some = torch.arange(0, 400, 7)
    found = network.meta_relation(heads, tails, dropping).translation
    of_some = network.meta_relation(heads[some], tails[some], dropping.part(some)).translation
    torch.testing.assert_close(of_some, found[some])
    return found, network.meta_relation(heads, tails).translation


def test_the_meta_relation_of_some_tasks_is_dropped_as_a_whole() -> None:
    settings = replace(SETTINGS, drop_relation=0.25)
    found, whole = _learned(settings)
    dropped = (found == 0).all(dim=1)
    assert 60 < dropped.sum() < 140
    torch.testing.assert_close(found[~dropped], whole[~dropped] / 0.75)


def test_without_learned_shifts_only_the_inner_step_moves_projections() -> None:
    torch.manual_seed(0)
    network = HireNetwork(replace(SETTINGS, learned_shifts=False))
    heads, tails = (Vectors(*torch.randn(2, 5, 3, SETTINGS.dimension)) for _ in range(2))
    negatives = Vectors(*torch.randn(2, 5, 7, SETTINGS.dimension))
    start = network.meta_relation(heads.embeddings, tails.embeddings)
    assert (start.direction == network.direction).all()
    assert not start.head_shift.any() and not start.tail_shift.any() and start.translation.all()
    refined = network.refined(start, heads, tails, negatives)
    assert all(not torch.equal(before, after) for before, after in zip(start, refined, strict=True))


def test_single_outputs_of_the_learner_are_dropped() -> None:
    settings = replace(SETTINGS, dropout=0.25)
    found, whole = _learned(settings)
    dropped = found == 0
    assert 300 < dropped.sum() < 500 and not dropped.all(dim=1).all()
    torch.testing.assert_close(found[~dropped], whole[~dropped] / 0.75)


def test_nothing_is_dropped_without_a_rate() -> None:
    found, whole = _learned(SETTINGS)
    assert torch.equal(found, whole)


def test_the_mean_of_few_differences_counts_less() -> None:
    torch.manual_seed(0)
    network = HireNetwork(replace(SETTINGS, residual=True, residual_shots=4))
    every = torch.randn(2, 7, 5, SETTINGS.dimension)
    for shots, counts in ((1, 0.25), (2, 0.5), (4, 1.0), (5, 1.0)):
        heads, tails = every[:, :, :shots]
        learned = network.learner(heads, tails)[:, : SETTINGS.dimension]
        added = network.meta_relation(heads, tails).translation - learned
        gate = torch.sigmoid(torch.tensor(2.0))  # what the gate starts from
        torch.testing.assert_close(added, counts * gate * (tails - heads).mean(dim=1))
