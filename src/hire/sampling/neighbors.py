"""The neighbors of many entities at once, as padded arrays, without the edges that a task must not see."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.sampling.episodes import EpisodeBatch
from hire.util.arrays import IntArray, expand_rows
from hire.util.keys import Keying

NOTHING = -1  # hidden


class NeighborIds(NamedTuple):
    """The neighbors of some entities; the mask is False for padding, whose ids are 0."""

    relations: Tensor  # [..., neighbors] int64; an inverse relation is r + len(relations)
    entities: Tensor  # [..., neighbors] int64
    mask: Tensor  # [..., neighbors] bool


class NeighborFinder:
    """Looks up the first neighbors of entities in file order.

    Each entity is looked up for a task, which must not see its own facts. What is hidden from it is an integer: the id
    of a relation hides its edges in both directions, NOTHING hides none, and a lower one stands for two types, between
    whose entities all edges are hidden.
    """

    def __init__(self, graph: KnowledgeGraph, max_neighbors: int) -> None:
        self.graph = graph
        self.max_neighbors = max_neighbors

    def hidden_from(self, episodes: EpisodeBatch) -> IntArray:
        """What is hidden from each episode, [batch]: its relation, or the edges between its types."""
        relations = episodes.relations.numpy()
        hidden = relations % len(self.graph.relations)
        between = relations < 0
        if between.any():
            hidden[between] = self._between(*episodes.references[between, 0].numpy().T)
        return hidden

    def find(self, entities: IntArray, hidden: IntArray) -> NeighborIds:
        """The neighbors of entities [...]; hidden can be broadcast to the same shape."""
        shape = entities.shape
        wanted = np.stack([entities, np.broadcast_to(hidden, shape)], axis=-1).reshape(-1, 2)
        least, most = int(hidden.min(initial=0)), int(hidden.max(initial=0))
        _, keys = Keying.of(wanted[:, 1] - least, wanted[:, 0], most - least + 1, len(self.graph.entities))
        _, first, own = np.unique(keys, return_index=True, return_inverse=True)
        found, owners = self._visible(*wanted[first].T)
        counts = np.bincount(owners, minlength=len(first))
        firsts = np.cumsum(counts) - counts
        found = found[np.arange(len(owners)) - firsts[owners] < self.max_neighbors]
        counts = np.minimum(counts, self.max_neighbors)
        mask = np.arange(max(1, int(counts.max(initial=0)))) < counts[:, None]  # [distinct, neighbors]
        tuples = np.zeros((*mask.shape, 2), np.int64)
        tuples[mask] = found
        parts = (tuples[..., 0], tuples[..., 1], mask)
        return NeighborIds(*(torch.from_numpy(part[own].reshape(*shape, mask.shape[1])) for part in parts))

    def _visible(self, entities: IntArray, hidden: IntArray) -> tuple[IntArray, IntArray]:
        """All neighbors [tuples, 2] of entities that are not hidden, and the index of each one's entity."""
        everything = bool((hidden == NOTHING).all())
        positions, owners = expand_rows(self.graph.offsets, entities, self.max_neighbors if everything else None)
        found = self.graph.neighbors[positions]
        if everything:
            return found, owners
        kept = found[:, 0] % len(self.graph.relations) != hidden[owners]
        between = np.flatnonzero(hidden[owners] < NOTHING)
        if len(between):
            of_types = self._between(entities[owners[between]], found[between, 1])
            kept[between] = of_types != hidden[owners[between]]
        return found[kept], owners[kept]

    def _between(self, heads: IntArray, tails: IntArray) -> NDArray[np.int64]:
        """What hides all edges between the types of each head and each tail."""
        first, second = self._types[heads], self._types[tails]
        lower, higher = np.minimum(first, second), np.maximum(first, second)
        return np.asarray(NOTHING - 1 - (lower * (self._types.max() + 1) + higher))

    @cached_property
    def _types(self) -> NDArray[np.int64]:
        """The first type of each entity; those without types share one more."""
        types = self.graph.types
        if types is None:
            return np.zeros(len(self.graph.entities), np.int64)
        first = types.members[np.minimum(types.offsets[:-1], len(types.members) - 1)].astype(np.int64)
        return np.where(np.diff(types.offsets) > 0, first, len(types.names))
