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
        edge_types = np.concatenate([relations, relations + graph.relation_count])
        self._entries_less, less = np.unique(graph._entries(sources, edge_types), return_counts=True)
        self._counts_left = graph.profile_counts[self._entries_less] - less
        self.ends, self._degrees_less = np.unique(sources, return_counts=True)  # the nodes that lose an edge
        # Of a hub not all edges are walked, so a fact may have an edge in one direction only, or in none.
        edges = graph.leaving_over(sources, edge_types)
        same = graph.targets[edges.ids] == targets[edges.owners]
        self._removed = np.unique(edges.ids[same])
        lost = np.bincount(edge_types, minlength=graph.edge_type_count)
        self.shrinks = bool((lost > NOTABLE_SHARE * graph.edge_counts).any())  # whether some relation is much smaller
        if self.shrinks:
            empty = self._entries_less[self._counts_left == 0]
            self.edge_counts = graph.edge_counts - lost
            self.source_counts = graph.source_counts - np.bincount(
                graph.profile_edge_types[empty], minlength=graph.edge_type_count
            )
            self.__dict__.pop("idf", None)  # follows from the sources

    @property
    def removed(self) -> tuple[NDArray[np.int64], IntArray, IntArray]:
        """The edges that are left out: source, edge type and target of each."""
        sources = np.searchsorted(self.offsets, self._removed, side="right") - 1
        return sources, self.edge_types[self._removed], self.targets[self._removed]

    def leaving(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The edges that leave some nodes, but those of a hidden relation."""
        return self._present(super().leaving(nodes, hidden))

    def leaving_over(self, nodes: IntArray, edge_types: IntArray | int) -> Edges:
        """The edges of one type, of each its own or of all the same, that leave some nodes."""
        return self._present(super().leaving_over(nodes, edge_types))

    def _present(self, edges: Edges) -> Edges:
        present = ~contains(self._removed, edges.ids)
        return edges if present.all() else Edges(edges.owners[present], edges.ids[present])

    def profiles(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The entries of some nodes' profiles, but those of a hidden relation."""
        entries = super().profiles(nodes, hidden)
        present = self.entry_counts(entries.ids) > 0
        return Edges(entries.owners[present], entries.ids[present])

    def entry_counts(self, entries: IntArray) -> NDArray[np.int64]:
        """How many edges some entries of profiles stand for."""
        positions = positions_in(self._entries_less, entries)
        return np.where(positions >= 0, self._counts_left[positions], self.profile_counts[entries])

    def log_fan_outs_of(self, edges: IntArray) -> FloatArray:
        """Of each edge the logarithm of the fan-out at its source and at its target, [edges, 2]."""
        at_source = np.searchsorted(self._profile_starts, edges, side="right") - 1
        at_target = self._entries(self.targets[edges], self.inverse(self.edge_types[edges]))
        log_fan_outs = self.log_fan_outs[edges]
        for column, entries in enumerate((at_source, at_target)):
            positions = positions_in(self._entries_less, entries)
            fewer = np.flatnonzero(positions >= 0)
            log_fan_outs[fewer, column] = np.log(np.maximum(self._counts_left[positions[fewer]], 1))
        return log_fan_outs

    def degrees_of(self, nodes: IntArray) -> NDArray[np.int64]:
        """The number of edges that leave some nodes."""
        positions = positions_in(self.ends, nodes)
        return self.degrees[nodes] - np.where(positions >= 0, self._degrees_less[positions], 0)
