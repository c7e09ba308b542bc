"""All entities as tails of one head: most are told by their kind alone, the others are scored one by one.

Entities of a kind have the same types and the same edge types, each as often. If no walk leads from the head to a tail,
and the tail shares no tuple with a reference, its score depends on its kind alone. So the read-out is computed once a
kind, and only once a relation where the kind has no edge type in common with a reference tail. Entities that a walk
reaches, or that share tuples with a reference, are scored as ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hire.systems.path import kernels
from hire.systems.path.features import HEAD, TAIL, ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.network import DEGREE, PathNetwork
from hire.systems.path.readout import Described
from hire.systems.path.tile_kernels import TiledTails
from hire.systems.path.walks import PAIR_FEATURES, TailInputs, nodes_within_two_hops
from hire.util.arrays import FloatArray, IntArray, distinct, expand_rows
from hire.util.compiled import compiled

KINDS_AT_ONCE = 1 << 14  # bounds the memory
ALIKE = PAIR_FEATURES.index("like one reference")
EMPTY = -1


class Kinds(NamedTuple):
    """Which entities have the same edge types, as often, and the same types."""

    of: NDArray[np.int32]  # [entities]
    examples: NDArray[np.int64]  # [kinds]: the first entity of each

    @classmethod
    def in_graph(cls, graph: EvidenceGraph) -> Kinds:
        """The kinds of all entities."""
        count = graph.entity_count
        type_offsets, types = np.zeros(count + 1, np.int64), np.zeros(0, np.int32)
        if graph.types is not None:
            type_offsets, types = graph.types.offsets, graph.types.members
        found = cls(np.empty(count, np.int32), np.empty(count, np.int64))
        table = np.full(1 << max(4, (2 * count).bit_length()), EMPTY, np.int32)
        profiles = graph.profile_offsets, graph.profile_edge_types, graph.profile_counts
        kinds = _number_kinds(*profiles, type_offsets, types, table, *found)
        return cls(found.of, found.examples[:kinds].copy())


class Arrivals(NamedTuple):
    """The nodes that have an edge to each node, in compressed rows: where a walk that comes from it arrives."""

    offsets: NDArray[np.int64]  # [nodes + 1]
    nodes: NDArray[np.int32]  # [edges]

    @classmethod
    def in_graph(cls, graph: EvidenceGraph) -> Arrivals:
        """Those of all nodes."""
        offsets = np.zeros(graph.entity_count + 2, np.int64)
        nodes = np.empty(len(graph.targets), np.int32)
        _turn_around(graph.offsets, graph.targets, offsets, nodes)
        return cls(offsets[:-1], nodes)

    def after(self, nodes: IntArray) -> IntArray:
        """The nodes where walks that come from some nodes arrive, with duplicates."""
        return self.nodes[expand_rows(self.offsets, nodes)[0]]


class WholeGraph:
    """What is the same for all relations: the kinds of a graph's entities, and where walks arrive."""

    def __init__(self, graph: EvidenceGraph) -> None:
        self.kinds, self.arrivals = Kinds.in_graph(graph), Arrivals.in_graph(graph)


