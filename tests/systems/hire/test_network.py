from __future__ import annotations

from dataclasses import replace

import torch

from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireModelSettings

SETTINGS = HireModelSettings(dimension=4, residual=False, drop_path=0.0, context_weight=0.0)


def _learned(settings: HireModelSettings, *, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """R of 400 tasks with a network as it was initialized, and the same without any dropping."""
    torch.manual_seed(0)
    network = HireNetwork(settings).train(training)
    heads, tails = torch.randn(2, 400, 3, settings.dimension)
    found = network.meta_relation(heads, tails).translation
    return found, network.eval().meta_relation(heads, tails).translation


def test_the_meta_relation_of_some_tasks_is_dropped_as_a_whole() -> None:
    settings = replace(SETTINGS, drop_relation=0.25)
    found, whole = _learned(settings, training=True)
    dropped = (found == 0).all(dim=1)
    assert 60 < dropped.sum() < 140
    torch.testing.assert_close(found[~dropped], whole[~dropped] / 0.75)
    found, whole = _learned(settings, training=False)
    assert torch.equal(found, whole)


def test_single_outputs_of_the_learner_are_dropped() -> None:
    settings = replace(SETTINGS, dropout=0.25)
    found, whole = _learned(settings, training=True)
    dropped = found == 0
    assert 300 < dropped.sum() < 500 and not dropped.all(dim=1).all()
    torch.testing.assert_close(found[~dropped], whole[~dropped] / 0.75)
    found, whole = _learned(settings, training=False)
    assert torch.equal(found, whole)
