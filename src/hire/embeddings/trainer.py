"""Embeddings of the background graph: entities and relations, inverse relations included."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.embeddings.scores import COMPLEX, TRANSLATIONAL, EmbeddingName, logits, widths
from hire.embeddings.tables import RowTable
from hire.errors import HireError
from hire.util.randomness import random_stream


@dataclass(frozen=True)
class EmbeddingSettings:
    """How embeddings are learned."""

    model: EmbeddingName = "transe"
    dimension: int = 100
    batch_size: int = 1024
    negatives: int = 512  # entities drawn for each batch, shared by all of its triples
    steps: int = 20_000  # at most
    passes: int = 100  # over all triples, in both directions, at most: a small graph needs fewer steps
    rate: float = 6e-2  # of row-wise Adam, falling linearly to 2%
    margin: float = 9.0  # of the translational models
    adversarial: float = 1.0  # how much the harder negatives count more
    regularization: float = 1e-3  # of complex-n3, on the cubes of absolute values
    seed: int = 0


@dataclass(frozen=True)
class Embeddings:
    """What was learned: one vector for each entity, and one for each relation and each inverse."""

    entities: Tensor  # [entities, width]: for transd, embedding and projection behind one another
    relations: Tensor  # [2 * relations, width]: for transh and transd, translation and direction


class _NegativeLoss(torch.autograd.Function):
    """`_negative_loss` of TransE and its gradient at once: half the time of the same from smaller functions."""

    @staticmethod
    def forward(ctx: Any, moved: Tensor, negatives: Tensor, margin: float, adversarial: float) -> Tensor:
        squares = moved.square().sum(-1, keepdim=True) + negatives.square().sum(-1)
        squares = squares.addmm_(moved, negatives.T, alpha=-2).clamp_(min=1e-8)  # [batch, negatives]
        slope = squares.rsqrt()
        scores = squares.mul_(slope).neg_().add_(margin)
        weight = torch.softmax(adversarial * scores, dim=-1) if adversarial != 1 else None
        odds = scores.exp_()  # at most e to the margin
        if weight is None:
            weight = odds / odds.sum(dim=-1, keepdim=True).clamp_min(1e-30)
        slope.mul_(weight).mul_(odds)
        slope.div_(odds.add_(1)).mul_(-1 / len(moved))  # of the loss, by the distance, over the distance
        loss = torch.dot(weight.view(-1), odds.log_().view(-1)) / len(moved)
        of_moved = moved * slope.sum(1, keepdim=True) - slope @ negatives
        of_negatives = negatives * slope.sum(0)[:, None] - slope.T @ moved
        ctx.save_for_backward(of_moved, of_negatives)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_moved, of_negatives = ctx.saved_tensors
        return of_moved * gradients[0], of_negatives * gradients[0], None, None


def _cubes(vectors: Tensor) -> Tensor:
    real, imaginary = vectors.chunk(2, dim=-1)
    return (real.square() + imaginary.square()).clamp_min(1e-12).pow(1.5).sum(-1).mean()


class EmbeddingTrainer:
    """Learns embeddings of a graph step by step; a step depends on the seed and its number alone."""

    def __init__(self, graph: KnowledgeGraph, settings: EmbeddingSettings, device: torch.device | str = "cpu") -> None:
        if settings.model in COMPLEX and settings.dimension % 2:
            raise HireError(
                f"{settings.model} has a real and an imaginary half: {settings.dimension} dimensions are odd",
                remedy="choose an even number",
            )
        self.graph = graph
        self.settings = settings
        self.step = 0
        self._triples = np.asarray(graph.triples)
        self.steps = min(settings.steps, math.ceil(settings.passes * 2 * len(self._triples) / settings.batch_size))
        generator = torch.Generator().manual_seed(settings.seed)
        scale = (settings.margin + 2) / settings.dimension if settings.model in TRANSLATIONAL else 0.1

        def table(rows: int, width: int) -> RowTable:
            weights = torch.empty(rows, width).uniform_(-scale, scale, generator=generator)
            weights[:, settings.dimension :] *= 0.1  # projections begin small: the model begins as TransE
            return RowTable(weights.to(device))

        entity_width, relation_width = widths(settings.model, settings.dimension)
        self.entities = table(len(graph.entities), entity_width)
        self.relations = table(2 * len(graph.relations), relation_width)

    def tables(self) -> dict[str, RowTable]:
        """The tables by name, for checkpoints."""
        return {"entities": self.entities, "relations": self.relations}

    def train_step(self) -> float:
        """One step; returns its loss."""
        settings, graph = self.settings, self.graph
        generator = random_stream(settings.seed, "embeddings", self.step)
        chosen = self._triples[generator.integers(0, len(self._triples), settings.batch_size)].astype(np.int64)
        inverse = generator.random(settings.batch_size) < 0.5
        heads, tails = np.where(inverse, chosen[:, 2], chosen[:, 0]), np.where(inverse, chosen[:, 0], chosen[:, 2])
        kinds = chosen[:, 1] + inverse * len(graph.relations)
        negatives = generator.integers(0, len(graph.entities), settings.negatives)
        rate = settings.rate * max(0.02, 1 - self.step / self.steps)
        loss = _step(settings, self.entities, self.relations, (heads, kinds, tails, negatives), rate)
        self.step += 1
        return loss

    def embeddings(self) -> Embeddings:
        """What has been learned so far."""
        return Embeddings(self.entities.weights.cpu(), self.relations.weights.cpu())


def pretrain(graph: KnowledgeGraph, settings: EmbeddingSettings) -> Embeddings:
    """Learn embeddings of a graph; the same seed gives the same embeddings on the same machine."""
    trainer = EmbeddingTrainer(graph, settings)
    while trainer.step < trainer.steps:
        trainer.train_step()
    return trainer.embeddings()


def _step(
    settings: EmbeddingSettings,
    entities: RowTable,
    relations: RowTable,
    batch: tuple[NDArray[np.int64], ...],
    rate: float,
) -> float:
    heads, kinds, tails, negatives = batch
    size = len(heads)
    distinct = (
        *np.unique(np.concatenate([heads, tails, negatives]), return_inverse=True),
        *np.unique(kinds, return_inverse=True),
    )
    entity_numbers, places, relation_numbers, kind_places = (
        torch.from_numpy(numbers).to(entities.weights.device) for numbers in distinct
    )
    of_entities, of_relations = entities.rows(entity_numbers), relations.rows(relation_numbers)
    vectors = F.embedding(places, of_entities)
    head, tail, false = vectors[:size], vectors[size : 2 * size], vectors[2 * size :]
    relation = F.embedding(kind_places, of_relations)
    alone = (vectors[:, None] for vectors in (head, relation, tail))  # each triple a group of its own
    positive = logits(settings.model, settings.margin, *alone)[:, 0, 0]  # [batch]
    if settings.model in TRANSLATIONAL:
        loss = (_negative_loss(settings, head, relation, false) - F.logsigmoid(positive).mean()) / 2
    else:
        negative = logits(settings.model, settings.margin, head, relation, false)  # [batch, negatives]
        correction = math.log(len(entities.weights) / settings.negatives)
        loss = (torch.logsumexp(torch.cat([positive[:, None], negative + correction], -1), -1) - positive).mean()
        if settings.model == "complex-n3":
            loss = loss + settings.regularization * (_cubes(head) + _cubes(relation) + _cubes(tail))
    of_entities, of_relations = torch.autograd.grad(loss, [of_entities, of_relations])
    entities.update(entity_numbers, of_entities, rate)
    relations.update(relation_numbers, of_relations, rate)
    return loss.item()


def _negative_loss(settings: EmbeddingSettings, heads: Tensor, relations: Tensor, negatives: Tensor) -> Tensor:
    """The loss of a translational model for negatives shared by a batch, the harder ones weighted more."""
    if settings.model == "transe":
        loss = _NegativeLoss.apply(heads + relations, negatives, settings.margin, settings.adversarial)  # type: ignore[no-untyped-call]
        return cast(Tensor, loss)
    scores = logits(settings.model, settings.margin, heads, relations, negatives)
    weight = torch.softmax(settings.adversarial * scores.detach(), dim=-1)
    return (weight * F.softplus(scores)).sum(-1).mean()
