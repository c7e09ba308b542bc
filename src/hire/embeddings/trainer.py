"""Learns embeddings of the background graph: entities and relations, inverse relations included."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from hire.data.graph import KnowledgeGraph
from hire.embeddings.distances import normal
from hire.embeddings.scores import COMPLEX, REGULARIZED, TRANSLATIONAL, EmbeddingName, logits, widths
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.errors import HireError
from hire.optim.settings import OptimizerSettings
from hire.optim.storage import Start
from hire.optim.trainer import Loss, Rows, Trainer
from hire.util.randomness import random_stream

FINAL_RATE = 0.02


class TripleBatch(NamedTuple):
    """Triples, half of them seen from their tails, and entities that serve all of them as false tails."""

    heads: NDArray[np.int64]  # [batch]
    relations: NDArray[np.int64]  # [batch]: of an inverse, with the number of relations added
    tails: NDArray[np.int64]  # [batch]
    negatives: NDArray[np.int64]  # [negatives]


class EmbeddingTrainer(Trainer[TripleBatch, nn.Module]):
    """Learns embeddings of a graph."""

    def __init__(self, graph: KnowledgeGraph, settings: EmbeddingSettings, device: torch.device | str = "cpu") -> None:
        if settings.model in COMPLEX and settings.dimension % 2:
            raise HireError(
                f"{settings.model} has a real and an imaginary half: {settings.dimension} dimensions are odd",
                remedy="choose an even number",
            )
        self.graph = graph
        self.settings = settings
        self._triples = np.asarray(graph.triples)
        generator = torch.Generator().manual_seed(settings.seed)
        scale = (settings.margin + 2) / settings.dimension if settings.model in TRANSLATIONAL else 0.1

        def draw(rows: int, width: int) -> Tensor:
            weights = torch.empty(rows, width).uniform_(-scale, scale, generator=generator)
            weights[:, settings.dimension :] *= 0.1  # projections begin small: the model begins as TransE
            return weights

        steps = min(settings.steps, math.ceil(settings.epochs * 2 * len(self._triples) / settings.batch_size))
        optimizer = OptimizerSettings(
            table_learning_rate=settings.learning_rate, final_rate=FINAL_RATE, storage=settings.storage
        )
        entity_width, relation_width = widths(settings.model, settings.dimension)
        entities, relations = len(graph.entities), 2 * len(graph.relations)
        where = torch.device(device)
        self.entities = optimizer.table(Start.drawn(entities, entity_width, draw), steps, where)
        of_relations = Start.drawn(relations, relation_width, draw)
        self.relations = optimizer.table(of_relations, steps, where, of_entities=False)
        super().__init__(
            optimizer,
            steps=steps,
            seed=settings.seed,
            network=nn.Module(),
            tables={"entities": self.entities, "relations": self.relations},
        )

    def batch(self, step: int) -> TripleBatch:
        """Triples at random, and negatives."""
        settings, graph = self.settings, self.graph
        generator = random_stream(settings.seed, "embeddings", step)
        chosen = self._triples[generator.integers(0, len(self._triples), settings.batch_size)].astype(np.int64)
        inverse = generator.random(settings.batch_size) < 0.5
        heads, tails = np.where(inverse, chosen[:, 2], chosen[:, 0]), np.where(inverse, chosen[:, 0], chosen[:, 2])
        relations = chosen[:, 1] + inverse * len(graph.relations)
        own = self.share.of(settings.batch_size, "triples")
        negatives = generator.integers(0, len(graph.entities), settings.negatives)
        return TripleBatch(heads[own], relations[own], tails[own], negatives)

    def loss(self, batch: TripleBatch) -> Loss:
        """The loss of the triples against all negatives."""
        size = len(batch.heads)
        distinct = (
            *np.unique(np.concatenate([batch.heads, batch.tails, batch.negatives]), return_inverse=True),
            *np.unique(batch.relations, return_inverse=True),
        )
        entity_ids, positions, relation_ids, relation_positions = (
            torch.from_numpy(ids).to(self.entities.device) for ids in distinct
        )
        of_entities, of_relations = self.entities.rows(entity_ids), self.relations.rows(relation_ids)
        vectors = F.embedding(positions, of_entities)
        head, tail, false = vectors[:size], vectors[size : 2 * size], vectors[2 * size :]
        value = self._value(head, F.embedding(relation_positions, of_relations), tail, false)
        rows = [Rows(self.entities, entity_ids, of_entities), Rows(self.relations, relation_ids, of_relations)]
        return Loss(value, rows, weight=size)

    def _value(self, head: Tensor, relation: Tensor, tail: Tensor, false: Tensor) -> Tensor:
        settings = self.settings
        alone = (vectors[:, None] for vectors in (head, relation, tail))  # each triple a group of its own
        positive = logits(settings.model, settings.margin, *alone)[:, 0, 0]  # [batch]
        if settings.model in TRANSLATIONAL:
            return (_negative_loss(settings, head, relation, false) - F.logsigmoid(positive).mean()) / 2
        negative = logits(settings.model, settings.margin, head, relation, false)  # [batch, negatives]
        correction = math.log(self.entities.count / settings.negatives)
        loss = (torch.logsumexp(torch.cat([positive[:, None], negative + correction], -1), -1) - positive).mean()
        if settings.model in REGULARIZED:
            loss = loss + settings.regularization * sum(_cubes(settings.model, part) for part in (head, relation, tail))
        return loss

    def embeddings(self) -> Embeddings:
        """What has been learned so far."""
        return Embeddings(self.entities.averaged().cpu(), self.relations.averaged().cpu())


class _NegativeLoss(torch.autograd.Function):
    """`_negative_loss` of TransE and its gradient at once: half the time of the same from smaller functions."""

    @staticmethod
    def forward(ctx: Any, moved: Tensor, negatives: Tensor, margin: float, adversarial: float) -> Tensor:
        squares = moved.square().sum(-1, keepdim=True) + negatives.square().sum(-1)
        squares = squares.addmm_(moved, negatives.T, alpha=-2)  # [batch, negatives]
        loss, slope = _loss_and_slope(squares, margin, adversarial)
        of_moved = moved * slope.sum(1, keepdim=True) - slope @ negatives
        of_negatives = negatives * slope.sum(0)[:, None] - slope.T @ moved
        ctx.save_for_backward(of_moved, of_negatives)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_moved, of_negatives = ctx.saved_tensors
        return of_moved * gradients[0], of_negatives * gradients[0], None, None


class _NegativeLossOnHyperplanes(torch.autograd.Function):
    """The same of TransH: moved u and normals w [batch, dim], of length 1, and negatives c [negatives, dim].

    ||u - (c - w.c w)||^2 = |u|^2 + |c|^2 - 2 (u - w.u w).c - (w.c)^2.
    """

    @staticmethod
    def forward(
        ctx: Any, moved: Tensor, normals: Tensor, negatives: Tensor, margin: float, adversarial: float
    ) -> Tensor:
        along = (normals * moved).sum(-1, keepdim=True)  # w.u
        flat = moved - along * normals
        heights = normals @ negatives.T  # w.c: [batch, negatives]
        squares = moved.square().sum(-1, keepdim=True) + negatives.square().sum(-1)
        squares = squares.addmm_(flat, negatives.T, alpha=-2).addcmul_(heights, heights, value=-1)
        loss, slope = _loss_and_slope(squares, margin, adversarial)  # of half the squares
        rows, columns = slope.sum(1, keepdim=True), slope.sum(0)[:, None]
        of_flat = slope @ negatives  # with the other sign
        of_negatives = negatives * columns - slope.T @ flat
        slope.mul_(heights)
        of_moved = moved * rows - of_flat + (normals * of_flat).sum(-1, keepdim=True) * normals
        of_normals = along * of_flat + (normals * of_flat).sum(-1, keepdim=True) * moved - slope @ negatives
        of_negatives.addmm_(slope.T, normals, alpha=-1)
        ctx.save_for_backward(of_moved, of_normals, of_negatives)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (*(found * gradients[0] for found in ctx.saved_tensors), None, None)


def _loss_and_slope(squares: Tensor, margin: float, adversarial: float) -> tuple[Tensor, Tensor]:
    """The loss of squared distances [batch, negatives], which are overwritten, and its slope by half of each."""
    slope = squares.clamp_(min=1e-8).rsqrt()
    scores = squares.mul_(slope).neg_().add_(margin)
    weight = torch.softmax(adversarial * scores, dim=-1) if adversarial != 1 else None
    odds = scores.exp_()  # at most e to the margin
    if weight is None:
        weight = odds / odds.sum(dim=-1, keepdim=True).clamp_min(1e-30)
    slope.mul_(weight).mul_(odds)
    slope.div_(odds.add_(1)).mul_(-1 / len(squares))  # of the loss, by the distance, over the distance
    loss = torch.dot(weight.view(-1), odds.log_().view(-1)) / len(squares)
    return loss, slope


def _cubes(model: EmbeddingName, vectors: Tensor) -> Tensor:
    """The mean over vectors of the sum of cubed absolute values."""
    if model not in COMPLEX:
        return vectors.abs().pow(3).sum(-1).mean()
    real, imaginary = vectors.chunk(2, dim=-1)
    return (real.square() + imaginary.square()).clamp_min(1e-12).pow(1.5).sum(-1).mean()


def _negative_loss(settings: EmbeddingSettings, heads: Tensor, relations: Tensor, negatives: Tensor) -> Tensor:
    """The loss of a translational model for negatives shared by a batch, the harder ones weighted more."""
    if settings.model == "transe":
        loss = _NegativeLoss.apply(heads + relations, negatives, settings.margin, settings.adversarial)  # type: ignore[no-untyped-call]
        return cast(Tensor, loss)
    if settings.model == "transh":
        translation, direction = relations.chunk(2, dim=-1)
        normals = normal(direction)
        moved = heads - (normals * heads).sum(-1, keepdim=True) * normals + translation
        given = (moved, normals, negatives, settings.margin, settings.adversarial)
        return cast(Tensor, _NegativeLossOnHyperplanes.apply(*given))  # type: ignore[no-untyped-call]
    scores = logits(settings.model, settings.margin, heads, relations, negatives)
    weight = torch.softmax(settings.adversarial * scores.detach(), dim=-1)
    return (weight * F.softplus(scores)).sum(-1).mean()
