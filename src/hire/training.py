"""Training of HiRe: episodes in, a better model out, step by step, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hire.contexts import Contexts, ContextSampler
from hire.datasets import FewShotDataset
from hire.embeddings import Embeddings
from hire.episodes import Regime
from hire.levels.context import ContextEncoder, info_nce
from hire.levels.entity import Vectors
from hire.models.hire import Hire, HireNetwork, HireSettings
from hire.optimizers import RowTable
from hire.randomness import random_stream
from hire.taskpool import MetaBatch, TaskPool, TaskShares


@dataclass(frozen=True)
class TrainingSettings:
    """How HiRe is trained with the preset `fast`."""

    steps: int = 5_000
    shots: tuple[int, ...] = (1, 2, 3, 4, 5)  # each step draws one of them
    tasks: int = 32  # in a step
    queries: int = 48  # of a task
    negatives: int = 128  # shared by the queries of a task
    inner_negatives: int = 32  # of these, for the references
    regime: Regime = "in-train"
    shares: TaskShares = field(default_factory=TaskShares)
    table_rate: float = 3e-3  # of row-wise Adam, for entities, projections and relations
    network_rate: float = 1e-3  # of Adam
    final_rate: float = 0.05  # both fall linearly to this share
    embedding_norm: float = 1.5  # to which pre-trained embeddings are scaled, in the mean of squares
    correction: float = 0.5  # how much of the logarithm of candidates a negative stands for counts
    context_references: int = 16  # for which the context loss is computed in a step
    clip: float = 5.0  # largest norm of the network's gradient
    seed: int = 0


class HireTrainer:
    """Trains a HiRe on a dataset from pre-trained embeddings."""

    def __init__(
        self,
        dataset: FewShotDataset,
        embeddings: Embeddings,
        model: HireSettings,
        training: TrainingSettings,
    ) -> None:
        torch.manual_seed(training.seed)
        self.dataset = dataset
        self.training = training
        self.pool = TaskPool(dataset, training.regime, training.shares)
        self.contexts = ContextSampler(dataset.graph)
        self.network = HireNetwork(model)
        start, relations = (part[:, : model.dimension] for part in (embeddings.entities, embeddings.relations))
        scale = training.embedding_norm / start.square().sum(dim=1).mean().sqrt()
        self.entities = RowTable(start * scale)
        self.projections = RowTable(0.02 * torch.randn(len(start), model.dimension))
        self.relations = RowTable(relations * scale)
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=training.network_rate)
        self.step = 0
        self.losses: list[float] = []  # since they were last looked at

    def model(self) -> Hire:
        """The model as it is now."""
        return Hire(self.network, self.entities.weights, self.projections.weights, self.training.seed)

    def tables(self) -> dict[str, RowTable]:
        """The tables by name, for checkpoints."""
        return {"entities": self.entities, "projections": self.projections, "relations": self.relations}

    def train_step(self) -> float:
        """One step; returns its loss."""
        settings = self.training
        torch.manual_seed(settings.seed * 1_000_003 + self.step)  # drop path; a step depends on its number alone
        generator = random_stream(settings.seed, "training", self.step)
        batch = self.pool.batch(
            settings.seed,
            self.step,
            tasks=settings.tasks,
            shots=int(generator.choice(settings.shots)),
            queries=settings.queries,
            negatives=settings.negatives,
        )
        self.network.train()
        loss, parts = self._losses(batch, generator)
        self._update(loss, parts)
        self.step += 1
        self.losses.append(loss.item())
        return self.losses[-1]

    def _losses(self, batch: MetaBatch, generator: np.random.Generator) -> tuple[Tensor, _Rows]:
        """The objective L(Q) + lambda L_c (Eq. 21), and the rows of the tables that it was computed from."""
        settings, network = self.training, self.network
        used = [batch.references, batch.queries, batch.negatives]
        context = None
        if network.context is not None:
            context = self._draw_contexts(batch, generator)
            used += [context[0], context[1].entities, context[2].entities]
        numbers, places = torch.unique(torch.cat([part.flatten() for part in used]), return_inverse=True)
        places = places.split([part.numel() for part in used])
        rows = _Rows(numbers, self.entities.rows(numbers), self.projections.rows(numbers))

        def vectors(index: int, shape: torch.Size) -> Vectors:
            chosen = places[index].view(shape)
            embedding = torch.nn.functional.embedding
            return Vectors(embedding(chosen, rows.entities), embedding(chosen, rows.projections))

        references, queries, negatives = (vectors(i, part.shape) for i, part in enumerate(used[:3]))
        inner = slice(0, settings.inner_negatives)
        correction = settings.correction * batch.correction
        extra = settings.correction * float(np.log(settings.negatives / settings.inner_negatives))
        relation = network.adapt(
            _column(references, 0),
            _column(references, 1),
            Vectors(*(part[:, inner] for part in negatives)),
            batch.reference_false[..., inner],
            correction + extra,
        )
        losses = network.losses(
            relation, _column(queries, 0), _column(queries, 1), negatives, batch.query_false, correction
        )
        loss = losses.mean()
        if context is not None and network.context is not None:
            contrast = self._context_loss(network.context, context, places[3:], rows)
            loss = loss + network.settings.context_weight * contrast
        return loss, rows

    def _draw_contexts(self, batch: MetaBatch, generator: np.random.Generator) -> tuple[Tensor, Contexts, Contexts]:
        """Some references [n, 2] with their true contexts and their false ones [n * N]."""
        shots = batch.references.shape[1]
        pairs = batch.references.flatten(0, 1)
        chosen = generator.choice(len(pairs), min(self.training.context_references, len(pairs)), replace=False)
        true = self.contexts.true(pairs[chosen], batch.relations[chosen // shots])
        copies = self.network.settings.false_contexts
        repeated = Contexts(*(part.repeat_interleave(copies, dim=0) for part in vars(true).values()))
        return pairs[chosen], true, self.contexts.false(repeated, generator)

    def _context_loss(
        self,
        encoder: ContextEncoder,
        context: tuple[Tensor, Contexts, Contexts],
        places: tuple[Tensor, ...],
        rows: _Rows,
    ) -> Tensor:
        """L_c, the mean over some references (Eq. 5)."""
        settings = self.network.settings
        pairs, true, false = context
        kinds = torch.cat([true.relations.flatten(), false.relations.flatten()])
        rows.relation_numbers, kind_places = torch.unique(kinds, return_inverse=True)
        rows.relations = self.relations.rows(rows.relation_numbers)
        of_true, of_false = kind_places.split([true.relations.numel(), false.relations.numel()])
        triplets = torch.nn.functional.embedding(places[0].view(pairs.shape), rows.entities).flatten(1)
        in_rows = [
            Contexts(kinds.view(part.mask.shape), entities.view(part.mask.shape), part.mask)
            for part, kinds, entities in ((true, of_true, places[1]), (false, of_false, places[2]))
        ]
        of_true, of_false = (encoder(part, rows.relations, rows.entities) for part in in_rows)
        of_false = of_false.unflatten(0, (len(pairs), settings.false_contexts))
        return info_nce(triplets, of_true, of_false, settings.context_temperature).mean()

    def _update(self, loss: Tensor, rows: _Rows) -> None:
        settings = self.training
        share = max(settings.final_rate, 1 - self.step / settings.steps)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.network_rate * share
        self.optimizer.step()
        rate = settings.table_rate * share
        for table, numbers, used in (
            (self.entities, rows.numbers, rows.entities),
            (self.projections, rows.numbers, rows.projections),
            (self.relations, rows.relation_numbers, rows.relations),
        ):
            if used is not None and used.grad is not None and numbers is not None:
                table.update(numbers, used.grad, rate)


@dataclass
class _Rows:
    """The rows of the tables that a step uses."""

    numbers: Tensor  # [n]: distinct entities
    entities: Tensor  # [n, dim]
    projections: Tensor  # [n, dim]
    relation_numbers: Tensor | None = None
    relations: Tensor | None = None


def _column(pairs: Vectors, side: int) -> Vectors:
    """The heads or the tails of pairs [tasks, pairs, 2, dim]."""
    return Vectors(*(part[:, :, side] for part in pairs))
