"""The graph as it would be without a few of its facts, to see what a score owes to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hire.systems.path.graph import Edges, EvidenceGraph
from hire.util.arrays import FloatArray, IntArray, contains, positions_in

NOTABLE_SHARE = 0.05  # of a relation's facts


class ReducedGraph(EvidenceGraph):
    """A view of a graph without some facts [n, 3], head, relation and tail of each, in both directions.

    It costs as much as there are facts to leave out, however large the graph is. Walks, profiles, degrees and fan-outs
    are those of the graph without the facts, and so are the sizes of relations, where it makes a difference. What is
    counted over the whole graph besides, such as co-occurrence, stays as it is: a few facts do not change it by much.
    """

    def __init__(self, graph: EvidenceGraph, facts: IntArray) -> None:
        self.__dict__.update(graph.__dict__)
        heads, relations, tails = np.unique(np.asarray(facts, np.int64), axis=0).T
        sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        kinds = np.concatenate([relations, relations + graph.relation_count])
        self._entries_less, less = np.unique(graph._entries(sources, kinds), return_counts=True)
        self._counts_left = graph.profile_counts[self._entries_less] - less
        self.ends, self._degrees_less = np.unique(sources, return_counts=True)  # the entities that lose an edge
        # Of a hub not all edges are walked, so a fact may have an edge in one direction only, or in none.
        edges = graph.leaving_over(sources, kinds)
        same = graph.targets[edges.numbers] == targets[edges.owners]
        self._removed = np.unique(edges.numbers[same])
        lost = np.bincount(kinds, minlength=graph.kind_count)
        self.shrinks = bool((lost > NOTABLE_SHARE * graph.kind_sizes).any())  # whether some relation is much smaller
        if self.shrinks:
            empty = self._entries_less[self._counts_left == 0]
            self.kind_sizes = graph.kind_sizes - lost
            self.kind_sources = graph.kind_sources - np.bincount(graph.profile_kinds[empty], minlength=graph.kind_count)
            self.__dict__.pop("rarity", None)  # follows from the sources

    @property
    def removed(self) -> tuple[NDArray[np.int64], IntArray, IntArray]:
        """The edges that are left out: source, kind and target of each."""
        sources = np.searchsorted(self.offsets, self._removed, side="right") - 1
        return sources, self.kinds[self._removed], self.targets[self._removed]

    def leaving(self, entities: IntArray, hidden: int | None = None) -> Edges:
        """The edges that leave some entities, but those of a hidden relation."""
        return self._present(super().leaving(entities, hidden))

    def leaving_over(self, entities: IntArray, kinds: IntArray | int) -> Edges:
        """The edges of one kind, of each its own or of all the same, that leave some entities."""
        return self._present(super().leaving_over(entities, kinds))

    def _present(self, edges: Edges) -> Edges:
        present = ~contains(self._removed, edges.numbers)
        return edges if present.all() else Edges(edges.owners[present], edges.numbers[present])

    def profiles(self, entities: IntArray, hidden: int | None = None) -> Edges:
        """The entries of some entities' profiles, but those of a hidden relation."""
        entries = super().profiles(entities, hidden)
        present = self.entry_counts(entries.numbers) > 0
        return Edges(entries.owners[present], entries.numbers[present])

    def entry_counts(self, entries: IntArray) -> NDArray[np.int64]:
        """How many edges some entries of profiles stand for."""
        places = positions_in(self._entries_less, entries)
        return np.where(places >= 0, self._counts_left[places], self.profile_counts[entries])

    def log_fans_of(self, edges: IntArray) -> FloatArray:
        """Of each edge the logarithm of the fan-out at its source and at its target, [edges, 2]."""
        at_source = np.searchsorted(self._profile_starts, edges, side="right") - 1
        at_target = self._entries(self.targets[edges], self.inverse(self.kinds[edges]))
        log_fans = self.log_fans[edges]
        for column, entries in enumerate((at_source, at_target)):
            places = positions_in(self._entries_less, entries)
            fewer = np.flatnonzero(places >= 0)
            log_fans[fewer, column] = np.log(np.maximum(self._counts_left[places[fewer]], 1))
        return log_fans

    def degrees_of(self, entities: IntArray) -> NDArray[np.int64]:
        """The number of edges that leave some entities."""
        places = positions_in(self.ends, entities)
        return self.degrees[entities] - np.where(places >= 0, self._degrees_less[places], 0)
