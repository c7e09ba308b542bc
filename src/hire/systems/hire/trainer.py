"""Training of HiRe: episodes in, a better model out, step by step, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.tables import RowTable, kept_share
from hire.embeddings.trainer import Embeddings
from hire.sampling.contexts import Contexts, ContextSampler, Tuples
from hire.sampling.episodes import EpisodeBatch, EpisodeSampler, Regime
from hire.sampling.task_pool import FEWEST_FACTS, TaskPool, TaskShares
from hire.systems.hire.context import info_nce
from hire.systems.hire.entity import Vectors
from hire.systems.hire.model import Hire
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireSettings
from hire.util.randomness import random_stream


@dataclass(frozen=True)
class TrainingSettings:
    """How HiRe is trained; the defaults are those of the preset `fast`."""

    steps: int = 3_000
    shots: tuple[int, ...] = (1, 1, 3, 5, 5)  # each step draws one of them
    regime: Regime = "in-train"
    batches: Literal["pooled", "episodes"] = "pooled"  # a pool with many kinds of task, or the paper's episodes
    shares: TaskShares = field(default_factory=TaskShares)  # of the pool
    tasks: int = 32  # in a step
    queries: int = 48  # of a task
    negatives: int = 128  # shared by the queries of a task; of each query, in the paper's episodes
    inner_negatives: int = 32  # of these, for the references
    context_references: int | None = 16  # for which the context loss is computed in a step; None for all
    table_rate: float = 6e-3  # of row-wise Adam, for entities, projections and relations
    network_rate: float = 1e-3  # of Adam
    final_rate: float = 0.05  # both fall linearly to this share
    averaging: float | None = 0.05  # the share of all steps that the averaged weights reach back; None for no average
    embedding_norm: float | None = 1.5  # to which pre-trained embeddings are scaled, in the mean of squares
    clip: float | None = 5.0  # largest norm of the network's gradient
    seed: int = 0


class HireTrainer:
    """Trains a HiRe on a dataset from pre-trained embeddings."""

    def __init__(
        self,
        dataset: FewShotDataset,
        embeddings: Embeddings,
        model: HireSettings,
        training: TrainingSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        torch.manual_seed(training.seed)
        self.dataset = dataset
        self.training = training
        self.device = torch.device(device)
        self.draw = _pooled(dataset, training) if training.batches == "pooled" else _episodes(dataset, training)
        self.contexts = ContextSampler(dataset.graph)
        self.network = HireNetwork(model).to(self.device)
        start, relations = (part[:, : model.dimension] for part in (embeddings.entities, embeddings.relations))
        if training.embedding_norm is not None:
            scale = training.embedding_norm / start.square().sum(dim=1).mean().sqrt()
            start, relations = start * scale, relations * scale
        reach = None if training.averaging is None else training.averaging * training.steps
        self.entities, self.projections, self.relations = (
            RowTable(table.to(self.device, copy=True), averaging=reach)
            for table in (start, 0.02 * torch.randn(len(start), model.dimension), relations)
        )
        self.kept = kept_share(reach)
        self.averaged_network = deepcopy(self.network)
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=training.network_rate)
        self.step = 0
        self.losses: list[float] = []  # since they were last looked at

    def model(self) -> Hire:
        """The model as it is now, with averaged weights if they are kept."""
        return Hire(self.averaged_network, self.entities.averaged(), self.projections.averaged(), self.training.seed)

    def tables(self) -> dict[str, RowTable]:
        """The tables by name, for checkpoints."""
        return {"entities": self.entities, "projections": self.projections, "relations": self.relations}

    def train_step(self) -> float:
        """One step; returns its loss."""
        settings = self.training
        torch.manual_seed(settings.seed * 1_000_003 + self.step)  # drop path; a step depends on its number alone
        generator = random_stream(settings.seed, "training", self.step)
        batch = self.draw(self.step, int(generator.choice(settings.shots)))
        self.network.train()
        loss, rows = self._losses(batch, generator)
        self._update(loss, rows)
        self.step += 1
        self.losses.append(loss.item())
        return self.losses[-1]

    def _losses(self, batch: EpisodeBatch, generator: np.random.Generator) -> tuple[Tensor, _Rows]:
        """The objective L(Q) + lambda L_c (Eq. 21), and the rows of the tables that it was computed from."""
        network = self.network
        used = [batch.references, batch.reference_negatives, batch.queries, batch.query_negatives]
        drawn = None if network.context is None else self._draw_contexts(batch, generator)
        if drawn is not None:
            used.append(drawn.pairs)
        rows = _Rows(self.entities, self.projections, used, None if drawn is None else drawn.tuples.entities)
        references, reference_negatives, queries, query_negatives, *triplets = rows.vectors
        reference_false, query_false, candidates = (
            None if part is None else part.to(self.device)
            for part in (batch.reference_false, batch.query_false, batch.candidates)
        )
        relation = network.adapt(
            _column(references, 0), _column(references, 1), reference_negatives, reference_false, candidates
        )
        losses = network.losses(
            relation, _column(queries, 0), _column(queries, 1), query_negatives, query_false, candidates
        )
        loss = losses.mean()
        if drawn is not None:
            contrast = self._context_loss(triplets[0].embeddings.flatten(1), drawn, rows)
            loss = loss + network.settings.context_weight * contrast
        return loss, rows

    def _draw_contexts(self, batch: EpisodeBatch, generator: np.random.Generator) -> _DrawnContexts:
        """Contexts of some references, or of all."""
        shots = batch.references.shape[1]
        pairs = batch.references.flatten(0, 1)
        chosen = np.arange(len(pairs))
        if self.training.context_references is not None:
            chosen = generator.choice(chosen, min(self.training.context_references, len(pairs)), replace=False)
        triplets = np.column_stack([pairs[chosen], batch.relations[chosen // shots]])
        distinct, places = np.unique(triplets, axis=0, return_inverse=True)
        own = torch.from_numpy(places)
        true = self.contexts.true(distinct[:, :2], distinct[:, 2])
        repeated = own.repeat_interleave(self.network.settings.false_contexts)
        false = self.contexts.false(Contexts(*(part[repeated] for part in vars(true).values())), generator)
        parts = zip(true.tuples(), false.tuples(), strict=True)
        return _DrawnContexts(pairs[chosen], own, Tuples(*(torch.cat(both) for both in parts)))

    def _context_loss(self, triplets: Tensor, drawn: _DrawnContexts, rows: _Rows) -> Tensor:
        """L_c, the mean over some references (Eq. 5)."""
        network = self.network
        if network.context is None:
            return triplets.new_zeros(())
        kinds, lengths, own = (
            part.to(self.device) for part in (drawn.tuples.relations, drawn.tuples.lengths, drawn.own)
        )
        rows.relation_numbers, kinds = torch.unique(kinds, return_inverse=True)
        rows.relations = self.relations.rows(rows.relation_numbers)
        encoded = network.context(Tuples(kinds, rows.in_contexts, lengths), rows.relations, rows.entities)
        falsehoods = len(triplets) * network.settings.false_contexts
        true, false = torch.split(encoded, [len(encoded) - falsehoods, falsehoods])
        false = false.view(len(triplets), network.settings.false_contexts, -1)
        return info_nce(triplets, true[own], false, network.settings.context_temperature).mean()

    def _update(self, loss: Tensor, rows: _Rows) -> None:
        settings = self.training
        share = max(settings.final_rate, 1 - self.step / settings.steps)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.network_rate * share
        self.optimizer.step()
        with torch.no_grad():
            for average, now in zip(self.averaged_network.parameters(), self.network.parameters(), strict=True):
                average.lerp_(now, 1 - self.kept)
        rate = settings.table_rate * share
        for table, numbers, used in (
            (self.entities, rows.entity_numbers, rows.entities),
            (self.projections, rows.projection_numbers, rows.projections),
            (self.relations, rows.relation_numbers, rows.relations),
        ):
            if used is not None and used.grad is not None and numbers is not None:
                table.update(numbers, used.grad, rate)


class _DrawnContexts(NamedTuple):
    """Some references and their contexts; those that are in a batch more than once share their true context."""

    pairs: Tensor  # [n, 2]
    own: Tensor  # [n]: the number of each pair's true context
    tuples: Tuples  # of the distinct true contexts, then of the N false ones of each pair


class _Rows:
    """The rows of the tables that a step uses, each once, and the vectors of some numbers in them.

    What stands in contexts alone is never scored, and its projection not needed.
    """

    def __init__(
        self, entities: RowTable, projections: RowTable, scored: list[Tensor], in_contexts: Tensor | None
    ) -> None:
        flat = torch.cat([part.flatten() for part in scored])
        everything = flat if in_contexts is None else torch.cat([flat, in_contexts])
        self.entity_numbers, places = _distinct(everything, entities.weights.device)
        self.projection_numbers, projection_places = _distinct(flat, entities.weights.device)
        self.entities = entities.rows(self.entity_numbers)  # [n, dim]
        self.projections = projections.rows(self.projection_numbers)  # [m, dim]
        self.relation_numbers: Tensor | None = None
        self.relations: Tensor | None = None  # [r, dim]
        self.in_contexts = places[len(flat) :]
        # All at once: a lookup's gradient is as large as the table.
        tables = ((places[: len(flat)], self.entities), (projection_places, self.projections))
        sizes = [part.numel() for part in scored]
        both = (torch.split(F.embedding(chosen, table), sizes) for chosen, table in tables)
        self.vectors = [
            Vectors(*(vector.view(*part.shape, -1) for vector in pair))
            for part, pair in zip(scored, zip(*both, strict=True), strict=True)
        ]


def _distinct(numbers: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Each number once, and the place of every number among them."""
    found, places = torch.unique(numbers, return_inverse=True)
    return found.to(device), places.to(device)


