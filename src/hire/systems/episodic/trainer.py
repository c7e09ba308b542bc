"""Training of a system on episodes, from pre-trained or random embeddings; the same seed gives the same model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings
from hire.optim.tables import Table
from hire.optim.trainer import Loss, Rows
from hire.sampling.episodes import EpisodeBatch
from hire.sampling.neighbors import NeighborFinder, NeighborIds
from hire.systems.base import SystemTrainer
from hire.systems.episodic.drawing import episodes_of, evaluated_shots, initial_tables
from hire.systems.episodic.model import EpisodicSystem
from hire.systems.episodic.network import Entities, EpisodicNetwork, Neighbors, Pairs
from hire.systems.episodic.settings import EpisodicSettings
from hire.util.randomness import random_stream
from hire.util.tensors import on_device


class EpisodicBatch(NamedTuple):
    """The batch of a step."""

    episodes: EpisodeBatch
    neighbors: NeighborIds | None  # of the entities of references, then of queries; None if no one looks at them


class EpisodicTrainer(SystemTrainer[EpisodicBatch, EpisodicNetwork]):
    """Trains any system whose network is an `EpisodicNetwork`."""

    fused = True

    def __init__(
        self,
        kind: type[EpisodicSystem],
        dataset: FewShotDataset,
        embeddings: Embeddings,
        settings: EpisodicSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        training = settings.training
        self.kind = kind
        self.dataset = dataset
        self.settings = settings
        self.device = torch.device(device)
        self.selection = settings.selection
        self.shots = evaluated_shots(training.shots)
        self._draw = episodes_of(dataset, training)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            network = kind.network_type(settings.model).to(self.device)
        start, relations = initial_tables(embeddings, settings.model.dimension, training.embedding_norm)
        sizes, table = (training.steps, self.device), settings.optimizer.table
        self.entities, self.relations = table(start, *sizes), table(relations, *sizes, of_entities=False)
        tables = {"entities": self.entities}
        if network.max_neighbors:
            tables["relations"] = self.relations
        self._finder = NeighborFinder(dataset.graph, network.max_neighbors)
        super().__init__(settings.optimizer, steps=training.steps, seed=training.seed, network=network, tables=tables)

    def system(self) -> EpisodicSystem:
        """The current system, with EMA weights if there are any."""
        tables = (self.entities.averaged(), self.relations.averaged())
        return self.kind(self.averaged_network, *tables, self.dataset.graph, self.seed)

    def batch(self, step: int) -> EpisodicBatch:
        """Episodes, and the neighbors of their entities without any fact of their own tasks."""
        generator = random_stream(self.seed, "training", step)
        training = self.settings.training
        own = self.share.of(training.tasks, "tasks")
        episodes = self._draw.episodes(step, int(generator.choice(training.shots)), own)
        return EpisodicBatch(episodes, self._neighbors(episodes) if self.network.max_neighbors else None)

    def _neighbors(self, episodes: EpisodeBatch) -> NeighborIds:
        parts = _parts(episodes)
        parts = parts if self.network.neighbors_of_queries else parts[:1]
        everything = torch.cat([part.flatten(1) for part in parts], dim=1).numpy()  # [batch, entities]
        return self._finder.find(everything, self._finder.hidden_from(episodes)[:, None])

    def loss(self, batch: EpisodicBatch) -> Loss:
        """The objective of the network."""
        self.network.at_step(self.step)
        episodes, neighbors = on_device(batch, self.device)
        tasks = len(episodes.relations)
        (known, asked), rows = self._pairs(episodes, neighbors)
        return Loss(self.network.objective(known, asked), rows, weight=tasks)

    def _pairs(self, episodes: EpisodeBatch, ids: NeighborIds | None) -> tuple[tuple[Pairs, Pairs], list[Rows]]:
        """References and queries as the network sees them, and the rows of the tables that they are."""
        (references, reference_negatives, queries, query_negatives), rows = self._entities(episodes, ids)
        known = Pairs(*_columns(references), reference_negatives, episodes.reference_false, episodes.candidates)
        asked = Pairs(*_columns(queries), query_negatives, episodes.query_false, episodes.candidates)
        return (known, asked), rows

    def _entities(self, episodes: EpisodeBatch, ids: NeighborIds | None) -> tuple[list[Entities], list[Rows]]:
        """All entities of a batch as the network sees them, and the rows of the tables that they are."""
        parts = _parts(episodes)
        flat = torch.cat([part.flatten(1) for part in parts], dim=1)  # [batch, entities]
        around: Neighbors | None = None
        if ids is None:
            rows, positions = self._rows(self.entities, flat)
            moved = [rows]
        else:
            used = torch.cat([flat.flatten(), ids.entities[ids.mask]])
            rows, positions = self._rows(self.entities, used)
            relation_rows, edges = self._rows(self.relations, ids.relations[ids.mask])
            ends = _filled(ids.mask, positions[flat.numel() :])
            table = relation_rows.vectors if len(edges) else self.relations.rows(positions.new_zeros(1))  # for padding
            around = Neighbors(_filled(ids.mask, edges), ends, ids.mask, table, rows.vectors)
            positions = positions[: flat.numel()].view(flat.shape)
            moved = [rows, relation_rows]
        found, start = [], 0
        for part in parts:
            own = slice(start, start + part[0].numel())
            near = None if around is None or start >= around.mask.shape[1] else around[:, own]
            found.append(Entities(positions[:, own], rows.vectors, near).reshape(*part.shape))
            start = own.stop
        return found, moved

    def _rows(self, table: Table, ids: Tensor) -> tuple[Rows, Tensor]:
        """Rows of a table; those of a table that does not move need no gradient."""
        rows, positions = Rows.of(table, ids)
        rows.vectors.requires_grad_(self.settings.optimizer.table_learning_rate > 0)
        return rows, positions


def _parts(episodes: EpisodeBatch) -> list[Tensor]:
    """The ids of all entities of a batch, references first."""
    return [episodes.references, episodes.reference_negatives, episodes.queries, episodes.query_negatives]


def _columns(pairs: Entities) -> tuple[Entities, Entities]:
    """Heads and tails of pairs [tasks, pairs, 2]."""
    return pairs[:, :, 0], pairs[:, :, 1]


def _filled(mask: Tensor, values: Tensor) -> Tensor:
    """Values where the mask is true, and 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)
