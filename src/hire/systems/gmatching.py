"""GMatching (Xiong et al., 2018): an entity is the mean of its neighbors; an LSTM matches a pair with the reference.

The names of the parts are those of the paper's sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hire.systems.base import Recipe
from hire.systems.episodic.fused import Vectors, weighted_neighbors
from hire.systems.episodic.matching import MatchingModelSettings, MatchingNetwork
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities, Pairs
from hire.systems.episodic.settings import PairwiseSettings


@dataclass(frozen=True)
class GMatchingSettings(PairwiseSettings):
    """All settings of GMatching."""

    model: MatchingModelSettings = field(default_factory=MatchingModelSettings)


class GMatchingNetwork(MatchingNetwork):
    """The neighbor encoder; the matching processor is that of `MatchingNetwork`."""

    def __init__(self, settings: MatchingModelSettings) -> None:
        super().__init__(settings)
        self.neighbor = nn.Linear(2 * settings.dimension, settings.dimension)
        nn.init.xavier_normal_(self.neighbor.weight)
        nn.init.zeros_(self.neighbor.bias)

    def encode(self, entities: Entities) -> Tensor:
        """The neighbor encoder: f(N_e) = tanh(mean of W_c [v_r; v_e] + b_c), [..., dim]."""
        near = entities.neighbors
        even = torch.zeros_like(near.mask, dtype=near.entity_table.dtype)  # scores that weigh all neighbors alike
        tables = Vectors(near.relations, near.relation_table), Vectors(near.entities, near.entity_table)
        mean = torch.cat([weighted_neighbors(near, even, table) for table in tables], dim=-1)
        # W_c is linear: of the mean, not the mean of all.
        return torch.tanh(self.neighbor(mean))

    def adapt(self, references: Pairs) -> Tensor:
        """s = [f(N_h); f(N_t)], the mean over the references if there are several, [tasks, 2 * dim]."""
        return self.encoded_pairs(references).mean(dim=1)


class GMatching(EpisodicSystem):
    """A trained GMatching."""

    name = "gmatching"
    summary = "an LSTM compares a pair with the mean of the references, all seen through the mean of their neighbors"
    paper = "Xiong et al., One-Shot Relational Learning for Knowledge Graphs, EMNLP 2018"
    settings_type: ClassVar[type[GMatchingSettings]] = GMatchingSettings
    network_type: ClassVar[type[GMatchingNetwork]] = GMatchingNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {
        "common": {},
        "published": {
            "model.loss": "margin",
            "model.margin": 5.0,
            "model.similarity": "product",
            "model.dropout": 0.5,
            "model.pair_dropout": 0.2,
            "embedding.model": "complex",
            "training.steps": 40_000,
            "training.shots": [1],
            "training.regime": "tasks",
            "training.embedding_norm": 10.0,
            "training.batches": "episodes",
            "training.tasks": 1,
            "training.queries": 128,
            "training.negatives": 1,
            "training.inner_negatives": 1,
            "optimizer.learning_rate": 1e-3,
            "optimizer.table_learning_rate": 1e-3,
            "optimizer.tables": "dense",
            "optimizer.final_rate": 1.0,
            "optimizer.ema": None,
            "optimizer.clip": None,
            "selection.evaluate_every": 10_000,
            "selection.patience": 10,
        },
    }
