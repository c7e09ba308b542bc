"""Counts the edges of a graph by node and edge type, block by block, so that a graph need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.util.arrays import FloatArray, IntArray, distinct, expand_rows, row_offsets
from hire.util.compiled import compiled
from hire.util.keys import Keying

EDGES_AT_ONCE = 1 << 22  # bounds the memory of a block: about 100 bytes an edge
EXACT = 256  # fan-outs up to this one are levels of their own
IN_AN_OCTAVE = 64  # levels between a larger fan-out and twice as much
LEVELS = EXACT + 24 * IN_AN_OCTAVE
FAN_OUTS: FloatArray = np.concatenate(  # [levels]: the fan-out that each level stands for, at least 1
    [
        np.maximum(np.arange(EXACT), 1),
        EXACT * 2 ** (np.arange(LEVELS - EXACT) / IN_AN_OCTAVE),
    ]
).astype(np.float32)


def fan_out_levels(fan_outs: NDArray[Any]) -> NDArray[np.int16]:
    """Fan-outs as small numbers, so that powers of them can be looked up; large ones are rounded by half a percent."""
    octaves = np.log2(np.maximum(fan_outs, EXACT) / EXACT)
    above = np.minimum(EXACT + np.rint(IN_AN_OCTAVE * octaves), LEVELS - 1)
    return np.where(fan_outs <= EXACT, fan_outs, above).astype(np.int16)


class Block(NamedTuple):
    """The edges that leave some consecutive nodes, sorted by node, edge type and target.

    An entry is an edge type of a node. Of an entry with many edges only a sample is walked.
    """

    first: int  # node
    node_count: int
    entries: NDArray[np.int64]  # [entries]: node * edge types + edge type
    counts: NDArray[np.int64]  # [entries]: edges of each entry
    walked: NDArray[np.int64]  # [entries]: those of them that are walked
    edge_types: NDArray[np.int32]  # [walked edges]
    targets: NDArray[np.int32]  # [walked edges]


def count_block(
    nodes: tuple[int, int],
    sources: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    sizes: tuple[int, int],
    max_fan_out: int,
) -> Block:
    """Sort and count the edges that leave the nodes of a range; they come in any order, and may be repeated.

    `sizes` are the numbers of entities and of edge types.
    """
    (first, end), (entity_count, edge_type_count) = nodes, sizes
    local = np.asarray(sources, np.int64) - first  # so that keys of huge graphs fit into 64 bits
    entries = local * edge_type_count + edge_types
    keying, keys = Keying.of(entries, targets, (end - first) * edge_type_count, entity_count)
    pairs, reached = keying.split(distinct(keys))
    pairs += first * edge_type_count
    firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts = np.diff(firsts, append=len(pairs))
    fan_outs = np.repeat(counts, counts).astype(np.float32)
    kept = (fan_outs <= max_fan_out) | (_noise(pairs, reached) < max_fan_out / np.maximum(fan_outs, 1))
    ends = np.concatenate([[0], np.cumsum(kept)])
    return Block(
        first,
        end - first,
        pairs[firsts],
        counts,
        ends[np.append(firsts[1:], len(pairs))[: len(firsts)]] - ends[firsts],
        (pairs[kept] % edge_type_count).astype(np.int32),
        reached[kept].astype(np.int32),
    )


def blocks_of(
    graph: KnowledgeGraph, more: IntArray, relation_count: int, max_fan_out: int, edges_at_once: int = EDGES_AT_ONCE
) -> Iterator[Block]:
    """The blocks of a background graph and more facts [n, 3], whose relations may be those beyond the graph's."""
    known, entity_count = len(graph.relations), len(graph.entities)
    heads, relations, tails = np.asarray(more, np.int64).reshape(-1, 3).T
    others = np.column_stack(
        [
            np.concatenate([heads, tails]),
            np.concatenate([relations, relations + relation_count]),
            np.append(tails, heads),
        ]
    )
    others = others[np.argsort(others[:, 0], kind="stable")]
    for start, stop in _node_ranges(graph.offsets, edges_at_once):
        offsets = np.asarray(graph.offsets[start : stop + 1])
        kinds, targets = np.asarray(graph.neighbors[offsets[0] : offsets[-1]], np.int64).T
        kinds = np.where(kinds < known, kinds, kinds - known + relation_count)  # an inverse
        sources = np.repeat(np.arange(start, stop), np.diff(offsets))
        added = others[slice(*np.searchsorted(others[:, 0], [start, stop]))].T
        sources, kinds, targets = map(np.append, (sources, kinds, targets), added)
        yield count_block((start, stop), sources, kinds, targets, (entity_count, 2 * relation_count), max_fan_out)


def _node_ranges(offsets: IntArray, edges_at_once: int) -> Iterator[tuple[int, int]]:
    """Ranges of nodes that have so many edges at most, or are single nodes."""
    start, count = 0, len(offsets) - 1
    while start < count:
        stop = int(np.searchsorted(offsets, offsets[start] + edges_at_once, side="right")) - 1
        stop = min(max(stop, start + 1), count)
        yield start, stop
        start = stop


@compiled
def fan_outs_back(
    profile_offsets: IntArray,
    profile_edge_types: IntArray,
    profile_counts: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    relation_count: int,
    found: FloatArray,
) -> None:
    """The fan-out of each edge's inverse at the edge's target; profiles are sorted by edge type."""
    for edge in range(len(targets)):
        inverse = (edge_types[edge] + relation_count) % (2 * relation_count)
        low, high = profile_offsets[targets[edge]], profile_offsets[targets[edge] + 1]
        while low < high:
            middle = (low + high) // 2
            if profile_edge_types[middle] < inverse:
                low = middle + 1
            else:
                high = middle
        found[edge] = profile_counts[low]


class TypeShares:
    """Adds up, block by block, how many edges of each type leave the entities of each type."""

    def __init__(self, types: Types | None, edge_type_count: int) -> None:
        self.types = types
        self.edge_type_count = edge_type_count
        self._keys = np.zeros(0, np.int64)
        self._sums: NDArray[Any] = np.zeros(0)

    def add(self, entries: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count the edges of some nodes' entries."""
        if self.types is None:
            return
        nodes, edge_types = np.divmod(entries, self.edge_type_count)
        positions, rows = expand_rows(self.types.offsets, nodes)
        keys = self.types.members[positions].astype(np.int64) * self.edge_type_count + edge_types[rows]
        self._merge(keys, counts[rows])

    def _merge(self, keys: NDArray[np.int64], weights: NDArray[Any]) -> None:
        found, positions = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        self._sums = np.bincount(positions, np.concatenate([self._sums, weights]), minlength=len(found))
        self._keys = found

    def shares(self, edge_counts: IntArray) -> tuple[NDArray[np.int64], IntArray, FloatArray]:
        """For each entity type, in compressed rows: the edge types of its entities, and their share of those edges."""
        if self.types is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        of_types, of_edge_types = np.divmod(self._keys, self.edge_type_count)
        shares = self._sums / np.maximum(edge_counts[of_edge_types], 1)
        offsets = row_offsets(of_types, len(self.types.names))
        return offsets, of_edge_types.astype(np.int32), shares.astype(np.float32)


def _noise(pairs: NDArray[np.int64], targets: NDArray[np.int64]) -> FloatArray:
    """A pseudo-random number between 0 and 1 for each edge, which depends on nothing but the edge (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = pairs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + targets.astype(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
