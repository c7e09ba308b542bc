"""MetaR (Chen et al., 2019): a relation is the mean of what an MLP makes of its references, refined by one gradient.

Equation numbers are those of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hire.systems.base import Recipe
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Pairs, pair_distances
from hire.systems.episodic.refined import RefinedModelSettings, RefinedNetwork
from hire.systems.episodic.settings import EpisodicSettings
from hire.util.ranges import Count, Dropout, Size


@dataclass(frozen=True)
class MetaRModelSettings(RefinedModelSettings):
    """The relation-meta learner."""

    hidden: tuple[Size, ...] = (500, 200)  # sizes of its hidden layers
    dropout: Dropout = 0.5  # after each hidden layer
    normalized: bool = True  # each layer's outputs by their mean and variance over the batch
    settled_after: Count | None = None  # steps; from then on dropout and means are as in evaluation, None for never


@dataclass(frozen=True)
class MetaRSettings(EpisodicSettings):
    """All settings of MetaR."""

    model: MetaRModelSettings = field(default_factory=MetaRModelSettings)


class MetaRelation(NamedTuple):
    """A relation of MetaR."""

    translation: Tensor  # [tasks, dim]: R


class MetaRNetwork(RefinedNetwork):
    """The relation-meta learner; embeddings are learned with it."""

    def __init__(self, settings: MetaRModelSettings) -> None:
        super().__init__(settings)
        sizes = [2 * settings.dimension, *settings.hidden, settings.dimension]
        layers: list[nn.Module] = []
        for i, (width, outputs) in enumerate(pairwise(sizes)):
            linear = nn.Linear(width, outputs)
            nn.init.xavier_normal_(linear.weight)
            layers.append(linear)
            if settings.normalized:
                layers.append(BatchScale())
            if i < len(settings.hidden):
                layers += [nn.LeakyReLU(), nn.Dropout(settings.dropout)]
        self.learner = nn.Sequential(*layers)
        self.settled_after = settings.settled_after
        self.noisy = settings.normalized or settings.dropout > 0  # whether the other tasks, or chance, play a part

    def at_step(self, step: int) -> None:
        """From some step on, drop nothing, and keep the means and variances that were found until then."""
        if self.settled_after is not None and step >= self.settled_after:
            self.learner.eval()

    @property
    def tasks_apart(self) -> bool:
        """Not where means are taken over all tasks, or where it is drawn for each task what to drop."""
        return not (self.noisy and self.learner.training)

    def learn(self, references: Pairs) -> MetaRelation:
        """R of the references (Eq. 1-2)."""
        pairs = torch.cat([references.heads.vectors, references.tails.vectors], dim=-1)  # [tasks, shots, 2 * dim]
        return MetaRelation(self.learner(pairs).mean(dim=1))

    def score(self, relation: MetaRelation, heads: Tensor, tails: Tensor) -> Tensor:
        """-||h + R - t||, [tasks, q, n] (Eq. 3, 7)."""
        return -pair_distances(heads + relation.translation[:, None, None], tails)


class BatchScale(nn.Module):
    """A batch norm with one mean and one variance for all dimensions and references of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalize [tasks, shots, dim]."""
        normed: Tensor = self.norm(hidden.flatten(0, 1).unsqueeze(1))
        return normed.view_as(hidden)


class MetaR(EpisodicSystem):
    """A trained MetaR."""

    name = "metar"
    summary = "an MLP over the references gives the relation, refined by the gradient of their loss"
    paper = "Chen et al., Meta Relational Learning for Few-Shot Link Prediction in Knowledge Graphs, EMNLP 2019"
    settings_type: ClassVar[type[MetaRSettings]] = MetaRSettings
    network_type: ClassVar[type[MetaRNetwork]] = MetaRNetwork
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any]]] = {
        "common": {},
        "published": {  # in-train; for pre-train set training.regime=tasks, .initial=pretrained and .embedding_norm=1
            "model.loss": "margin",
            "model.dropout": 0.0,
            "model.normalized": False,
            "model.reference_weight": 1.0,
            "model.training_inner_rate": 5 / 1_024,
            "training.steps": 30_000,
            "training.shots": [5],
            "training.regime": "in-train",
            "training.min_facts": 11,
            "training.initial": "random",
            "training.embedding_norm": None,
            "training.batches": "episodes",
            "training.tasks": 1_024,
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
            "selection.patience": 30,
        },
    }
