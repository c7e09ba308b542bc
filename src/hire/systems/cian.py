"""CIAN (Li et al., 2022): each end of a pair attends to the other's neighbors, and a pair to the references.

The names of the parts are those of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.base import Recipe
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities
from hire.systems.episodic.pairs import PairNetwork, Vectors, over_neighbors
from hire.systems.episodic.settings import EpisodicModelSettings, PairwiseSettings, PairwiseTrainingSettings
from hire.util.ranges import Count, Dropout, Scale


@dataclass(frozen=True)
class CianModelSettings(EpisodicModelSettings):
    """The cross-interaction attention."""

    temperature: Scale = 0.1  # factor of scores before the softmax; learned from here
    max_neighbors: Count = 100  # of each entity, in file order
    neighbor_dropout: Dropout = 0.3  # of the vectors of neighbors and their relations
    dropout: Dropout = 0.2  # of the weights of attention


@dataclass(frozen=True)
class CianSettings(PairwiseSettings):
    """All settings of CIAN."""

    model: CianModelSettings = field(default_factory=CianModelSettings)
    training: PairwiseTrainingSettings = field(default_factory=lambda: PairwiseTrainingSettings(queries=4))


class CianNetwork(PairNetwork):
    """Interactions within and between entities; references are matched as `PairNetwork` does."""

    def __init__(self, settings: CianModelSettings) -> None:
        super().__init__(settings)
        width = settings.dimension
        self.max_neighbors = settings.max_neighbors
        self.neighbor_dropout = settings.neighbor_dropout
        self.relation = TaskRelation(width)
        self.neighbor = nn.Linear(2 * width, width)
        self.within = NeighborAttention(width, settings.dropout)
        self.between = NeighborAttention(width, settings.dropout)
        self.fusion = Fusion(width)
        self.pair = PairLayer(2 * width)
        nn.init.xavier_normal_(self.neighbor.weight)

    def pairs(self, heads: Entities, tails: Entities) -> Tensor:
        """What both ends are to each other, after a feed-forward layer, [tasks, q, n, 2 * dim]."""
        near_heads, near_tails = self._neighborhood(heads), self._neighborhood(tails)
        forward, backward = self.relation(heads.vectors, tails.vectors)
        # Within an entity: the task relation attends to its neighbors by their relations.
        aware_heads = self.fusion(heads.vectors, self.within(forward, near_heads, near_heads.relations))
        aware_tails = self.fusion(tails.vectors, self.within(backward, near_tails, near_tails.relations))
        # Between the entities: each attends to the neighbors of the other one.
        seen_heads = self.fusion(heads.vectors, self.between(aware_tails, near_heads, near_heads.entities))
        seen_tails = self.fusion(tails.vectors, self.between(aware_heads, near_tails, near_tails.entities))
        found: Tensor = self.pair(torch.cat([seen_heads, seen_tails], dim=-1))
        return found

    def _neighborhood(self, entities: Entities) -> Neighborhood:
        """The neighbors of entities, with v_i = relu(W [r_i; e_i] + b) of each that is no padding."""
        near = entities.neighbors
        real = replace(near, relations=near.relations[near.mask], entities=near.entities[near.mask])
        values = F.relu(real.linear(self.neighbor.weight) + self.neighbor.bias)  # [edges, dim]
        rows = (near.mask.flatten().cumsum(0) - 1).clamp_min(0).view(near.mask.shape)
        values = values if len(values) else near.entity_table[:1]  # for padding
        return Neighborhood(
            near.mask,
            Vectors(near.relations, near.relation_table),
            Vectors(near.entities, near.entity_table),
            Vectors(rows * near.mask, values),
        )


class Neighborhood(NamedTuple):
    """The neighbors of some entities."""

    mask: Tensor  # [..., neighbors] bool: False for padding
    relations: Vectors  # r_i
    entities: Vectors  # e_i
    values: Vectors  # v_i


class TaskRelation(nn.Module):
    """The task relation of a pair in both directions: two bilinear maps of head and tail."""

    def __init__(self, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(width, 2 * width, width).uniform_(-bound, bound))

    def forward(self, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """h W t of heads [tasks, q, 1, dim] with tails [tasks, q or 1, n, dim]: two of [tasks, q, n, dim]."""
        maps = heads.squeeze(2) @ self.weight.flatten(1)  # h W, once for each head: [tasks, q, 2 * dim * dim]
        maps = maps.view(*heads.shape[:2], *self.weight.shape[1:])
        forward, backward = (tails @ maps.transpose(-1, -2)).chunk(2, dim=-1)
        return forward, backward


class NeighborAttention(nn.Module):
    """c = W_v (sum of a_i v_i) + b, where a is the softmax of q W k_i over the neighbors of an entity."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.query = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)

    def forward(self, queries: Tensor, near: Neighborhood, keys: Vectors) -> Tensor:
        """What queries [tasks, q, n, dim] of pairs see in the neighbors of one of their ends: [tasks, q, n, dim]."""
        dropout = self.dropout if self.training else 0.0
        found: Tensor = self.value(over_neighbors(self.query(queries), near.mask, keys, near.values, dropout))
        return found


class Fusion(nn.Module):
    """norm(e + relu(W_1 e + W_2 c)) of an entity and what was seen in its neighbors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width, bias=False)
        self.around = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, entities: Tensor, around: Tensor) -> Tensor:
        """Entities [tasks, q or 1, n or 1, dim] in pairs [tasks, q, n, dim]."""
        found: Tensor = self.norm(entities + F.relu(self.own(entities) + self.around(around)))
        return found


class PairLayer(nn.Module):
    """norm(x + W_b relu(W_a x + b))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        for layer in (self.hidden, self.output):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, pairs: Tensor) -> Tensor:
        """Pairs [..., width]."""
        found: Tensor = self.norm(pairs + self.output(F.relu(self.hidden(pairs))))
        return found


class Cian(EpisodicSystem):
    """A trained CIAN."""

    name = "cian"
    summary = "each end of a pair attends to the other's neighbors, and each query weighs the references"
    paper = "Li et al., Learning Inter-Entity-Interaction for Few-Shot Knowledge Graph Completion, EMNLP 2022"
    settings_type: ClassVar[type[CianSettings]] = CianSettings
    network_type: ClassVar[type[CianNetwork]] = CianNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {
        "common": {},
        "published": {
            "model.loss": "margin",
            "model.margin": 5.0,
            "training.steps": 8_000,
            "training.shots": [5],
            "training.regime": "in-train",
            "training.embedding_norm": 1.0,
            "training.batches": "episodes",
            "training.tasks": 1,
            "training.queries": 128,
            "training.negatives": 1,
            "training.inner_negatives": 1,
            "optimizer.learning_rate": 3e-4,
            "optimizer.table_learning_rate": 1e-3,
            "optimizer.tables": "dense",
            "optimizer.final_rate": 0.0,
            "optimizer.warm_up": 1_000,
            "optimizer.ema": None,
            "selection.evaluate_every": 4_000,
            "selection.patience": 10,
        },
    }
