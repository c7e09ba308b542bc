"""FAAN (Sheng et al., 2020): neighbors attended by the task relation, a transformer over pairs, adaptive references.

The names of the parts are those of the paper's sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.base import Recipe
from hire.systems.episodic.fused import Vectors, attend_tokens, over_neighbors
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities, dropout
from hire.systems.episodic.pairs import PairNetwork
from hire.systems.episodic.settings import (
    EpisodicModelSettings,
    PairwiseSettings,
    PairwiseTrainingSettings,
    check_heads,
)
from hire.util.ranges import Count, Dropout, Few, Scale, Size


@dataclass(frozen=True)
class FaanModelSettings(EpisodicModelSettings):
    """The adaptive neighbor encoder and the transformer."""

    temperature: Scale = 0.1  # factor of scores before the softmax; learned from here
    max_neighbors: Count = 50  # of each entity, in file order
    neighbor_dropout: Dropout = 0.3  # of the vectors of neighbors and their relations
    layers: Few = 3  # of the transformer
    heads: Few = 4  # of its attention
    hidden: Size = 200  # size of its feed-forward layers
    dropout: Dropout = 0.2  # after its attention and its feed-forward layers


@dataclass(frozen=True)
class FaanSettings(PairwiseSettings):
    """All settings of FAAN."""

    model: FaanModelSettings = field(default_factory=FaanModelSettings)
    training: PairwiseTrainingSettings = field(default_factory=lambda: PairwiseTrainingSettings(queries=3))


class FaanNetwork(PairNetwork):
    """The neighbor encoder and the pair encoder; references are matched as `PairNetwork` does."""

    def __init__(self, settings: FaanModelSettings) -> None:
        super().__init__(settings)
        self.max_neighbors = settings.max_neighbors
        self.neighbor_dropout = settings.neighbor_dropout
        self.encoder = NeighborEncoder(settings.dimension)
        self.transformer = PairTransformer(settings)

    def pairs(self, heads: Entities, tails: Entities) -> Tensor:
        """The relation slot of (h, slot, t) after the transformer, [tasks, q, n, dim]."""
        relation = tails.vectors - heads.vectors  # r = t - h: [tasks, q, n, dim]
        keys = self.encoder.keys(heads)
        ends = (self.encoder(end, relation, keys).flatten(0, 2) for end in (heads, tails))
        found: Tensor = self.transformer(*ends)
        return found.view(relation.shape)


class NeighborEncoder(nn.Module):
    """The adaptive neighbor encoder: f(e) = norm(e + relu(W_1 e + W_2 c)), where c is what r sees in the neighbors."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.attention = nn.Linear(dimension, dimension, bias=False)  # W of r W r_nbr; its bias b does not matter
        self.own = nn.Linear(dimension, dimension, bias=False)  # W_1
        self.around = nn.Linear(dimension, dimension, bias=False)  # W_2
        self.norm = nn.LayerNorm(dimension)

    def keys(self, entities: Entities) -> Tensor:
        """W r_nbr of all relations of neighbors: fewer than there are pairs, so that W falls on them, not on r."""
        return entities.neighbors.relation_table @ self.attention.weight

    def forward(self, entities: Entities, relation: Tensor, keys: Tensor) -> Tensor:
        """Heads [tasks, q, 1] or tails [tasks, q or 1, n] of pairs with relations [tasks, q, n, dim]: as relations."""
        near, vectors = entities.neighbors, entities.vectors
        values = Vectors(near.entities, near.entity_table)
        around = over_neighbors(relation, near.mask, Vectors(near.relations, keys), values)  # c: sum of a_i e_i
        found: Tensor = self.norm(vectors + F.relu(self.own(vectors) + self.around(around)))
        return found


class PairTransformer(nn.Module):
    """The transformer encoder for entity pairs: of head, relation slot and tail, the slot's output is the pair."""

    def __init__(self, settings: FaanModelSettings) -> None:
        super().__init__()
        self.slot = nn.Parameter(torch.randn(settings.dimension))
        self.positions = nn.Parameter(0.1 * torch.randn(3, settings.dimension))
        self.layers = nn.ModuleList(TransformerLayer(settings) for _ in range(settings.layers))

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """The pairs [m, dim] of heads and tails [m, dim]."""
        sequence = torch.stack([heads, self.slot.expand_as(heads), tails], dim=1) + self.positions  # [m, 3, dim]
        *first, last = self.layers
        for layer in first:
            sequence = layer(sequence, sequence)
        found: Tensor = last(sequence[:, 1:2], sequence).squeeze(1)  # nothing but the slot is needed
        return found


class TransformerLayer(nn.Module):
    """Multi-head attention and a feed-forward layer, each with a residual and a layer norm."""

    def __init__(self, settings: FaanModelSettings) -> None:
        super().__init__()
        width = settings.dimension
        check_heads(width, settings.heads)
        self.heads = settings.heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, settings.hidden),
            nn.GELU(),
            nn.Linear(settings.hidden, width),
        )
        self.dropout = settings.dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, queries: Tensor, sequence: Tensor) -> Tensor:
        """Some places [m, q, dim] of sequences [m, 3, dim], after they have seen all of them: [m, q, dim]."""
        seen = attend_tokens(self.query(queries), self.key_value(sequence), self.heads)
        middle = self.norms[0](queries + self._dropped_out(self.output(seen)))
        found: Tensor = self.norms[1](middle + self._dropped_out(self.feed_forward(middle)))
        return found

    def _dropped_out(self, values: Tensor) -> Tensor:
        return dropout(values, self.dropout if self.training else 0.0)


class Faan(EpisodicSystem):
    """A trained FAAN."""

    name = "faan"
    summary = "a transformer over pairs whose ends see the neighbors that matter; each query weighs the references"
    paper = "Sheng et al., Adaptive Attentional Network for Few-Shot Knowledge Graph Completion, EMNLP 2020"
    settings_type: ClassVar[type[FaanSettings]] = FaanSettings
    network_type: ClassVar[type[FaanNetwork]] = FaanNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {
        "common": {},
        "published": {
            "model.loss": "margin",
            "model.margin": 5.0,
            "training.steps": 70_000,
            "training.shots": [5],
            "training.regime": "tasks",
            "training.embedding_norm": 1.0,
            "training.batches": "episodes",
            "training.tasks": 1,
            "training.queries": 128,
            "training.negatives": 1,
            "training.inner_negatives": 1,
            "optimizer.learning_rate": 3e-4,
            "optimizer.table_learning_rate": 0.0,
            "optimizer.final_rate": 0.0,
            "optimizer.warm_up": 1_000,
            "optimizer.ema": None,
            "selection.evaluate_every": 10_000,
            "selection.patience": 10,
        },
    }
