from __future__ import annotations

from collections import Counter
from copy import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.systems.path.counting import FAN_OUTS
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.settings import EvidenceSettings

ENTITIES, RELATIONS = 9, 3
TRIPLES = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=40
)


def graph_of(triples: list[tuple[int, int, int]], settings: EvidenceSettings | None = None) -> EvidenceGraph:
    return EvidenceGraph(np.array(triples, np.int64).reshape(-1, 3), ENTITIES, RELATIONS, settings=settings)


def edges_of(triples: list[tuple[int, int, int]], hidden: int | None = None) -> set[tuple[int, int, int]]:
    """All edges as (source, edge type, target), by plain loops."""
    seen = {triple for triple in triples if triple[1] != hidden}
    return seen | {(tail, relation + RELATIONS, head) for head, relation, tail in seen}


@settings(max_examples=50, deadline=None)
@given(TRIPLES, st.sampled_from([None, 0, 2]))
def test_edges_and_counts_are_those_of_plain_loops(triples: list[tuple[int, int, int]], hidden: int | None) -> None:
    graph, edges = graph_of(triples), edges_of(triples, hidden)
    everyone = np.arange(ENTITIES)
    found = graph.leaving(everyone, hidden)
    assert sorted(zip(found.owners, graph.edge_types[found.ids], graph.targets[found.ids], strict=True)) == sorted(
        edges
    )
    fan_outs = Counter((source, edge_type) for source, edge_type, _ in edges)
    for (owner, edge), levels in zip(zip(*found, strict=True), graph.levels[found.ids], strict=True):
        edge_type, target = int(graph.edge_types[edge]), int(graph.targets[edge])
        back = (edge_type + RELATIONS) % (2 * RELATIONS)
        assert FAN_OUTS[levels].tolist() == [fan_outs[owner, edge_type], fan_outs[target, back]]
    over = graph.leaving_over(everyone, np.full(ENTITIES, RELATIONS))
    assert {(int(owner), int(graph.targets[edge])) for owner, edge in zip(*over, strict=True)} == {
        (source, target) for source, edge_type, target in edges_of(triples) if edge_type == RELATIONS
    }
    profiles = graph.profiles(everyone, hidden)
    counts = {
        (int(owner), int(graph.profile_edge_types[entry])): int(graph.profile_counts[entry])
        for owner, entry in zip(*profiles, strict=True)
    }
    assert counts == fan_outs


@settings(max_examples=30, deadline=None)
@given(TRIPLES)
def test_co_occurrence_and_agreement_are_those_of_plain_loops(triples: list[tuple[int, int, int]]) -> None:
    graph, edges = graph_of(triples), edges_of(triples)
    edge_types = range(2 * RELATIONS)
    pairs = {
        edge_type: {(source, target) for source, of, target in edges if of == edge_type} for edge_type in edge_types
    }
    sources = {edge_type: {source for source, _ in pairs[edge_type]} for edge_type in edge_types}
    for one in edge_types:
        for other in edge_types:
            if pairs[one] and pairs[other]:
                cosine = len(pairs[one] & pairs[other]) / np.sqrt(len(pairs[one]) * len(pairs[other]))
                assert graph.agreement[one, other] == pytest.approx(cosine)
            if sources[one] and one != other:
                share = len(sources[one] & sources[other]) / len(sources[one])
                assert graph.co_occurrence[one, other] == pytest.approx(share * graph.idf[other], rel=1e-5)


def test_agreement_tells_pairs_apart_in_graphs_of_any_size() -> None:
    graph = EvidenceGraph(np.array([[0, 0, 2], [1, 1, 2]]), 3, 32)
    expected, sample = graph.agreement, graph._sample
    large = copy(graph)
    large.__dict__.pop("agreement")
    large.entity_count, large.__dict__["_sample"] = 2**58, sample  # times 64 edge types, that is 0 in 64 bits
    assert np.array_equal(large.agreement, expected) and not expected[0, 1]


def test_of_a_hub_a_sample_is_walked_that_other_relations_do_not_change() -> None:
    limited = EvidenceSettings(max_fan_out=20)
    star = np.array([(0, 0, tail) for tail in range(1, 200)])
    others = np.array([(0, 1, tail) for tail in range(1, 30)])
    graph, larger = (
        EvidenceGraph(triples, 200, 2, settings=limited) for triples in (star, np.concatenate([others, star]))
    )
    walked = graph.leaving(np.array([0])).ids
    assert 5 < len(walked) < 40
    assert (FAN_OUTS[graph.levels[walked, 0]] == 199).all()
    hidden = larger.leaving(np.array([0]), hidden=1).ids
    assert larger.targets[hidden].tolist() == graph.targets[walked].tolist()
    assert len(graph.leaving(np.arange(1, 200)).ids) == 199  # seen from the other side, nothing is left out
    assert graph.counts(np.array([0]), 0) == [199]


def test_train_facts_are_evidence_only_if_wanted(umls: FewShotDataset) -> None:
    relation = umls.split("train")[0].relation
    assert EvidenceGraph.of(umls).edge_counts[relation] == len(umls.split("train")[0].pairs)
    assert EvidenceGraph.of(umls, EvidenceSettings(train_facts=False)).edge_counts[relation] == 0
    for task in (*umls.split("dev"), *umls.split("test")):
        assert EvidenceGraph.of(umls).edge_counts[task.relation] == 0
