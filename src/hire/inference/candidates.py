"""Candidates for a taught relation: entities of similar types, and if they are too many, the most similar ones."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.graph import KnowledgeGraph
from hire.util.arrays import IntArray, distinct, positions_in
from hire.util.compiled import compiled

TIE = 1e-9  # far below any difference in similarity


class _Profiles(NamedTuple):
    """How many entities of each type have each edge type: the entries of one vector of length 1 per type."""

    types: IntArray  # [entries]
    edge_types: IntArray  # [entries]
    values: NDArray[np.float64]  # [entries]: log(1 + count) * idf of the edge type, normalized


class CandidateFinder:
    """Finds entities of a graph that are similar to some examples, by their types and edge types."""

    def __init__(self, graph: KnowledgeGraph, type_similarity: float = 0.5) -> None:
        self.graph = graph
        self.type_similarity = type_similarity  # minimum cosine between the profiles of similar types

    def entities(self, examples: IntArray, limit: int, hidden: int | None = None) -> IntArray:
        """At most `limit` entities of types similar to those of the examples, and the examples themselves, sorted.

        In a graph without types, any entity. If there are too many, the most similar ones; see `most_similar`.
        """
        if self.graph.types is None:
            return self.most_similar(np.arange(len(self.graph.entities)), examples, limit, hidden)
        types = self.types(self.graph.types.of_entities(examples))
        similar = distinct(np.concatenate([self.graph.types.entities_with(types).astype(np.int64), examples]))
        return self.most_similar(similar, examples, limit, hidden)

    def types(self, examples: IntArray) -> IntArray:
        """The types whose entities have similar edge types to those of the examples, and the examples, sorted."""
        profiles = self._profiles
        names = [] if self.graph.types is None else self.graph.types.names
        similar = np.zeros(len(names), bool)
        similar[examples] = True
        for example in examples:
            own = profiles.types == example
            weights = np.zeros(2 * len(self.graph.relations))
            weights[profiles.edge_types[own]] = profiles.values[own]
            products = profiles.values * weights[profiles.edge_types]
            similar |= np.bincount(profiles.types, products, minlength=len(names)) >= self.type_similarity
        return np.flatnonzero(similar)

    @cached_property
    def _profiles(self) -> _Profiles:
        graph, types = self.graph, self.graph.types
        if types is None:
            return _Profiles(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        edge_type_count = 2 * len(graph.relations)
        counted = np.zeros((len(types.names), edge_type_count), np.int32)
        sources = np.zeros(edge_type_count, np.int64)
        _count_edge_types(graph.offsets, graph.neighbors, types.offsets, types.members, sources, counted)
        idf = np.log((len(graph.entities) + 1) / (sources + 1))
        of_types, of_edge_types = np.nonzero(counted)
        values = np.log1p(counted[of_types, of_edge_types]) * idf[of_edge_types]
        norms = np.sqrt(np.bincount(of_types, values**2, minlength=len(types.names)))
        return _Profiles(of_types, of_edge_types, values / np.maximum(norms[of_types], 1e-12))

    def most_similar(self, members: IntArray, examples: IntArray, limit: int, hidden: int | None = None) -> IntArray:
        """The `limit` of some sorted entities that are most similar to the examples, including the examples; sorted.

        An entity is similar if its edge types are frequent among the examples but rare in the graph. Edges of a hidden
        relation do not count.
        """
        graph = self.graph
        if len(members) <= limit:
            return members
        shares = np.zeros(2 * len(graph.relations))
        for example in examples:
            shares[np.unique(graph.neighbors_of(int(example), None)[:, 0])] += 1 / len(examples)
        weights = shares * np.log(len(graph.neighbors) / np.maximum(graph.edge_counts, 1))
        if hidden is not None:
            weights[[hidden, hidden + len(graph.relations)]] = 0
        degrees = graph.offsets[members + 1] - graph.offsets[members] + 1
        similarity = np.empty(len(members))
        _add_weights(graph.offsets, graph.neighbors, weights, members, similarity)
        similarity = similarity / degrees - TIE / degrees  # ties: higher degree first
        positions = positions_in(members, examples)
        similarity[positions[positions >= 0]] = np.inf
        return np.sort(members[np.argpartition(-similarity, limit)[:limit]])


@compiled
def _count_edge_types(
    offsets: IntArray, neighbors: IntArray, type_offsets: IntArray, types: IntArray, sources: IntArray, found: IntArray
) -> None:
    """Count the entities that have each edge type, and those of each type that have it, [types, edge types]."""
    last = np.full(len(sources), -1)  # the entity at which an edge type was seen last: each counts once
    for entity in range(len(offsets) - 1):
        for edge in range(offsets[entity], offsets[entity + 1]):
            edge_type = neighbors[edge, 0]
            if last[edge_type] == entity:
                continue
            last[edge_type] = entity
            sources[edge_type] += 1
            for position in range(type_offsets[entity], type_offsets[entity + 1]):
                found[types[position], edge_type] += 1


@compiled
def _add_weights(
    offsets: IntArray, neighbors: IntArray, weights: NDArray[np.float64], members: IntArray, sums: NDArray[np.float64]
) -> None:
    """The sum of the weights [edge types] of each member's edges."""
    for i in range(len(members)):
        total = 0.0
        for edge in range(offsets[members[i]], offsets[members[i] + 1]):
            total += weights[neighbors[edge, 0]]
        sums[i] = total
