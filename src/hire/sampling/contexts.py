"""The context of a triplet: the neighbors of its head and of its tail, true or corrupted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.data.graph import MAX_NEIGHBORS, KnowledgeGraph
from hire.util.arrays import expand_rows

HEAD, TAIL = 0, 1  # the sides of a context


@dataclass(frozen=True)
class Contexts:
    """The contexts of a batch of triplets; the mask is False for padding."""

    relations: Tensor  # [..., 2, neighbors] int64: N_h, then N_t; an inverse relation is r + len(relations)
    entities: Tensor  # [..., 2, neighbors] int64
    mask: Tensor  # [..., 2, neighbors] bool

    def __getitem__(self, index: Any) -> Contexts:
        return Contexts(self.relations[index], self.entities[index], self.mask[index])

    def tuples(self) -> Tuples:
        """The tuples without padding."""
        mask = self.mask.flatten(end_dim=-3).flatten(1)  # [contexts, 2 * neighbors]: N_h and N_t together
        return Tuples(self.relations.view(mask.shape)[mask], self.entities.view(mask.shape)[mask], mask.sum(dim=1))


class Tuples(NamedTuple):
    """The tuples of some contexts, concatenated."""

    relations: Tensor  # [tuples] int64
    entities: Tensor  # [tuples] int64
    lengths: Tensor  # [contexts] int64: number of tuples


class ContextSampler:
    """Looks up the contexts of triplets in a graph, and corrupts them."""

    def __init__(self, graph: KnowledgeGraph, max_neighbors: int = MAX_NEIGHBORS) -> None:
        self.graph = graph
        self.max_neighbors = max_neighbors
        both_ways = [graph.background_relations, graph.background_relations + len(graph.relations)]
        self._relations = np.concatenate(both_ways).astype(np.int64)  # all that occur in tuples, sorted

    def true(self, pairs: Any, relations: Any) -> Contexts:
        """The contexts of triplets given by (head, tail) pairs [..., 2], at most `max_neighbors` per side.

        With the triplets' relations [...], each triplet is removed from its own context: the graph contains background
        relations that serve as tasks, which would reveal the answer. A relation of -1 removes every edge between head
        and tail; None removes nothing.
        """
        graph, limit = self.graph, self.max_neighbors
        pairs = np.asarray(pairs)
        ends = pairs.reshape(-1)  # head, tail, head, tail ...
        every_edge = relations is not None and bool((np.asarray(relations) < 0).any())
        spare = 0 if relations is None else 2  # edges that are removed at most, unless it is every edge
        positions, owners = expand_rows(graph.offsets, ends, None if every_edge else limit + spare)
        found = graph.neighbors[positions]  # [tuples, 2]: relation, entity
        if relations is not None:
            own = np.repeat(np.broadcast_to(relations, pairs.shape[:-1]).reshape(-1), 2)[owners]
            partner = pairs[..., ::-1].reshape(-1)[owners]
            # From the tail, the triplet is an inverse edge; from the single end of a loop, it is both.
            inverse = (own + len(graph.relations)) % (2 * len(graph.relations))
            away, back = found[:, 0] == own, found[:, 0] == inverse
            is_own = np.where(owners % 2 == HEAD, away, back) | ((partner == ends[owners]) & (away | back)) | (own < 0)
            kept = ~(is_own & (found[:, 1] == partner))
            found, owners = found[kept], owners[kept]
        counts = np.bincount(owners, minlength=len(ends))
        if relations is not None:
            firsts = np.cumsum(counts) - counts
            found = found[np.arange(len(owners)) - firsts[owners] < limit]
            counts = np.minimum(counts, limit)
        mask = np.arange(max(1, int(counts.max(initial=0)))) < counts[:, None]  # [ends, neighbors]
        tuples = np.zeros((*mask.shape, 2), np.int64)
        tuples[mask] = found
        shape = (*pairs.shape, mask.shape[1])
        return _contexts(tuples[..., 0].reshape(shape), tuples[..., 1].reshape(shape), mask.reshape(shape))

    def false(self, true: Contexts, generator: np.random.Generator) -> Contexts:
        """Corrupt the relation or the entity of every tuple, with equal probability; padding stays as it is.

        An entity is replaced by another one of these contexts, which is harder to tell apart than any entity of the
        graph, and costs no more in a larger graph. If there is no other, the relation is corrupted.
        """
        relations, entities, mask = (part.numpy() for part in (true.relations, true.entities, true.mask))
        others = len(self._relations) - 1  # there are at least a relation and its inverse
        present, positions = np.unique(entities[mask], return_inverse=True)
        corrupt_relation = mask & ((generator.random(mask.shape) < 0.5) | (len(present) == 1))
        corrupt_entity = mask & ~corrupt_relation
        relations, entities = relations.copy(), entities.copy()
        # A draw among all but the original: from the original on, indices move up by one.
        original = np.searchsorted(self._relations, relations[corrupt_relation])
        drawn = generator.integers(0, max(1, others), len(original))
        relations[corrupt_relation] = self._relations[drawn + (drawn >= original)]
        original = positions[corrupt_entity[mask]]
        drawn = generator.integers(0, max(1, len(present) - 1), len(original))
        entities[corrupt_entity] = present[drawn + (drawn >= original)]
        return _contexts(relations, entities, mask)


def _contexts(relations: NDArray[Any], entities: NDArray[Any], mask: NDArray[np.bool_]) -> Contexts:
    return Contexts(
        torch.from_numpy(np.ascontiguousarray(relations)),
        torch.from_numpy(np.ascontiguousarray(entities)),
        torch.from_numpy(mask),
    )