class WholeTails:
    """All entities as tails of a relation."""

    def __init__(
        self, whole: WholeGraph, network: PathNetwork, weights: list[torch.Tensor], evidence: ReferenceEvidence
    ) -> None:
        self.whole, self.evidence, self.network = whole, evidence, network
        self.special = evidence.sharing_entities  # sorted
        examples = self._examples(whole.kinds)
        self.scores = np.empty(len(examples), np.float32)  # [kinds], of entities unlike any reference tail
        alike, cosines, units, linear, degrees = [], [], [], [], []
        for start in range(0, len(examples), KINDS_AT_ONCE):
            some = examples[start : start + KINDS_AT_ONCE]
            features, similarities = evidence.described(some)
            inputs, similar = TailInputs.of(evidence, some, features), similarities[TAIL, 0]
            described = network.describe(weights, inputs)
            tiled = network.tiled(described, inputs.features[:, DEGREE])
            self.scores[start : start + len(some)] = network.unreached_scores(tiled, _features(len(some)))
            like = np.flatnonzero(similar.any(axis=1))
            rows = torch.from_numpy(like)
            alike.append(start + like)
            cosines.append(similar[like])
            units.append(described.units[rows])
            linear.append(described.linear[rows])
            degrees.append(inputs.features[rows, DEGREE])
        self.alike = np.concatenate(alike)  # kinds whose scores depend on the head
        self.similarities = np.zeros((2, len(self.alike), len(evidence.pairs)), np.float32)
        self.similarities[0] = np.concatenate(cosines)
        self.tiled: TiledTails = network.tiled(Described(torch.cat(units), torch.cat(linear)), torch.cat(degrees))

    def _examples(self, kinds: Kinds) -> IntArray:
        """An entity of each kind, [kinds]: one that is not special, if there is one."""
        examples, own = kinds.examples.copy(), kinds.of[self.special]
        wanted = np.zeros(len(examples), bool)
        wanted[own[np.isin(examples[own], self.special)]] = True
        others = np.setdiff1d(np.flatnonzero(wanted[kinds.of]), self.special, assume_unique=True)
        examples[kinds.of[others]] = others
        return examples

    def linked(self, head: int) -> IntArray:
        """The entities that have to be scored one by one, sorted: no walk from the head leads to any other."""
        near = nodes_within_two_hops(self.evidence, head)
        return distinct(np.concatenate([self.special, near, self.whole.arrivals.after(near)]))

    def unlinked_scores(self, head: int) -> FloatArray:
        """The scores of all other entities, [entities]; where entities are linked, they mean nothing."""
        features = _features(len(self.alike))
        of_head = self.evidence.similarities(np.array([head]), HEAD)
        nothing = np.zeros((0, 0), np.int64)
        kernels.match_references(of_head, self.similarities, nothing, features[:, ALIKE:])
        scores = self.scores.copy()
        scores[self.alike] = self.network.unreached_scores(self.tiled, features)
        return scores[self.whole.kinds.of]


def _features(count: int) -> FloatArray:
    """The features of pairs without any link."""
    return np.zeros((count, len(PAIR_FEATURES)), np.float32)


@compiled
def _number_kinds(
    offsets: IntArray,
    edge_types: IntArray,
    counts: IntArray,
    type_offsets: IntArray,
    types: IntArray,
    table: IntArray,
    kinds: IntArray,
    examples: IntArray,
) -> int:
    """Number the kinds of all entities, in the order of their first entities; returns how many there are.

    `table` takes each kind at its hash, or at the next place that is free; it has room for twice as many.
    """
    found = 0
    mixer, mask = np.uint64(0x9E3779B97F4A7C15), np.uint64(len(table) - 1)
    for entity in range(len(kinds)):
        first, size = offsets[entity], offsets[entity + 1] - offsets[entity]
        first_type, type_count = type_offsets[entity], type_offsets[entity + 1] - type_offsets[entity]
        mixed = np.uint64(size)
        for entry in range(first, first + size):
            mixed = (mixed ^ np.uint64(edge_types[entry])) * mixer
            mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(counts[entry])) * mixer
        for position in range(first_type, first_type + type_count):
            mixed = (mixed ^ (mixed >> np.uint64(31)) ^ np.uint64(types[position])) * mixer
        place = np.int64((mixed ^ (mixed >> np.uint64(32))) & mask)
        while table[place] >= 0:
            other = examples[table[place]]
            same = offsets[other + 1] - offsets[other] == size
            same &= type_offsets[other + 1] - type_offsets[other] == type_count
            if same:
                for i in range(size):
                    same &= edge_types[offsets[other] + i] == edge_types[first + i]
                    same &= counts[offsets[other] + i] == counts[first + i]
                for i in range(type_count):
                    same &= types[type_offsets[other] + i] == types[first_type + i]
            if same:
                break
            place = (place + 1) % len(table)
        if table[place] < 0:
            table[place] = found
            examples[found] = entity
            found += 1
        kinds[entity] = table[place]
    return found


@compiled
def _turn_around(offsets: IntArray, targets: IntArray, found: IntArray, nodes: IntArray) -> None:
    """Put the sources of edges into compressed rows by target; `found` [nodes + 2], zero now, takes their offsets."""
    for edge in range(len(targets)):
        found[targets[edge] + 2] += 1
    for node in range(2, len(found)):
        found[node] += found[node - 1]
    for node in range(len(offsets) - 1):
        for edge in range(offsets[node], offsets[node + 1]):
            place = found[targets[edge] + 1]
            found[targets[edge] + 1] += 1
            nodes[place] = node