def _column(pairs: Vectors, side: int) -> Vectors:
    """The heads or the tails of pairs [tasks, pairs, 2, dim]."""
    return Vectors(*(part[:, :, side] for part in pairs))


Draw = Callable[[int, int], EpisodeBatch]  # a batch of a step's number and a number of shots


def _pooled(dataset: FewShotDataset, settings: TrainingSettings) -> Draw:
    fewest = max(FEWEST_FACTS, max(settings.shots) + 1)
    pool = TaskPool(dataset, settings.regime, settings.shares, fewest_facts=fewest)

    def draw(step: int, shots: int) -> EpisodeBatch:
        return pool.batch(
            settings.seed,
            step,
            tasks=settings.tasks,
            shots=shots,
            queries=settings.queries,
            negatives=settings.negatives,
            inner_negatives=settings.inner_negatives,
        )

    return draw


def _episodes(dataset: FewShotDataset, settings: TrainingSettings) -> Draw:
    samplers = {
        shots: EpisodeSampler(
            dataset,
            shots=shots,
            queries=settings.queries,
            negatives=settings.negatives,
            batch_size=settings.tasks,
            regime=settings.regime,
            seed=settings.seed,
        )
        for shots in settings.shots
    }
    return lambda step, shots: samplers[shots].batch(step)
