from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError
from hire.util.arrays import expand_rows

ENTITIES, RELATIONS = 6, 3
triple = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


def graph_of(triples: list[tuple[int, int, int]], entities: int = ENTITIES) -> KnowledgeGraph:
    return KnowledgeGraph.of(
        Vocabulary.of([f"e{i}" for i in range(entities)], "entity"),
        Vocabulary.of([f"r{i}" for i in range(RELATIONS)], "relation"),
        np.array(triples, np.int32).reshape(-1, 3),
    )


@given(st.lists(triple))
def test_neighbors_are_those_of_the_file_in_its_order(triples: list[tuple[int, int, int]]) -> None:
    expected: dict[int, list[list[int]]] = defaultdict(list)
    for head, relation, tail in triples:  # as the benchmark's own programs collect them
        expected[head].append([relation, tail])
        expected[tail].append([relation + RELATIONS, head])
    graph = graph_of(triples)
    for entity in range(ENTITIES):
        assert graph.neighbors_of(entity, None).tolist() == expected[entity]
        assert graph.neighbors_of(entity, 2).tolist() == expected[entity][:2]
    assert graph.degrees.tolist() == [len(expected[entity]) for entity in range(ENTITIES)]
    assert graph.background_relations.tolist() == sorted({relation for _, relation, _ in triples})


def test_names_of_relations_and_their_inverses() -> None:
    graph = graph_of([(0, 1, 2)])
    assert [graph.relation_name(r) for r in (1, 4)] == ["r1", "r1_inv"]


def test_more_edge_types_than_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.data.graph.MOST_IDS", 2 * RELATIONS)
    graph_of([(0, 1, 2)])
    monkeypatch.setattr("hire.data.graph.MOST_IDS", 2 * RELATIONS - 1)
    with pytest.raises(HireError, match="6 ids of the kind 'relation or inverse' are too many"):
        graph_of([(0, 1, 2)])


def test_saved_and_mapped_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.util.files.LARGEST_IN_MEMORY", 0)
    graph = graph_of([(0, 1, 2), (2, 0, 2), (5, 2, 0)])
    graph.labels = StringTable.of(["zero", "", "", "", "", "five"])
    graph.types = Types.of(Vocabulary.of(["t", "u"], "type"), np.array([0, 0, 5, 0]), np.array([1, 0, 1, 1]), ENTITIES)
    graph.save(tmp_path)
    again = KnowledgeGraph.open(tmp_path)
    for name in ("triples", "offsets", "neighbors"):
        assert np.array_equal(getattr(again, name), getattr(graph, name))
        assert isinstance(getattr(again, name), np.memmap)
    assert [again.label(e) for e in range(ENTITIES)] == ["zero", "e1", "e2", "e3", "e4", "five"]
    assert again.types is not None
    assert again.types.of_entity(0).tolist() == [0, 1]


def test_types() -> None:
    types = Types.of(Vocabulary.of(["t", "u", "v"]), np.array([3, 0, 3, 1]), np.array([1, 0, 2, 0]), 5)
    assert [types.of_entity(e).tolist() for e in range(5)] == [[0], [0], [], [1, 2], []]
    assert types.of_entities(np.array([3, 0, 3])).tolist() == [0, 1, 2]
    assert types.entities_with(np.array([0])).tolist() == [0, 1]
    assert types.entities_with(np.array([1, 2])).tolist() == [3]
    assert types.entities_with(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("limit", [None, 2])
def test_expand_rows(limit: int | None) -> None:
    offsets = np.array([0, 3, 3, 7])
    positions, owners = expand_rows(offsets, np.array([2, 1, 0, 2]), limit)
    rows = [list(range(3, 7)), [], list(range(3)), list(range(3, 7))]
    assert positions.tolist() == [p for row in rows for p in row[:limit]]
    assert owners.tolist() == [i for i, row in enumerate(rows) for _ in row[:limit]]
