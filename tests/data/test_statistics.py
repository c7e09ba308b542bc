from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.data.statistics import degree_histogram, shared_context, statistics
from tests.data.test_graph import ENTITIES, graph_of, triple


@given(st.lists(triple), st.integers(1, 4))
def test_shared_context_equals_slow_counting(triples: list[tuple[int, int, int]], cap: int) -> None:
    graph = graph_of(triples)
    pairs = np.array([(h, t) for h in range(ENTITIES) for t in range(ENTITIES)])
    entities, tuples = [], []
    for h, t in pairs:
        of_head, of_tail = ({tuple(x) for x in graph.neighbors_of(e, cap).tolist()} for e in (h, t))
        tuples.append(len(of_head & of_tail))
        entities.append(len({e for _, e in of_head} & {e for _, e in of_tail}))
    found = shared_context(graph, pairs, cap)
    assert found.triplets == len(pairs)
    assert found.sharing_entities == sum(n > 0 for n in entities) and found.shared_entities == sum(entities)
    assert found.sharing_tuples == sum(n > 0 for n in tuples) and found.shared_tuples == sum(tuples)


def test_degree_histogram_has_classes_that_double() -> None:
    degrees = np.array([0, 1, 2, 3, 4, 7, 8, 8])
    assert degree_histogram(degrees) == [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 2)]


def test_umls_one(umls: FewShotDataset) -> None:
    found = statistics(umls)
    assert found["entities"] == 135 and found["relations"]["all"] == 46
    assert sum(found["triples"].values()) == 6529
    assert all(50 < task["triples"] < 500 for task in found["tasks"])


def test_nell_one_has_the_figures_of_the_paper(nell_one: FewShotDataset) -> None:
    start = time.process_time()
    found = statistics(nell_one)
    assert time.process_time() - start < 10
    assert found["relations"] == {"all": 358, "background": 291, "tasks": 67}
    assert found["entities"] == 68_544
    assert found["triples"] == {"background": 181_109, "train": 8_526, "dev": 1_004, "test": 2_158}
    assert found["shared_context"] == {
        "triplets": 189_635,
        "sharing_entities": 39_234,
        "shared_entities": 117_368,
        "sharing_tuples": 26_129,
        "shared_tuples": 105_113,
    }
    candidates = {task["relation"]: task["candidates"] for task in found["tasks"]}
    assert candidates["concept:teamcoach"] == 10_569 and candidates["concept:sportsgamesport"] == 123
