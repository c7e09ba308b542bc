"""FSRL (Zhang et al., 2020): attended neighbors, a recurrent autoencoder over the references, a matching LSTM.

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
from hire.systems.episodic.network import Entities, Pairs, dropped_out
from hire.systems.episodic.settings import PairwiseSettings
from hire.util.ranges import Count, Weight


@dataclass(frozen=True)
class FsrlModelSettings(MatchingModelSettings):
    """The encoder of entities, the aggregation of references, and how a pair is matched."""

    max_neighbors: Count = 30  # of each entity, in file order
    reconstruction_weight: Weight = 1e-4  # gamma, of the autoencoder's loss in the objective


@dataclass(frozen=True)
class FsrlSettings(PairwiseSettings):
    """All settings of FSRL."""

    model: FsrlModelSettings = field(default_factory=FsrlModelSettings)


class FsrlNetwork(MatchingNetwork):
    """Encodes heterogeneous neighbors and aggregates the reference set; matches as `MatchingNetwork` does."""

    def __init__(self, settings: FsrlModelSettings) -> None:
        super().__init__(settings)
        self.reconstruction_weight = settings.reconstruction_weight
        self.attention = attention_row(2 * settings.dimension)  # u_rt W_rt
        self.aggregator = ReferenceAggregator(2 * settings.dimension)

    def encode(self, entities: Entities) -> Tensor:
        """f(h) = tanh(sum of a_i e_i), where a is the softmax of u_rt (W_rt [r_i; e_i] + b_rt), [..., dim]."""
        near = entities.neighbors
        scores = near.linear(self.attention.weight).squeeze(-1)  # [..., n]
        return torch.tanh(weighted_neighbors(near, scores, Vectors(near.entities, near.entity_table)))

    def adapt(self, references: Pairs) -> Tensor:
        """f(R) of the reference set, [tasks, 2 * dim]."""
        return self._aggregated(references)[0]

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """L_rank + gamma L_re, after dropout."""
        references, queries = dropped_out(self.matching.dropout, references, queries)
        relation, reconstruction = self._aggregated(references)
        return self.losses(relation, queries).mean() + self.reconstruction_weight * reconstruction.mean()

    def _aggregated(self, references: Pairs) -> tuple[Tensor, Tensor]:
        relation, reconstruction = self.aggregator(self.encoded_pairs(references))  # of E_k
        return relation, reconstruction


class ReferenceAggregator(nn.Module):
    """A recurrent autoencoder: what its encoder makes of each reference is weighted and summed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTMCell(width, width)
        self.attention = attention_row(width)  # u_R W_R

    def forward(self, references: Tensor) -> tuple[Tensor, Tensor]:
        """f(R) [tasks, width] and L_re [tasks] of references E [tasks, shots, width]."""
        states, (hidden, cell) = self.encoder(references)  # m_k: [tasks, shots, width]
        residual = states + references  # m'_k
        weights = torch.softmax(self.attention(residual), dim=1)  # beta: [tasks, shots, 1]
        decoded = self._decoded(hidden[0], cell[0], references.shape[1])
        reconstruction = (decoded - references).square().sum(dim=(1, 2))
        return (weights * residual).sum(dim=1), reconstruction

    def _decoded(self, hidden: Tensor, cell: Tensor, shots: int) -> Tensor:
        """d_k: from the last state of the encoder, the last reference first, each step reading the one before."""
        decoded = []
        for _ in range(shots):
            hidden, cell = self.decoder(hidden, (hidden, cell))
            decoded.append(hidden)
        return torch.stack(decoded[::-1], dim=1)  # [tasks, shots, width]


def attention_row(width: int) -> nn.Linear:
    """u W as one row: no function lies between them, and a softmax does not see u b."""
    row = nn.Linear(width, 1, bias=False)
    nn.init.xavier_normal_(row.weight)
    return row


class Fsrl(EpisodicSystem):
    """A trained FSRL."""

    name = "fsrl"
    summary = "an LSTM compares a pair with references that an autoencoder read, all seen through attended neighbors"
    paper = "Zhang et al., Few-Shot Knowledge Graph Completion, AAAI 2020"
    settings_type: ClassVar[type[FsrlSettings]] = FsrlSettings
    network_type: ClassVar[type[FsrlNetwork]] = FsrlNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {
        "common": {},
        "published": {
            "model.loss": "margin",
            "model.margin": 5.0,
            "model.similarity": "product",
            "model.dropout": 0.5,
            "model.pair_dropout": 0.5,
            "embedding.model": "complex",
            "training.steps": 30_000,
            "training.shots": [5],
            "training.regime": "tasks",
            "training.embedding_norm": 10.0,
            "training.batches": "episodes",
            "training.tasks": 1,
            "training.queries": 128,
            "training.negatives": 1,
            "training.inner_negatives": 1,
            "optimizer.learning_rate": 1e-4,
            "optimizer.table_learning_rate": 0.0,
            "optimizer.final_rate": 1.0,
            "optimizer.ema": None,
            "optimizer.clip": None,
            "selection.evaluate_every": 10_000,
            "selection.patience": 10,
        },
    }
