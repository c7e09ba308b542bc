from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hire.systems.path.counting import count_block
from tests.support import ranked_keys

MANY, EDGE_TYPES = 200_000_000, 8_002  # keys of all nodes at once would need 69 bits
nodes = st.one_of(st.integers(0, 2), st.integers(MANY - 3, MANY - 1))
edges = st.lists(st.tuples(nodes, st.one_of(st.integers(0, 2), st.integers(7_999, 8_001)), nodes), max_size=30)


@given(edges)
def test_a_block_of_any_number_of_nodes_is_counted(found: list[tuple[int, int, int]]) -> None:
    sources, edge_types, targets = np.array(found, np.int64).reshape(-1, 3).T
    block = count_block((0, MANY), sources, edge_types, targets, (MANY, EDGE_TYPES), 300)
    counts = sorted(Counter((source, edge_type) for source, edge_type, _ in set(found)).items())
    assert block.entries.tolist() == [source * EDGE_TYPES + edge_type for (source, edge_type), _ in counts]
    assert block.counts.tolist() == block.walked.tolist() == [count for _, count in counts]
    walked = zip(block.edge_types.tolist(), block.targets.tolist(), strict=True)
    assert list(walked) == [(edge_type, target) for _, edge_type, target in sorted(set(found))]


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=200))
def test_ranks_change_nothing_not_even_which_edges_of_a_hub_are_walked(found: list[tuple[int, int, int]]) -> None:
    sources, edge_types, targets = np.array(found, np.int64).reshape(-1, 3).T
    given_to = (5, 12), sources + 5, edge_types, targets, (7, 7), 2
    plain = count_block(*given_to)
    with ranked_keys():
        ranked = count_block(*given_to)
    for one, other in zip(map(np.asarray, plain), map(np.asarray, ranked), strict=True):
        assert one.dtype == other.dtype and one.tolist() == other.tolist()
