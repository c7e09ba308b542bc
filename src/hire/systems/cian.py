"""CIAN (Li et al., 2022): each end of a pair attends to the other's neighbors, and a pair to the references.

The names of the parts are those of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.base import Recipe
from hire.systems.episodic.fused import Vectors, mapped_neighbors, over_neighbors
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities
from hire.systems.episodic.pairs import PairNetwork
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

    def encode(self, entities: Entities) -> Surrounded:
        """Entities with v_i = relu(W [r_i; e_i] + b) of each neighbor."""
        return Surrounded(entities, mapped_neighbors(entities.neighbors, self.neighbor, F.relu))

    def as_heads(self, heads: Surrounded) -> Heads:
        """Heads [tasks, q, 1] with h W of both directions."""
        return Heads(heads, self.relation.maps(heads.entities.vectors))

    def pairs(self, heads: Heads, tails: Surrounded) -> Tensor:
        """What both ends are to each other, after a feed-forward layer, [tasks, q, n, 2 * dim]."""
        head, tail = heads.heads.entities.vectors, tails.entities.vectors
        forward, backward = self.relation(heads.maps, tail)
        # Within an entity: the task relation attends to its neighbors by their relations.
        aware_heads = self.fusion(head, self.within, self.within.by_relations(forward, heads.heads))
        aware_tails = self.fusion(tail, self.within, self.within.by_relations(backward, tails))
        # Between the entities: each attends to the neighbors of the other one.
        seen_heads = self.fusion(head, self.between, self.between.by_entities(aware_tails, heads.heads))
        seen_tails = self.fusion(tail, self.between, self.between.by_entities(aware_heads, tails))
        found: Tensor = self.pair(torch.cat([seen_heads, seen_tails], dim=-1))
        return found


@dataclass(frozen=True)
class Surrounded:
    """Entities with the values of their neighbors; an index selects from the leading dimensions."""

    entities: Entities
    values: Vectors  # v_i

    def __getitem__(self, index: Any) -> Surrounded:
        return Surrounded(self.entities[index], Vectors(self.values.rows[index], self.values.table))


class Heads(NamedTuple):
    """Heads, and what their task relations with any tail are made of."""

    heads: Surrounded
    maps: Tensor  # [tasks, q, 2 * dim, dim]: h W


class TaskRelation(nn.Module):
    """The task relation of a pair in both directions: two bilinear maps of head and tail."""

    def __init__(self, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(width, 2 * width, width).uniform_(-bound, bound))

    def maps(self, heads: Tensor) -> Tensor:
        """h W, once for each head [tasks, q, 1, dim]: [tasks, q, 2 * dim, dim]."""
        return (heads.squeeze(2) @ self.weight.flatten(1)).view(*heads.shape[:2], *self.weight.shape[1:])

    def forward(self, maps: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """h W t with tails [tasks, q or 1, n, dim]: two of [tasks, q, n, dim]."""
        if tails.shape[1] == maps.shape[1]:
            both = tails @ maps.transpose(-1, -2)  # [tasks, q, n, 2 * dim]
        else:  # shared by the heads of a task
            both = tails.squeeze(1) @ maps.flatten(1, 2).transpose(-1, -2)  # [tasks, n, q * 2 * dim]
            both = both.view(*both.shape[:2], *maps.shape[1:3]).transpose(1, 2)
        forward, backward = both.chunk(2, dim=-1)
        return forward, backward


class NeighborAttention(nn.Module):
    """c = W_v (sum of a_i v_i) + b, where a is the softmax of q W k_i over the neighbors of an entity.

    W_v is left to `Fusion`, whose own matrix follows it.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.query = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)

    def by_relations(self, queries: Tensor, of: Surrounded) -> Tensor:
        """The sum that queries [tasks, q, n, dim] of pairs see in the neighbors of one of their ends, by r_i."""
        near = of.entities.neighbors
        keys = near.relation_table @ self.query.weight  # of fewer rows than there are queries
        return self._seen(queries, of, Vectors(near.relations, keys))

    def by_entities(self, queries: Tensor, of: Surrounded) -> Tensor:
        """The same, by e_i."""
        near = of.entities.neighbors
        return self._seen(self.query(queries), of, Vectors(near.entities, near.entity_table))

    def _seen(self, queries: Tensor, of: Surrounded, keys: Vectors) -> Tensor:
        return over_neighbors(
            queries, of.entities.neighbors.mask, keys, of.values, self.dropout if self.training else 0.0
        )


class Fusion(nn.Module):
    """norm(e + relu(W_1 e + W_2 c)) of an entity and what was seen in its neighbors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width, bias=False)
        self.around = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, entities: Tensor, attention: NeighborAttention, seen: Tensor) -> Tensor:
        """Entities [tasks, q or 1, n or 1, dim] in pairs [tasks, q, n, dim] that saw so much of the neighbors."""
        around = self.around.weight @ attention.value.weight  # of c = W_v seen + b
        shift = self.around(attention.value.bias)
        found: Tensor = self.norm(entities + F.relu(self.own(entities) + F.linear(seen, around, shift)))
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
