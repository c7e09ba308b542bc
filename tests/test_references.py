from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.datasets import FewShotDataset
from hire.evidence import EvidenceGraph
from hire.references import ENTITY_FEATURES, KIND_FEATURES, ReferenceEvidence
from tests.test_evidence import ENTITIES, RELATIONS, TRIPLES, edges_of, graph_of

KINDS = 2 * RELATIONS


@settings(max_examples=60, deadline=None)
@given(TRIPLES, st.lists(st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, ENTITIES - 1)), min_size=1, max_size=4))
def test_paths_are_those_of_plain_loops(triples: list[tuple[int, int, int]], pairs: list[tuple[int, int]]) -> None:
    hidden = 1
    edges = edges_of(triples, hidden)
    shares: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {name: np.zeros(KINDS) for name in KIND_FEATURES}
    rules: dict[tuple[int, int], float] = {}
    for head, tail in pairs:
        first = {(kind, to) for source, kind, to in edges if source == head and to != tail}
        last = {(source, kind) for source, kind, to in edges if to == tail and source != head}
        links = {kind for source, kind, to in edges if (source, to) == (head, tail)}
        two = {(k1, k2) for k1, middle in first for source, k2 in last if middle == source}
        three = {
            (k1, k2, k3)
            for k1, near in first
            for source, k2, far in edges
            if source == near and far != head
            for start, k3 in last
            if start == far
        }
        for name, kinds in {
            "links": links,
            "at heads": {kind for kind, _ in first},
            "at tails": {kind for _, kind in last},
            "first of two": {path[0] for path in two},
            "last of two": {path[1] for path in two},
            "first of three": {path[0] for path in three},
            "middle of three": {path[1] for path in three},
            "last of three": {path[2] for path in three},
        }.items():
            shares[name][list(kinds)] += 1 / len(pairs)
        for path in two:
            rules[path] = rules.get(path, 0) + 1 / len(pairs)
    found = ReferenceEvidence(graph_of(triples), np.array(pairs), hidden)
    for name in ("links", "at heads", "at tails", "first of two", "last of two"):
        assert found.kind_features[:, KIND_FEATURES.index(name)] / 3 == pytest.approx(shares[name], abs=1e-6), name
    for name in ("first of three", "middle of three", "last of three"):
        assert found.kind_features[:, KIND_FEATURES.index(name)] / 3 == pytest.approx(shares[name], abs=1e-6), name
    assert {(int(key) // KINDS, int(key) % KINDS) for key in found.rules.keys} == set(rules)
    for key, support in zip(found.rules.keys, found.rules.support, strict=True):
        assert support == pytest.approx(rules[int(key) // KINDS, int(key) % KINDS])


@settings(max_examples=30, deadline=None)
@given(TRIPLES)
def test_a_rule_is_trusted_by_how_few_ends_it_has(triples: list[tuple[int, int, int]]) -> None:
    triples = [*triples, (0, 0, 2), (2, 1, 1)]
    edges = edges_of(triples)
    rules = ReferenceEvidence(graph_of(triples), np.array([(0, 1)])).rules
    assert len(rules.keys)
    for key, confidence in zip(rules.keys, rules.confidence, strict=True):
        first, second = divmod(int(key), KINDS)
        middles = [to for source, kind, to in edges if (source, kind) == (0, first) and to != 1]
        ends = sum((middle, second) == edge[:2] for middle in middles for edge in edges)
        assert confidence == pytest.approx(1 / ends)


@settings(max_examples=40, deadline=None)
@given(TRIPLES, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=3))
def test_shared_tuples_are_those_of_plain_loops(triples: list[tuple[int, int, int]], tails: list[int]) -> None:
    edges = edges_of(triples)
    found = ReferenceEvidence(graph_of(triples), np.array([(0, tail) for tail in tails]))
    shares = found.entity_features(np.arange(ENTITIES))[:, ENTITY_FEATURES.index("shares with the tails, best")]

    def rarity(kind: int, to: int) -> float:
        return float(np.log((ENTITIES + 1) / (sum(edge[1:] == (kind, to) for edge in edges) + 1)))

    for entity in range(ENTITIES):
        best = 0.0
        for tail in tails:
            tuples = {(kind, to) for source, kind, to in edges if source == tail}
            whole = sum(rarity(*each) for each in tuples)
            shared = sum(rarity(*each) for each in tuples if (entity, *each) in edges)
            best = max(best, shared / max(1e-6, whole))
        assert shares[entity] == pytest.approx(best, abs=1e-4)
    degrees = found.entity_features(np.arange(ENTITIES))[:, ENTITY_FEATURES.index("degree")]
    expected = [sum(source == entity for source, _, _ in edges) for entity in range(ENTITIES)]
    assert np.expm1(5 * degrees) == pytest.approx(expected, abs=1e-4)


def test_no_feature_sees_the_hidden_relation(umls: FewShotDataset) -> None:
    task = umls.split("train")[0]
    everyone = np.arange(len(umls.graph.entities))
    other = np.stack([np.arange(0, 60), np.full(60, task.relation), np.arange(60, 120)], axis=1)
    triples = np.asarray(umls.graph.triples)
    found = []
    for facts in ([], [np.insert(task.pairs, 1, task.relation, axis=1)], [other]):
        graph = EvidenceGraph(np.concatenate([triples, *facts]), len(everyone), len(umls.graph.relations))
        evidence = ReferenceEvidence(graph, task.pairs[:3], hidden=task.relation)
        found.append((evidence.kind_features, evidence.entity_features(everyone), evidence.rules.confidence))
    for others in found[1:]:
        for expected, features in zip(found[0], others, strict=True):
            assert features == pytest.approx(expected, abs=1e-5)


def test_features_are_computed_once_and_do_not_depend_on_company(umls: FewShotDataset) -> None:
    graph = EvidenceGraph.of(umls)
    pairs = umls.split("dev")[0].pairs[:5]
    at_once = ReferenceEvidence(graph, pairs).entity_features(np.arange(100))
    evidence = ReferenceEvidence(graph, pairs)
    one_by_one = np.concatenate([evidence.entity_features(np.array([entity])) for entity in range(100)])
    assert one_by_one == pytest.approx(at_once, abs=1e-6)
    assert evidence.entity_features(np.arange(100)) == pytest.approx(at_once, abs=1e-6)
