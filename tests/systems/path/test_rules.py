from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.systems.path.rules import PATH_FEATURES, Rules, paths_between
from tests.systems.path.test_graph import ENTITIES, RELATIONS, TRIPLES, edges_of, graph_of

EDGE_TYPES = 2 * RELATIONS


@settings(max_examples=60, deadline=None)
@given(TRIPLES, st.lists(st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, ENTITIES - 1)), min_size=1, max_size=4))
def test_paths_are_those_of_plain_loops(triples: list[tuple[int, int, int]], pairs: list[tuple[int, int]]) -> None:
    hidden = 1
    edges = edges_of(triples, hidden)
    shares: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {
        name: np.zeros(EDGE_TYPES) for name in PATH_FEATURES
    }
    rules: dict[tuple[int, int], float] = {}
    for head, tail in pairs:
        first = {(edge_type, to) for source, edge_type, to in edges if source == head and to != tail}
        last = {(source, edge_type) for source, edge_type, to in edges if to == tail and source != head}
        links = {edge_type for source, edge_type, to in edges if (source, to) == (head, tail)}
        two = {(k1, k2) for k1, middle in first for source, k2 in last if middle == source}
        three = {
            (k1, k2, k3)
            for k1, near in first
            for source, k2, far in edges
            if source == near and far != head
            for start, k3 in last
            if start == far
        }
        for name, edge_types in {
            "links": links,
            "at heads": {edge_type for edge_type, _ in first},
            "at tails": {edge_type for _, edge_type in last},
            "first of two": {path[0] for path in two},
            "last of two": {path[1] for path in two},
            "first of three": {path[0] for path in three},
            "middle of three": {path[1] for path in three},
            "last of three": {path[2] for path in three},
        }.items():
            shares[name][list(edge_types)] += 1 / len(pairs)
        for path in two:
            rules[path] = rules.get(path, 0) + 1 / len(pairs)
    found = [paths_between(graph_of(triples), head, tail, hidden) for head, tail in pairs]
    features = np.mean([paths.features for paths in found], axis=0)
    for name, expected in shares.items():
        if "confidence" not in name:
            assert features[PATH_FEATURES.index(name)] == pytest.approx(expected, abs=1e-6), name
    of_references = Rules.of(found)
    assert {divmod(int(key), EDGE_TYPES) for key in of_references.keys} == set(rules)
    for key, support in zip(of_references.keys, of_references.support, strict=True):
        assert support == pytest.approx(rules[divmod(int(key), EDGE_TYPES)])


@settings(max_examples=30, deadline=None)
@given(TRIPLES)
def test_a_rule_is_trusted_by_how_few_ends_it_has(triples: list[tuple[int, int, int]]) -> None:
    triples = [*triples, (0, 0, 2), (2, 1, 1)]
    edges = edges_of(triples)
    rules = Rules.of([paths_between(graph_of(triples), 0, 1)])
    assert len(rules.keys)
    for key, confidence in zip(rules.keys, rules.confidence, strict=True):
        first, second = divmod(int(key), EDGE_TYPES)
        middles = [to for source, edge_type, to in edges if (source, edge_type) == (0, first) and to != 1]
        ends = sum((middle, second) == edge[:2] for middle in middles for edge in edges)
        assert confidence == pytest.approx(1 / ends)


def test_confidence_is_shared_by_all_that_an_edge_type_leads_to() -> None:
    graph = graph_of([(0, 0, 1), (0, 0, 2), (0, 1, 3), (3, 2, 1), (0, 1, 4)])
    paths = paths_between(graph, 0, 1)
    features = dict(zip(PATH_FEATURES, paths.features, strict=True))
    assert features["link confidence"].tolist() == [0.5, 0, 0, 0, 0, 0]
    assert features["first of two, confidence"].tolist() == [0, 0.5, 0, 0, 0, 0]
    assert features["last of two, confidence"].tolist() == [0, 0, 1, 0, 0, 0]
    assert paths.linked.tolist() == [True, True, False]
