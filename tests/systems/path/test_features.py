from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.systems.path.features import ENTITY_FEATURES, ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from tests.systems.path.test_graph import ENTITIES, TRIPLES, edges_of, graph_of


@settings(max_examples=40, deadline=None)
@given(TRIPLES, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=3))
def test_shared_tuples_are_those_of_plain_loops(triples: list[tuple[int, int, int]], tails: list[int]) -> None:
    edges = edges_of(triples)
    found = ReferenceEvidence(graph_of(triples), np.array([(0, tail) for tail in tails]))
    shares = found.entity_features(np.arange(ENTITIES))[:, ENTITY_FEATURES.index("shares with the tails, best")]

    def idf(edge_type: int, to: int) -> float:
        return float(np.log((ENTITIES + 1) / (sum(edge[1:] == (edge_type, to) for edge in edges) + 1)))

    for entity in range(ENTITIES):
        best = 0.0
        for tail in tails:
            tuples = {(edge_type, to) for source, edge_type, to in edges if source == tail}
            whole = sum(idf(*each) for each in tuples)
            shared = sum(idf(*each) for each in tuples if (entity, *each) in edges)
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
        found.append((evidence.edge_features, evidence.entity_features(everyone), evidence.rules.confidence))
    for others in found[1:]:
        for expected, features in zip(found[0], others, strict=True):
            assert features == pytest.approx(expected, abs=1e-5)


def test_features_do_not_depend_on_the_batch(umls: FewShotDataset) -> None:
    graph = EvidenceGraph.of(umls)
    pairs = umls.split("dev")[0].pairs[:5]
    at_once = ReferenceEvidence(graph, pairs).entity_features(np.arange(100))
    evidence = ReferenceEvidence(graph, pairs)
    one_by_one = np.concatenate([evidence.entity_features(np.array([entity])) for entity in range(100)])
    assert one_by_one == pytest.approx(at_once, abs=1e-6)
    assert evidence.entity_features(np.arange(100)) == pytest.approx(at_once, abs=1e-6)
    some = np.array([90, 3, 3, 50, 2, 90])
    assert evidence.entity_features(some) == pytest.approx(at_once[some], abs=1e-6)
    assert evidence.entity_features(np.zeros(0, np.int64)).shape == (0, len(ENTITY_FEATURES))
