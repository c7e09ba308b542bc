"""GANA (Niu et al., 2021): references seen through their neighbors, a Bi-LSTM over them, and a hyperplane by MAML.

The names of the parts are those of the paper's sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.embeddings.distances import normal
from hire.systems.base import Recipe
from hire.systems.episodic.fused import mapped_neighbors, over_neighbors
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities, Pairs, dropout, pair_distances
from hire.systems.episodic.refined import RefinedModelSettings, RefinedNetwork
from hire.systems.episodic.settings import EpisodicSettings
from hire.util.ranges import Count, Dropout, Few, Size


@dataclass(frozen=True)
class GanaModelSettings(RefinedModelSettings):
    """The neighbor aggregator and the encoder of references."""

    max_neighbors: Count = 50  # of the head and of the tail of a reference, in file order
    dropout: Dropout = 0.5  # of the vectors that the aggregator sees
    hidden: Size = 200  # size of the LSTM in each direction
    layers: Few = 2  # of the LSTM


@dataclass(frozen=True)
class GanaSettings(EpisodicSettings):
    """All settings of GANA."""

    model: GanaModelSettings = field(default_factory=GanaModelSettings)


class Hyperplane(NamedTuple):
    """A relation of MTransH."""

    translation: Tensor  # [tasks, dim]: r
    direction: Tensor  # [tasks, dim]: P_r, the normal of its hyperplane, of any length


class GanaNetwork(RefinedNetwork):
    """The aggregator, the encoder, and the hyperplane that every relation starts from."""

    neighbors_of_queries = False

    def __init__(self, settings: GanaModelSettings) -> None:
        super().__init__(settings)
        self.max_neighbors = settings.max_neighbors
        self.rate = settings.dropout
        self.aggregator = NeighborAggregator(settings.dimension)
        self.encoder = ReferenceEncoder(settings.dimension, settings.hidden, settings.layers)
        self.direction = nn.Parameter(0.1 * torch.randn(settings.dimension))

    def seen(self, references: Pairs) -> Pairs:
        """References as the aggregator sees them in training: the vectors of entities and relations after dropout."""
        heads, tails = references.heads, references.tails
        if not self.training or not self.rate:
            return references
        if heads.table is not heads.neighbors.entity_table:
            raise ValueError("entities and their neighbors must be of one table")
        entities, relations = (dropout(table, self.rate) for table in (heads.table, heads.neighbors.relation_table))

        def changed(of: Entities) -> Entities:
            around = replace(of.neighbors, relation_table=relations, entity_table=entities)
            return Entities(of.rows, entities, around)

        return references._replace(heads=changed(heads), tails=changed(tails))

    def learn(self, references: Pairs) -> Hyperplane:
        """The relations of references [tasks, shots] before they are refined."""
        heads, tails = self.aggregator(references.heads), self.aggregator(references.tails)  # h', t'
        translation = self.encoder(torch.cat([heads, tails], dim=-1))  # of s_i = [h'; t']
        return Hyperplane(translation, self.direction.expand_as(translation))

    def score(self, relation: Hyperplane, heads: Tensor, tails: Tensor) -> Tensor:
        """MTransH: -||h_perp + r - t_perp||, [tasks, q, n]."""
        translation, direction = (part[:, None, None] for part in relation)
        unit = normal(direction)
        return -pair_distances(_on_plane(heads, unit) + translation, _on_plane(tails, unit))


def _on_plane(entities: Tensor, unit: Tensor) -> Tensor:
    """e_perp = e - (w . e) w."""
    return entities - (entities * unit).sum(dim=-1, keepdim=True) * unit


class NeighborAggregator(nn.Module):
    """The gated and attentive neighbor aggregator: e' = g c + (1 - g) e, where c is the attended neighborhood."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.neighbor = nn.Linear(2 * dimension, dimension)
        self.attention = nn.Linear(dimension, 1)
        self.gate = nn.Linear(dimension, 1)
        nn.init.xavier_normal_(self.neighbor.weight)
        nn.init.xavier_normal_(self.attention.weight)

    def forward(self, entities: Entities) -> Tensor:
        """Entities [...] with their neighbors: [..., dim]."""
        near = entities.neighbors
        tuples = mapped_neighbors(near, self.neighbor, F.leaky_relu)  # c_i
        attention = self.attention.weight[0].expand(*entities.shape, -1)  # a softmax does not see the bias
        around = over_neighbors(attention, near.mask, tuples, tuples)  # c: [..., dim]
        gate = torch.sigmoid(self.gate(around))  # g: [..., 1]
        found: Tensor = gate * around + (1 - gate) * entities.vectors
        return found


class ReferenceEncoder(nn.Module):
    """The attentive Bi-LSTM: its outputs, weighted by their product with its last state, are projected."""

    def __init__(self, dimension: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 * dimension, hidden, layers, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * hidden, dimension)

    def forward(self, references: Tensor) -> Tensor:
        """The relations [tasks, dim] of references [tasks, shots, 2 * dim]."""
        outputs, (last, _) = self.lstm(references)  # m_i: [tasks, shots, 2 * hidden]
        final = torch.cat([last[-2], last[-1]], dim=-1)  # of both directions, [tasks, 2 * hidden]
        weights = torch.softmax(outputs @ final.unsqueeze(-1), dim=1)  # [tasks, shots, 1]
        relation: Tensor = self.output((weights * outputs).sum(dim=1))
        return relation


class Gana(EpisodicSystem):
    """A trained GANA."""

    name = "gana"
    summary = "a Bi-LSTM over references seen through gated, attended neighbors; a hyperplane refined by MAML"
    paper = (
        "Niu et al., Relational Learning with Gated and Attentive Neighbor Aggregator for Few-Shot Knowledge Graph "
        "Completion, SIGIR 2021"
    )
    settings_type: ClassVar[type[GanaSettings]] = GanaSettings
    network_type: ClassVar[type[GanaNetwork]] = GanaNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any]]] = {
        "common": {},
        "published": {
            "model.loss": "margin",
            "model.reference_weight": 1.0,
            "training.steps": 20_000,
            "training.shots": [5],
            "training.regime": "in-train",
            "training.min_facts": 11,
            "training.embedding_norm": 1.0,
            "training.batches": "episodes",
            "training.tasks": 128,
            "training.queries": 3,
            "training.negatives": 1,
            "training.inner_negatives": 1,
            "optimizer.learning_rate": 1e-3,
            "optimizer.table_learning_rate": 1e-3,
            "optimizer.tables": "dense",
            "optimizer.final_rate": 1.0,
            "optimizer.ema": None,
            "optimizer.clip": None,
            "selection.evaluate_every": 1_000,
            "selection.patience": 10,
        },
    }
