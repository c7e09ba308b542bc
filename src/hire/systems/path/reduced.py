"""The graph without a few of its facts, to measure what a score owes to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hire.systems.path.counting import fan_out_levels
from hire.systems.path.graph import Edges, EvidenceGraph
from hire.util.arrays import IntArray, contains, positions_in

NOTABLE_SHARE = 0.05  # of a relation's facts


class ReducedGraph(EvidenceGraph):
    """A view of a graph without some facts [n, 3] (head, relation, tail), in both directions, and without their twins.

    Its cost depends on the number of facts to leave out, not on the size of the graph. Walks, profiles, degrees and
    fan-outs are those of the graph without the facts, and so are the sizes of relations where it makes a difference.
    Other statistics of the whole graph, such as co-occurrence, stay as they are: a few facts hardly change them.
    """

    def __init__(self, graph: EvidenceGraph, facts: IntArray) -> None:
        self.__dict__.update(graph.__dict__)
        if graph.same_names is not None:
            facts = graph.same_names.gone_with(facts)
        heads, relations, tails = np.unique(np.asarray(facts, np.int64), axis=0).T
        sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        edge_types = np.concatenate([relations, relations + graph.relation_count])
        self._entries_less, less = np.unique(graph._entries(sources, edge_types), return_counts=True)
        self._counts_left = graph.profile_counts[self._entries_less] - less
        self.ends, self._degrees_less = np.unique(sources, return_counts=True)  # nodes that lose edges
        # Not all edges of a hub are walked, so a fact may have an edge in one direction only, or none.
        edges = graph.leaving_over(sources, edge_types)
        same = graph.targets[edges.ids] == targets[edges.owners]
        self.removed_edges = np.unique(edges.ids[same])
        lost = np.bincount(edge_types, minlength=graph.edge_type_count)
        self.shrinks = bool((lost > NOTABLE_SHARE * graph.edge_counts).any())  # some relation is notably smaller
        if self.shrinks:
            empty = self._entries_less[self._counts_left == 0]
            self.edge_counts = graph.edge_counts - lost
            self.source_counts = graph.source_counts - np.bincount(
                graph.profile_edge_types[empty], minlength=graph.edge_type_count
            )
            self.__dict__.pop("idf", None)  # depends on source_counts

    @property
    def removed(self) -> tuple[NDArray[np.int64], IntArray, IntArray]:
        """The edges that are left out: their sources, edge types and targets."""
        sources = np.searchsorted(self.offsets, self.removed_edges, side="right") - 1
        return sources, self.edge_types[self.removed_edges], self.targets[self.removed_edges]

    @property
    def fewer_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Entries of profiles, sorted, that have lost edges, and how many are left."""
        return self._entries_less, self._counts_left

    def leaving(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The edges that leave some nodes, except those of a hidden relation."""
        return self._present(super().leaving(nodes, hidden))

    def leaving_over(self, nodes: IntArray, edge_types: IntArray | int) -> Edges:
        """The edges of a given type that leave some nodes; the type is the same for all nodes, or one for each."""
        return self._present(super().leaving_over(nodes, edge_types))

    def _present(self, edges: Edges) -> Edges:
        present = ~contains(self.removed_edges, edges.ids)
        return edges if present.all() else Edges(edges.owners[present], edges.ids[present])

    def profiles(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The entries of some nodes' profiles, except those of a hidden relation."""
        entries = super().profiles(nodes, hidden)
        present = self.entry_counts(entries.ids) > 0
        return Edges(entries.owners[present], entries.ids[present])

    def entry_counts(self, entries: IntArray) -> NDArray[np.int64]:
        """The number of edges that each of some profile entries stands for."""
        positions = positions_in(self._entries_less, entries)
        return np.where(positions >= 0, self._counts_left[positions], self.profile_counts[entries])

    def levels_of(self, edges: IntArray) -> NDArray[np.int16]:
        """The levels of each edge's fan-outs at its source and at its target, [edges, 2]."""
        at_source = np.searchsorted(self._profile_starts, edges, side="right") - 1
        at_target = self._entries(self.targets[edges], self.inverse(self.edge_types[edges]))
        levels = self.levels[edges]
        for column, entries in enumerate((at_source, at_target)):
            positions = positions_in(self._entries_less, entries)
            fewer = np.flatnonzero(positions >= 0)
            levels[fewer, column] = fan_out_levels(np.maximum(self._counts_left[positions[fewer]], 1))
        return levels

    def degrees_of(self, nodes: IntArray) -> NDArray[np.int64]:
        """The number of edges that leave each of some nodes."""
        positions = positions_in(self.ends, nodes)
        return self.degrees[nodes] - np.where(positions >= 0, self._degrees_less[positions], 0)
