"""The graph as evidence: known facts as edges in both directions, to be walked from many nodes at once.

An edge type is a relation or its inverse: relation r has the edge types r and r + relations. Where entities have the
same name, each relation has a twin for facts that hold if they are the same entity (`names.SameNames`). While a
relation is a task, it is hidden: none of its edges, nor its twin's, is walked or counted, so that a task cannot see its
own facts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.systems.path.counting import FAN_OUTS, TypeShares, count_block, fan_out_levels, fan_outs_back
from hire.systems.path.names import SameNames, same_name_groups
from hire.systems.path.settings import EvidenceSettings
from hire.util.arrays import FloatArray, IntArray, expand_rows, positions_in, row_offsets
from hire.util.keys import Keying

PAIRS_AT_ONCE = 1 << 22  # bounds the memory needed to count co-occurrences
KEPT_HIDDEN = 64  # relations for which it is kept which edge types they hide


STORED = (  # arrays of a graph of evidence, as the constructor makes them, and what is counted of them when needed
    "profile_keys",
    "profile_counts",
    "profile_edge_types",
    "profile_offsets",
    "_profile_starts",
    "offsets",
    "edge_types",
    "targets",
    "levels",
)
COUNTED = ("degrees", "edge_counts", "source_counts", "idf", "co_occurrence", "co_occurrence_squares", "agreement")


class Edges(NamedTuple):
    """Edges that leave some nodes, or entries of their profiles."""

    owners: NDArray[np.int64]  # [n]: the index of the node that each one belongs to
    ids: NDArray[np.int64]  # [n]: of the edges, or of the entries


class EvidenceGraph:
    """Facts as edges, in compressed rows by node, with statistics of them.

    The profile of a node is how many edges of each type leave it.
    """

    def __init__(
        self,
        triples: IntArray,
        entity_count: int,
        relation_count: int,
        types: Types | None = None,
        settings: EvidenceSettings | None = None,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        self.settings = settings or EvidenceSettings()
        self.entity_count = entity_count
        self.known_relations = relation_count  # those of the dataset; twins and "same name" come after them
        self.same_names = None if groups is None else SameNames(groups, relation_count)
        if self.same_names is not None:
            triples = np.concatenate([triples, self.same_names.twins(triples)])
            relation_count = 2 * relation_count + 1
        self.relation_count = relation_count
        self.edge_type_count = 2 * relation_count
        self.types = types
        self.task_facts: IntArray = np.zeros((0, 3), np.int32)  # known facts besides the background graph
        heads, relations, tails = np.asarray(triples, np.int64).T
        block = count_block(
            (0, entity_count),
            np.concatenate([heads, tails]),
            np.concatenate([relations, relations + relation_count]),
            np.concatenate([tails, heads]),
            (entity_count, self.edge_type_count),
            self.settings.max_fan_out,
        )
        self.profile_keys = block.entries  # [profile]: node * edge types + edge type, sorted
        self.profile_counts = block.counts
        self.profile_edge_types = (block.entries % self.edge_type_count).astype(np.int32)
        self.profile_offsets = row_offsets(block.entries // self.edge_type_count, entity_count)
        self._profile_starts = np.concatenate([[0], np.cumsum(block.walked)])  # [profile + 1]: of each entry's edges
        self.offsets = self._profile_starts[self.profile_offsets]  # [nodes + 1]
        self.edge_types, self.targets = block.edge_types, block.targets  # [edges]
        back = np.empty(len(block.targets), np.float32)
        profiles = self.profile_offsets, self.profile_edge_types, self.profile_counts
        fan_outs_back(*profiles, block.edge_types, block.targets, relation_count, back)
        self.levels = fan_out_levels(
            np.stack([np.repeat(block.counts, block.walked).astype(np.float32), back], axis=1)
        )  # [edges, 2]: of the fan-outs at the source and at the target
        self.removed_edges = np.zeros(0, np.int64)  # ids of edges that are not to be walked, sorted

    @classmethod
    def of(cls, dataset: FewShotDataset, settings: EvidenceSettings | None = None) -> EvidenceGraph:
        """The background graph of a dataset, with the facts of its train tasks unless the settings leave them out."""
        from hire.systems.path.stored import evidence_of  # which makes graphs of evidence itself

        return evidence_of(dataset, settings or EvidenceSettings())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that was counted, as named arrays."""
        found = {name: getattr(self, name) for name in (*STORED, *COUNTED)}
        found["sizes"] = np.array([self.entity_count, self.relation_count, self.known_relations])
        found |= {f"type_shares_{i}": part for i, part in enumerate(self.type_shares)}
        if self.same_names is not None:
            found |= self.same_names.arrays()
        return found

    @classmethod
    def stored(
        cls, arrays: dict[str, Any], types: Types | None, task_facts: IntArray, settings: EvidenceSettings
    ) -> EvidenceGraph:
        """A graph from its arrays; what is missing of what is counted is counted when it is needed."""
        found = cls.__new__(cls)
        found.settings, found.types, found.task_facts = settings, types, task_facts
        found.entity_count, found.relation_count, found.known_relations = arrays["sizes"].tolist()
        found.edge_type_count = 2 * found.relation_count
        found.removed_edges = np.zeros(0, np.int64)
        found.same_names = None
        if "groups" in arrays:
            found.same_names = SameNames.stored(arrays, found.known_relations)
        found.__dict__.update({name: arrays[name] for name in (*STORED, *COUNTED) if name in arrays})
        found.__dict__["type_shares"] = tuple(arrays[f"type_shares_{i}"] for i in range(3))
        return found

    @classmethod
    def counted(cls, graph: KnowledgeGraph, task_facts: IntArray, settings: EvidenceSettings) -> EvidenceGraph:
        """A background graph with more facts [n, 3], counted in memory."""
        triples = np.concatenate([graph.triples, task_facts])
        groups = same_name_groups(graph, settings.max_same_name) if settings.max_same_name > 1 else None
        found = cls(triples, len(graph.entities), len(graph.relations), graph.types, settings, groups)
        found.task_facts = task_facts
        return found

    def extended(self, graph: KnowledgeGraph) -> EvidenceGraph:
        """The same evidence with a larger background graph."""
        return self.counted(graph, self.task_facts, self.settings)

    def inverse(self, edge_types: IntArray) -> IntArray:
        """The inverse edge types."""
        return (edge_types + self.relation_count) % self.edge_type_count

    def leaving(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The edges that leave some nodes, except those of a hidden relation."""
        ids, owners = expand_rows(self.offsets, nodes)
        if hidden is None:
            return Edges(owners, ids)
        seen = ~self.hides(hidden)[self.edge_types[ids]]
        return Edges(owners[seen], ids[seen])

    def leaving_over(self, nodes: IntArray, edge_types: IntArray | int) -> Edges:
        """The edges of a given type that leave some nodes; the type is the same for all nodes, or one for each."""
        positions = self._entries(nodes, edge_types)
        found = np.flatnonzero(positions >= 0)
        ids, owners = expand_rows(self._profile_starts, positions[found])
        return Edges(found[owners], ids)

    def passable(self, nodes: IntArray, hidden: int | None = None) -> NDArray[np.bool_]:
        """Which nodes the middle hop of a walk may start from: all but hubs."""
        return np.asarray(self.visible_degrees(nodes, hidden) <= self.settings.max_degree)

    def visible_degrees(self, nodes: IntArray, hidden: int | None = None) -> NDArray[np.int64]:
        """The number of edges that leave each node, except those of a hidden relation."""
        degrees = self.degrees_of(nodes)
        for edge_type in np.flatnonzero(self.hides(hidden) & (self.edge_counts > 0)).tolist():
            degrees = degrees - self.counts(nodes, edge_type)
        return degrees

    def profiles(self, nodes: IntArray, hidden: int | None = None) -> Edges:
        """The entries of some nodes' profiles, except those of a hidden relation."""
        ids, owners = expand_rows(self.profile_offsets, nodes)
        if hidden is None:
            return Edges(owners, ids)
        seen = ~self.hides(hidden)[self.profile_edge_types[ids]]
        return Edges(owners[seen], ids[seen])

    def counts(self, nodes: IntArray, edge_types: IntArray | int) -> NDArray[np.int64]:
        """The number of edges of a given type that leave each node."""
        positions = self._entries(nodes, edge_types)
        counts = np.zeros(positions.shape, np.int64)
        counts[positions >= 0] = self.entry_counts(positions[positions >= 0])
        return counts

    def entry_counts(self, entries: IntArray) -> NDArray[np.int64]:
        """The number of edges that each of some profile entries stands for."""
        return self.profile_counts[entries]

    def levels_of(self, edges: IntArray) -> NDArray[np.int16]:
        """The levels of each edge's fan-outs at its source and at its target, [edges, 2]."""
        return self.levels[edges]

    def hides(self, hidden: int | None) -> NDArray[np.bool_]:
        """Which edge types are not to be seen while a relation is hidden, [edge types]."""
        kept: dict[int | None, NDArray[np.bool_]] = self.__dict__.setdefault("_hidden_edge_types", {})
        found = kept.get(hidden)
        if found is None:
            relations = np.arange(self.edge_type_count) % self.relation_count
            wanted = -1 if hidden is None else hidden
            found = np.asarray((relations < 2 * self.known_relations) & (relations % self.known_relations == wanted))
            if len(kept) >= KEPT_HIDDEN:
                kept.clear()  # other threads may hold what was there; it stays right
            kept[hidden] = found
        return found

    @property
    def fewer_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Entries of profiles, sorted, that stand for fewer edges than `profile_counts` says, and for how many."""
        return np.zeros(0, np.int64), np.zeros(0, np.int64)

    @cached_property
    def by_name(self) -> FloatArray:
        """Which edge types hold only if entities of the same name are the same, [edge types]."""
        relations = np.arange(self.edge_type_count) % self.relation_count
        return (relations >= self.known_relations).astype(np.float32)

    def degrees_of(self, nodes: IntArray) -> NDArray[np.int64]:
        """The number of edges that leave each of some nodes."""
        return self.degrees[nodes]

    def _entries(self, nodes: IntArray, edge_types: IntArray | int) -> NDArray[np.int64]:
        """The id of the profile entry for each node and edge type, or -1."""
        return positions_in(self.profile_keys, np.asarray(nodes, np.int64) * self.edge_type_count + edge_types)

    def tuple_idf(self, edges: NDArray[np.int64]) -> FloatArray:
        """The inverse document frequency of each edge's (edge type, target) tuple among the nodes, as in `idf`."""
        idf: FloatArray = np.log((self.entity_count + 1) / (FAN_OUTS[self.levels_of(edges)[:, 1]] + 1))
        return idf

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of edges that leave each node, [nodes]."""
        owners = self.profile_keys // self.edge_type_count
        return np.bincount(owners, self.profile_counts, minlength=self.entity_count).astype(np.int64)

    @cached_property
    def edge_counts(self) -> NDArray[np.int64]:
        """The number of facts of each edge type, [edge types]."""
        return np.bincount(self.profile_edge_types, self.profile_counts, minlength=self.edge_type_count).astype(
            np.int64
        )

    @cached_property
    def source_counts(self) -> NDArray[np.int64]:
        """The number of nodes that edges of each type leave, [edge types]."""
        return np.bincount(self.profile_edge_types, minlength=self.edge_type_count)

    @cached_property
    def idf(self) -> FloatArray:
        """The inverse document frequency of each edge type among the nodes that it leaves, [edge types]."""
        return np.log((self.entity_count + 1) / (self.source_counts + 1)).astype(np.float32)

    @cached_property
    def _sample(self) -> NDArray[np.int64]:
        """All nodes of a small graph, or evenly spaced ones of a large graph."""
        return np.arange(0, self.entity_count, -(-self.entity_count // self.settings.sample))

    @cached_property
    def co_occurrence(self) -> FloatArray:
        """The share of nodes with one edge type that have the other, times the idf of the other.

        [edge types, edge types], zero on the diagonal.
        """
        ids, owners = expand_rows(self.profile_offsets, self._sample)
        offsets = row_offsets(owners, len(self._sample))
        together = _co_occurrences(offsets, self.profile_edge_types[ids], self.edge_type_count)
        sources = np.maximum(np.diag(together), 1)
        np.fill_diagonal(together, 0)
        return (together / sources[:, None] * self.idf).astype(np.float32)

    @cached_property
    def co_occurrence_squares(self) -> FloatArray:
        """The squared lengths of the rows of `co_occurrence`, [edge types]."""
        return np.asarray(np.einsum("ij,ij->i", self.co_occurrence, self.co_occurrence))

    @cached_property
    def agreement(self) -> FloatArray:
        """How often two edge types link the same pairs, [edge types, edge types]: the cosine of their sets of pairs."""
        ids, owners = expand_rows(self.offsets, self._sample)
        pairs = owners * self.entity_count + self.targets[ids]
        pair_count = len(self._sample) * self.entity_count
        links = np.sort(Keying.of(pairs, self.edge_types[ids], pair_count, self.edge_type_count)[1])
        firsts = np.flatnonzero(np.diff(links // self.edge_type_count, prepend=-1))
        edge_types = (links % self.edge_type_count).astype(np.int32)
        together = _co_occurrences(np.append(firsts, len(links)), edge_types, self.edge_type_count)
        sizes = np.sqrt(np.maximum(np.diag(together), 1))
        return (together / sizes / sizes[:, None]).astype(np.float32)

    @cached_property
    def type_shares(self) -> tuple[NDArray[np.int64], IntArray, FloatArray]:
        """For each entity type, in compressed rows: the edge types of its entities, and their share of those edges."""
        found = TypeShares(self.types, self.edge_type_count)
        found.add(self.profile_keys, self.profile_counts)
        return found.shares(self.edge_counts)


def _co_occurrences(offsets: NDArray[np.int64], edge_types: IntArray, edge_type_count: int) -> NDArray[np.float64]:
    """The number of rows in which two edge types both occur, [edge types, edge types]."""
    counted = np.zeros(edge_type_count * edge_type_count)
    work = np.cumsum(np.diff(offsets) ** 2)
    start = 0
    while start < len(work):
        done = work[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(work, done + PAIRS_AT_ONCE)))
        rows = np.arange(start, end)
        first, owners = expand_rows(offsets, rows)
        second, entries = expand_rows(offsets, rows[owners])
        counted += np.bincount(
            edge_types[first][entries].astype(np.int64) * edge_type_count + edge_types[second],
            minlength=edge_type_count * edge_type_count,
        )
        start = end
    return counted.reshape(edge_type_count, edge_type_count)
