from __future__ import annotations

import numpy as np
import pytest

from hire.systems.path.positions import Positions


@pytest.mark.parametrize("step", [1, 3, 1 << 20])  # neighbors, and ids that have their low bits in common
@pytest.mark.parametrize("count", [3_000, 300])  # an array of all nodes, if there are few more than are asked about
def test_positions_are_those_of_a_dictionary(step: int, count: int) -> None:
    nodes = np.random.default_rng(0).integers(0, 2_000, count) * step
    table, positions, found = Positions.of(nodes, 2_500 * step)
    assert (len(table.keys) == 0) == (count == 3_000 and step < 1 << 20)
    expected: dict[int, int] = {}
    for node in nodes.tolist():
        expected.setdefault(node, len(expected))
    assert positions.tolist() == [expected[node] for node in nodes.tolist()] and found == len(expected)
    asked = np.arange(0, 2_500 * step, step)
    assert table.find(asked[::-1]).tolist() == [expected.get(node, -1) for node in asked[::-1].tolist()]


@pytest.mark.parametrize("node_count", [8, 100])
def test_no_nodes(node_count: int) -> None:
    table, positions, count = Positions.of(np.zeros(0, np.int32), node_count)
    assert not len(positions) and count == 0
    assert table.find(np.array([0, 7])).tolist() == [-1, -1]
