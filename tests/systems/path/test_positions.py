from __future__ import annotations

import numpy as np
import pytest

from hire.systems.path.positions import Positions


@pytest.mark.parametrize("step", [1, 3, 1 << 20])  # neighbors, and ids that have their low bits in common
def test_positions_are_those_of_a_dictionary(step: int) -> None:
    nodes = np.random.default_rng(0).integers(0, 2_000, 3_000) * step
    table, positions, count = Positions.of(nodes)
    expected: dict[int, int] = {}
    for node in nodes.tolist():
        expected.setdefault(node, len(expected))
    assert positions.tolist() == [expected[node] for node in nodes.tolist()] and count == len(expected)
    asked = np.arange(0, 2_500 * step, step)
    assert table.find(asked[::-1]).tolist() == [expected.get(node, -1) for node in asked[::-1].tolist()]


def test_no_nodes() -> None:
    table, positions, count = Positions.of(np.zeros(0, np.int32))
    assert not len(positions) and count == 0
    assert table.find(np.array([0, 7])).tolist() == [-1, -1]
