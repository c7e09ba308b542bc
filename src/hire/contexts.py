"""The context of a triplet: the neighbours of its head and of its tail, true or falsified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.graph import MAX_NEIGHBORS, KnowledgeGraph
from hire.vocabulary import IntArray

HEAD, TAIL = 0, 1  # the sides of a context


@dataclass(frozen=True)
class Contexts:
    """The contexts of a batch of triplets; padding is where the mask is False."""

    relations: Tensor  # [batch, 2, neighbors] int64: N_h, then N_t; an inverse relation is r + len(relations)
    entities: Tensor  # [batch, 2, neighbors] int64
    mask: Tensor  # [batch, 2, neighbors] bool


class ContextSampler:
    """Looks up the contexts of triplets in a graph and falsifies them."""

    def __init__(self, graph: KnowledgeGraph, max_neighbors: int = MAX_NEIGHBORS) -> None:
        self.graph = graph
        self.max_neighbors = max_neighbors
        both_ways = [graph.background_relations, graph.background_relations + len(graph.relations)]
        self._relations = np.concatenate(both_ways).astype(np.int64)  # all that can stand in a tuple, sorted

    def true(self, pairs: IntArray, relations: IntArray | None = None) -> Contexts:
        """The contexts of triplets given by (head, tail) pairs [batch, 2], capped at `max_neighbors` a side.

        The triplets' relations [batch], where given, take the triplet itself out of its own context: a background
        relation that serves as a task is in the graph, and would tell the answer.
        """
        graph = self.graph
        starts = graph.offsets[pairs]  # [batch, 2]
        lengths = np.minimum(graph.offsets[pairs + 1] - starts, self.max_neighbors)
        width = max(1, int(lengths.max(initial=0)))
        mask = np.arange(width) < lengths[..., None]  # [batch, 2, width]
        owners = np.repeat(np.arange(lengths.size), lengths.ravel())
        firsts = np.cumsum(lengths.ravel()) - lengths.ravel()
        positions = np.arange(len(owners)) + (starts.ravel() - firsts)[owners]
        found = graph.neighbors[positions]  # [tuples, 2]
        tuples = np.zeros((*mask.shape, 2), np.int64)
        tuples[mask] = found
        if relations is not None:
            own = np.stack([relations, relations + len(graph.relations)], axis=1)  # as seen from head and from tail
            mask &= ~((tuples[..., 0] == own[..., None]) & (tuples[..., 1] == pairs[:, ::-1, None]))
            tuples *= mask[..., None]
        return _contexts(tuples[..., 0], tuples[..., 1], mask)

    def false(self, true: Contexts, generator: np.random.Generator) -> Contexts:
        """Corrupt either the relation or the entity of every real tuple, each with even odds; never the padding."""
        relations, entities, mask = (part.numpy() for part in (true.relations, true.entities, true.mask))
        others = len(self._relations) - 1
        corrupt_relation = generator.random(mask.shape) < 0.5 if others else np.zeros(mask.shape, bool)
        corrupt_entity = mask & ~corrupt_relation if len(self.graph.entities) > 1 else np.zeros(mask.shape, bool)
        corrupt_relation &= mask
        relations, entities = relations.copy(), entities.copy()
        # A draw among all but one: what would be the original or lies behind it moves up by one.
        original = np.searchsorted(self._relations, relations[corrupt_relation])
        drawn = generator.integers(0, max(1, others), len(original))
        relations[corrupt_relation] = self._relations[drawn + (drawn >= original)]
        original = entities[corrupt_entity]
        drawn = generator.integers(0, max(1, len(self.graph.entities) - 1), len(original))
        entities[corrupt_entity] = drawn + (drawn >= original)
        return _contexts(relations, entities, mask)


def _contexts(relations: NDArray[Any], entities: NDArray[Any], mask: NDArray[np.bool_]) -> Contexts:
    return Contexts(
        torch.from_numpy(np.ascontiguousarray(relations)),
        torch.from_numpy(np.ascontiguousarray(entities)),
        torch.from_numpy(mask),
    )
