"""Training of HiRe on episodes; the same seed gives the same model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings
from hire.optim.storage import Start
from hire.optim.tables import Table
from hire.optim.trainer import Loss, Rows
from hire.sampling.contexts import ContextSampler, Tuples
from hire.sampling.episodes import EpisodeBatch
from hire.systems.base import SystemTrainer
from hire.systems.episodic.drawing import episodes_of, evaluated_shots, initial_tables
from hire.systems.hire.context import info_nce
from hire.systems.hire.entity import Vectors
from hire.systems.hire.model import Hire
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireSettings
from hire.systems.hire.triplet import Dropping
from hire.util.arrays import IntArray
from hire.util.randomness import random_stream

_Pairs = tuple[Vectors, Vectors, Vectors, Tensor | None, Tensor | None]  # heads, tails, negatives; false, candidates


class HireBatch(NamedTuple):
    """The batch of a step."""

    episodes: EpisodeBatch
    contexts: DrawnContexts | None  # of some references, unless the context level is left out


class HireTrainer(SystemTrainer[HireBatch, HireNetwork]):
    """Trains a HiRe on a dataset."""

    def __init__(
        self,
        dataset: FewShotDataset,
        embeddings: Embeddings,
        settings: HireSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        model, training = settings.model, settings.training
        self.dataset = dataset
        self.settings = settings
        self.device = torch.device(device)
        self.selection = settings.selection
        self.shots = evaluated_shots(training.shots)
        self._draw = episodes_of(dataset, training)
        self.contexts = ContextSampler(dataset.graph)
        start, relations = initial_tables(embeddings, model.dimension, training.embedding_norm)
        sizes, table = (training.steps, self.device), settings.optimizer.table
        self.entities, self.relations = table(start, *sizes), table(relations, *sizes, of_entities=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            network = HireNetwork(model).to(self.device)
            drawn = Start.drawn(start.rows, model.dimension, lambda *shape: 0.02 * torch.randn(*shape))
            self.projections = table(drawn, *sizes)
        super().__init__(
            settings.optimizer,
            steps=training.steps,
            seed=training.seed,
            network=network,
            tables={"entities": self.entities, "projections": self.projections, "relations": self.relations},
        )

    def system(self) -> Hire:
        """The current system, with EMA weights if there are any."""
        return Hire(self.averaged_network, self.entities.averaged(), self.projections.averaged(), self.seed)

    def batch(self, step: int) -> HireBatch:
        """Episodes, and contexts of some of their references."""
        generator = random_stream(self.seed, "training", step)
        training = self.settings.training
        shots = int(generator.choice(training.shots))
        episodes = self._draw.episodes(step, shots, self.share.of(training.tasks, "tasks"))
        if self.network.context is None:
            return HireBatch(episodes, None)
        everyone = (episodes.relations.numpy(), episodes.references.numpy())
        if self.share.processes > 1:
            everyone = self._draw.references(step, shots)
        return HireBatch(episodes, self._draw_contexts(*everyone, generator))

    def _draw_contexts(
        self, relations: IntArray, references: IntArray, generator: np.random.Generator
    ) -> DrawnContexts:
        """Contexts of some references, or of all: of the whole batch, since false ones are made from all of them."""
        shots = references.shape[1]
        pairs = references.reshape(-1, 2)
        chosen = np.arange(len(pairs))
        limit = self.settings.training.context_references
        if limit is not None:
            chosen = generator.choice(chosen, min(limit, len(pairs)), replace=False)
        triplets = np.column_stack([pairs[chosen], relations[chosen // shots]])
        distinct, positions = np.unique(triplets, axis=0, return_inverse=True)
        own, several = torch.from_numpy(positions), self.settings.model.false_contexts
        true = self.contexts.true(distinct[:, :2], distinct[:, 2])
        false = self.contexts.false(true[own.repeat_interleave(several)], generator)
        mine = self.share.some(len(chosen))
        if self.share.processes > 1:
            false = false[several * mine.start : several * mine.stop]
            used, own = torch.unique(own[mine], return_inverse=True)
            true = true[used]
        parts = zip(true.tuples(), false.tuples(), strict=True)
        tuples = Tuples(*(torch.cat(both) for both in parts))
        return DrawnContexts(torch.from_numpy(pairs[chosen[mine]]), own, tuples, len(own) / len(chosen))

    def loss(self, batch: HireBatch) -> Loss:
        """The objective L(Q) + lambda L_c (Eq. 21), and the loss on the references if it has a weight."""
        network, (episodes, drawn) = self.network, batch
        tasks = len(episodes.relations)
        dropping = network.dropping(tasks)
        if self.settings.model.loss == "margin" and self.settings.optimizer.tables == "dense":
            some = self._outside_margin(episodes, dropping)
            episodes, dropping = episodes.part(some), dropping.part(some)
        share = len(episodes.relations) / tasks
        rows = self._rows(episodes, drawn)
        known, asked = self._pairs(episodes, rows)
        relation = network.meta_relation(known[0].embeddings, known[1].embeddings, dropping)
        loss, moved = share * network.losses(network.refined(relation, *known), *asked).mean(), rows.moved
        if self.settings.model.reference_weight:
            weight = share * self.settings.model.reference_weight
            loss = loss + weight * network.losses(relation, *known).mean()
        if drawn is not None and len(drawn.pairs):
            contrast, of_relations = self._context_loss(rows.vectors[-1].embeddings.flatten(1), drawn, rows)
            own_share = drawn.share / (tasks / self.settings.training.tasks)  # beside the queries of this process
            loss = loss + self.settings.model.context_weight * own_share * contrast
            moved = [*moved, of_relations]
        return Loss(loss, moved, weight=tasks)

    @torch.no_grad()
    def _outside_margin(self, episodes: EpisodeBatch, dropping: Dropping) -> Tensor:
        """The tasks that have a gradient; one without, where there is none.

        Within the margin a task has neither a gradient nor an inner step. Rows without a gradient may be left out of
        dense tables.
        """
        network = self.network
        known, asked = self._pairs(episodes, self._rows(episodes, None))
        relation = network.meta_relation(known[0].embeddings, known[1].embeddings, dropping)
        losses = network.losses(relation, *known).sum(dim=-1) + network.losses(relation, *asked).sum(dim=-1)
        some = losses.nonzero().squeeze(-1).cpu()
        return some if len(some) else some.new_zeros(1)

    def _rows(self, episodes: EpisodeBatch, drawn: DrawnContexts | None) -> _Rows:
        used = [episodes.references, episodes.reference_negatives, episodes.queries, episodes.query_negatives]
        if drawn is None:
            return _Rows(self.entities, self.projections, used, None)
        return _Rows(self.entities, self.projections, [*used, drawn.pairs], drawn.tuples.entities)

    def _pairs(self, episodes: EpisodeBatch, rows: _Rows) -> tuple[_Pairs, _Pairs]:
        """References and queries as the network's losses take them."""
        references, reference_negatives, queries, query_negatives = rows.vectors[:4]
        reference_false, query_false, candidates = (
            None if part is None else part.to(self.device)
            for part in (episodes.reference_false, episodes.query_false, episodes.candidates)
        )
        return (
            (_column(references, 0), _column(references, 1), reference_negatives, reference_false, candidates),
            (_column(queries, 0), _column(queries, 1), query_negatives, query_false, candidates),
        )

    def _context_loss(self, triplets: Tensor, drawn: DrawnContexts, rows: _Rows) -> tuple[Tensor, Rows]:
        """L_c, the mean over some references (Eq. 5), and the relations that it was computed from."""
        settings = self.settings.model
        if self.network.context is None:
            raise TypeError("the context level was left out")
        lengths, own = (part.to(self.device) for part in (drawn.tuples.lengths, drawn.own))
        relations, positions = Rows.of(self.relations, drawn.tuples.relations)
        tuples = Tuples(positions, rows.in_contexts, lengths)
        encoded = self.network.context(tuples, relations.vectors, rows.entities.vectors)
        falsehoods = len(triplets) * settings.false_contexts
        true, false = torch.split(encoded, [len(encoded) - falsehoods, falsehoods])
        false = false.view(len(triplets), settings.false_contexts, -1)
        loss = info_nce(triplets, true[own], false, settings.context_temperature).mean()
        return loss, relations


