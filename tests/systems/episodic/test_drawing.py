from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings
from hire.systems.episodic.drawing import adaptation_negatives
from hire.systems.registry import system_class
from hire.training.settings import RunSettings


def test_no_true_tail_is_a_negative_after_training() -> None:
    for candidates in (None, np.arange(12)):
        assert set(adaptation_negatives(0, np.array([3, 5]), 12, candidates, 10)) == set(range(12)) - {3, 5}
    assert len(adaptation_negatives(0, np.array([7]), 1, np.array([7]), 10)) == 1  # where there is nothing else


@pytest.mark.parametrize("name", ["hire", "metar"])
def test_a_system_starts_from_pretrained_or_from_random_embeddings(umls: FewShotDataset, name: str) -> None:
    sizes = len(umls.graph.entities), 2 * len(umls.graph.relations)
    asked: list[object] = []

    def embeddings(settings: object) -> Embeddings:
        asked.append(settings)
        return Embeddings(*(torch.ones(size, 16) for size in sizes))

    resources = SimpleNamespace(embeddings=embeddings, device=torch.device("cpu"), parts={})

    def start(initial: str) -> torch.Tensor:
        chosen = {"model.dimension": 16, "training.initial": initial, "training.embedding_norm": None}
        settings = RunSettings.of(name).changed(chosen).settings
        trainer: Any = system_class(name).trainer(umls, settings, resources)
        entities: torch.Tensor = trainer.tables["entities"].weights
        return entities

    assert (start("pretrained") == 1).all() and len(asked) == 1
    random = start("random")
    assert len(set(random.flatten().tolist())) > 1_000 and len(asked) == 1  # nothing is pre-trained in vain
    assert torch.equal(random, start("random"))
