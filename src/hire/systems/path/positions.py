"""Positions of some nodes among one another, in a table whose size does not depend on that of a large graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import IntArray
from hire.util.compiled import compiled

SPREADING = 0x1E3779B97F4A7C15  # an odd number, so that neighboring ids are far apart in the table


class Positions(NamedTuple):
    """Distinct nodes by position, in a hash table; or in an array of all nodes, where that is no larger."""

    keys: NDArray[np.int32]  # [slots]: a node, at the first free slot from where it belongs, or -1; none in an array
    values: NDArray[np.int32]  # [slots or nodes]: its position, or -1

    @classmethod
    def of(cls, nodes: IntArray, node_count: int) -> tuple[Positions, NDArray[np.int32], int]:
        """A table of nodes in the order of their first occurrences; the position of each, and how many differ.

        There are `node_count` nodes in the graph.
        """
        slots = 1 << (2 * len(nodes)).bit_length()
        keys = 0 if node_count <= 2 * slots else slots
        table = cls(np.full(keys, -1, np.int32), np.full(keys or node_count, -1, np.int32))
        positions = np.empty(len(nodes), np.int32)
        return table, positions, _number(table, np.ascontiguousarray(nodes, np.int64), positions)

    def find(self, nodes: IntArray) -> NDArray[np.int32]:
        """The position of each node, or -1."""
        found = np.empty(len(nodes), np.int32)
        _find_all(self, np.ascontiguousarray(nodes, np.int64), found)
        return found


@compiled
def _slot(table: Positions, node: int) -> int:
    """Where a node is in a table, or would be."""
    if len(table.keys) == 0:
        return node
    last = len(table.keys) - 1
    slot = ((node * SPREADING) >> 24) & last
    while table.keys[slot] >= 0 and table.keys[slot] != node:
        slot = (slot + 1) & last
    return slot


@compiled
def position_of(table: Positions, node: int) -> int:
    """The position of a node in a table, or -1."""
    position: int = table.values[_slot(table, node)]
    return position


@compiled
def _number(table: Positions, nodes: IntArray, positions: IntArray) -> int:
    count = 0
    for i in range(len(nodes)):
        slot = _slot(table, nodes[i])
        if table.values[slot] < 0:
            table.values[slot] = count
            if len(table.keys):
                table.keys[slot] = nodes[i]
            count += 1
        positions[i] = table.values[slot]
    return count


@compiled
def _find_all(table: Positions, nodes: IntArray, found: IntArray) -> None:
    for i in range(len(nodes)):
        found[i] = position_of(table, nodes[i])