class DrawnContexts(NamedTuple):
    """Some references and their contexts; references that occur several times in a batch share their true context."""

    pairs: Tensor  # [n, 2]
    own: Tensor  # [n]: the position of each pair's true context
    tuples: Tuples  # of the distinct true contexts, then of the N false ones of each pair
    share: float  # of the references whose contexts were drawn: those of this process


class _Rows:
    """The distinct rows of the tables that a step uses, and the vectors of some ids in them.

    Entities that occur in contexts only are never scored, so their projections are not needed.
    """

    def __init__(self, entities: Table, projections: Table, scored: list[Tensor], in_contexts: Tensor | None) -> None:
        flat = torch.cat([part.flatten() for part in scored])
        everything = flat if in_contexts is None else torch.cat([flat, in_contexts])
        self.entities, positions = Rows.of(entities, everything)
        self.projections, projection_positions = Rows.of(projections, flat)
        self.in_contexts = positions[len(flat) :]
        # A single lookup for all: the gradient of each lookup is as large as the table.
        tables = (
            (positions[: len(flat)], self.entities.vectors),
            (projection_positions, self.projections.vectors),
        )
        sizes = [part.numel() for part in scored]
        both = (torch.split(F.embedding(chosen, table), sizes) for chosen, table in tables)
        self.vectors = [
            Vectors(*(vector.view(*part.shape, vector.shape[-1]) for vector in pair))
            for part, pair in zip(scored, zip(*both, strict=True), strict=True)
        ]

    @property
    def moved(self) -> list[Rows]:
        """The rows that the gradient updates."""
        return [self.entities, self.projections]


def _column(pairs: Vectors, side: int) -> Vectors:
    """The heads or the tails of pairs [tasks, pairs, 2, dim]."""
    return Vectors(*(part[:, :, side] for part in pairs))
