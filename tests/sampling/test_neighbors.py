from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.sampling.episodes import EpisodeBatch
from hire.sampling.neighbors import NOTHING, NeighborFinder, NeighborIds
from hire.sampling.task_pool import TaskPool, TaskShares
from tests.data.test_graph import ENTITIES, RELATIONS, graph_of, triple

wanted = st.lists(st.tuples(st.integers(0, ENTITIES - 1), st.integers(NOTHING, RELATIONS - 1)), min_size=1, max_size=8)


def tuples_of(found: NeighborIds, row: int) -> list[list[int]]:
    mask = found.mask[row]
    return [
        list(pair) for pair in zip(found.relations[row][mask].tolist(), found.entities[row][mask].tolist(), strict=True)
    ]


@given(st.lists(triple), wanted, st.integers(1, 5))
def test_neighbors_are_the_first_that_are_not_hidden(
    triples: list[tuple[int, int, int]], asked: list[tuple[int, int]], cap: int
) -> None:
    graph = graph_of(triples)
    entities, hidden = np.array(asked).T
    found = NeighborFinder(graph, cap).find(entities, hidden)
    for row, (entity, relation) in enumerate(asked):
        visible = [pair for pair in graph.neighbors_of(entity, None).tolist() if pair[0] % RELATIONS != relation]
        assert tuples_of(found, row) == visible[:cap]
    assert not found.entities[~found.mask].any() and not found.relations[~found.mask].any()


def test_as_many_pairs_of_types_as_there_may_be_are_told_apart() -> None:
    graph = graph_of([(0, 0, 1), (1, 1, 2)], entities=4)  # 2^62 * 4 is 0 in 64 bits
    hidden = np.array([NOTHING - 1, NOTHING - 1 - 2**62])  # all edges, as no entity has a type, and none
    found = NeighborFinder(graph, 3).find(np.array([0, 0]), hidden)
    assert [tuples_of(found, row) for row in (0, 1)] == [[], [[0, 1]]]


def test_shapes_are_kept_even_of_nothing() -> None:
    finder = NeighborFinder(graph_of([(0, 0, 1), (1, 1, 2)]), 3)
    assert finder.find(np.zeros((2, 3, 4), np.int64), np.array([[[0]], [[1]]])).mask.shape[:3] == (2, 3, 4)
    assert finder.find(np.zeros((1, 0), np.int64), np.array(NOTHING)).mask.shape == (1, 0, 1)


def typed_graph(types: list[int]) -> KnowledgeGraph:
    triples = [(head, (head + tail) % RELATIONS, tail) for head in range(ENTITIES) for tail in range(ENTITIES)]
    graph = graph_of(triples)
    names = Vocabulary.of([f"t{i}" for i in range(3)], "type")
    graph.types = Types.of(names, np.arange(ENTITIES), np.array(types), ENTITIES)
    return graph


def test_a_task_between_two_types_sees_no_edge_between_them() -> None:
    types = [i % 3 for i in range(ENTITIES)]
    graph = typed_graph(types)
    finder = NeighborFinder(graph, 1_000)
    heads = torch.tensor([[[0, 1]], [[1, 1]], [[2, 0]]])  # of the types 0 to 1, 1 to 1, 2 to 0
    nothing = torch.zeros(3, 0, dtype=torch.int64)
    episodes = EpisodeBatch(torch.tensor([-1, -1, 1]), heads, nothing, heads, nothing)
    hidden = finder.hidden_from(episodes)
    assert hidden[2] == 1
    for task, between in ((0, {0, 1}), (1, {1})):
        found = finder.find(np.arange(ENTITIES), hidden[task])
        for entity in range(ENTITIES):
            expected = [
                pair for pair in graph.neighbors_of(entity, None).tolist() if {types[entity], types[pair[1]]} != between
            ]
            assert tuples_of(found, entity) == expected


def test_no_episode_sees_a_fact_of_its_own(umls: FewShotDataset) -> None:
    count = len(umls.graph.relations)
    pool = TaskPool(umls, "in-train", TaskShares())
    finder = NeighborFinder(umls.graph, 500)
    for step in range(3):
        batch = pool.batch(0, step, tasks=16, shots=2, queries=3, negatives=4)
        found = finder.find(batch.queries.numpy(), finder.hidden_from(batch)[:, None, None])
        own = (batch.relations % count)[:, None, None, None]
        assert found.mask.any() and not ((found.relations % count == own) & found.mask)[batch.relations >= 0].any()
