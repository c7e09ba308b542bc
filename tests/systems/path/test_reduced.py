from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.systems.path.counting import FAN_OUTS
from hire.systems.path.features import FEATURE, ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.reduced import ReducedGraph
from tests.systems.path.test_graph import ENTITIES, RELATIONS, TRIPLES, graph_of

EVERYONE = np.arange(ENTITIES)


def edges_with_fan_outs(graph: EvidenceGraph, hidden: int | None = None) -> set[tuple[float, ...]]:
    edges = graph.leaving(EVERYONE, hidden)
    fan_outs = FAN_OUTS[graph.levels_of(edges.ids)].tolist()
    columns = edges.owners.tolist(), graph.edge_types[edges.ids].tolist(), graph.targets[edges.ids].tolist()
    return {(*edge, *of_edge) for *edge, of_edge in zip(*columns, fan_outs, strict=True)}


@settings(max_examples=50, deadline=None)
@given(TRIPLES, st.data())
def test_it_is_the_graph_without_the_facts(triples: list[tuple[int, int, int]], data: st.DataObject) -> None:
    facts = sorted(set(triples))
    gone = data.draw(st.lists(st.sampled_from(facts), min_size=1, max_size=5)) if facts else []
    if not gone:
        return
    reduced = ReducedGraph(graph_of(triples), np.array(gone))
    rebuilt = graph_of([fact for fact in facts if fact not in gone])
    for hidden in (None, 1):
        assert edges_with_fan_outs(reduced, hidden) == edges_with_fan_outs(rebuilt, hidden)
    assert reduced.degrees_of(EVERYONE).tolist() == rebuilt.degrees.tolist()
    for edge_type in range(2 * RELATIONS):
        assert reduced.counts(EVERYONE, edge_type).tolist() == rebuilt.counts(EVERYONE, edge_type).tolist()
        over = [graph.leaving_over(EVERYONE, edge_type) for graph in (reduced, rebuilt)]
        assert over[0].owners.tolist() == over[1].owners.tolist()
    ours, theirs = (graph.profiles(EVERYONE) for graph in (reduced, rebuilt))
    assert ours.owners.tolist() == theirs.owners.tolist()
    assert reduced.profile_edge_types[ours.ids].tolist() == rebuilt.profile_edge_types[theirs.ids].tolist()
    assert reduced.entry_counts(ours.ids).tolist() == rebuilt.profile_counts[theirs.ids].tolist()


def test_of_a_hub_facts_are_left_out_that_have_no_edge() -> None:
    hub = np.array([(0, 0, tail) for tail in range(1, 1_000)])
    graph = EvidenceGraph(hub, 1_000, 1)
    walked = graph.targets[graph.leaving(np.array([0])).ids]
    unwalked = np.setdiff1d(np.arange(1, 1_000), walked)[0]
    reduced = ReducedGraph(graph, np.array([(0, 0, unwalked), (0, 0, walked[0])]))
    assert reduced.degrees_of(np.array([0])) == 997
    assert reduced.targets[reduced.leaving(np.array([0])).ids].tolist() == walked[1:].tolist()
    assert len(reduced.leaving(np.array([unwalked])).ids) == 0


@pytest.mark.parametrize("at_reference", [False, True])
def test_features_are_about_those_of_the_graph_without_the_facts(umls: FewShotDataset, at_reference: bool) -> None:
    graph = EvidenceGraph.of(umls)
    everyone = np.arange(graph.entity_count)
    triples = np.concatenate([umls.graph.triples, graph.task_facts])
    references = np.asarray(umls.split("dev")[0].pairs[:3])
    touches = np.isin(triples[:, [0, 2]], references).any(axis=1)
    gone = np.flatnonzero(touches == at_reference)[::7][:30]
    evidence = ReferenceEvidence(graph, references)
    whole = evidence.entity_features(everyone)
    estimated = evidence.without(triples[gone]).entity_features(everyone)
    assert (evidence.entity_features(everyone) == whole).all()
    rest = EvidenceGraph(np.delete(triples, gone, axis=0), graph.entity_count, graph.relation_count, graph.types)
    really = ReferenceEvidence(rest, references).entity_features(everyone)
    assert np.abs(whole - really).max() > 0.07
    assert np.abs(estimated - really).max() < 0.02


@pytest.mark.parametrize("count", [1, 30])
def test_references_that_lose_facts_are_read_anew(umls: FewShotDataset, count: int) -> None:
    graph = EvidenceGraph.of(umls)
    references = np.asarray(umls.split("dev")[1].pairs[:3])
    evidence = ReferenceEvidence(graph, references)
    facts = umls.graph.triples[np.isin(umls.graph.triples[:, [0, 2]], references).any(axis=1)]
    found = evidence.without(facts[:: len(facts) // count][:count])
    anew = ReferenceEvidence(found.graph, references)
    everyone = np.arange(graph.entity_count)
    assert (found.edge_features != evidence.edge_features).any()
    for part, expected in (
        (found.edge_features, anew.edge_features),
        (found.summary, anew.summary),
        (found.entity_features(everyone), anew.entity_features(everyone)),
    ):
        assert np.abs(part - expected).max() < 1e-4
    assert found.rules.keys.tolist() == anew.rules.keys.tolist()


def test_a_tuple_is_no_longer_shared_without_its_fact(umls: FewShotDataset) -> None:
    graph = EvidenceGraph.of(umls)
    references = np.asarray(umls.split("dev")[0].pairs[:1])
    evidence = ReferenceEvidence(graph, references)
    edges = graph.leaving(references[:, 1])
    outgoing = edges.ids[graph.edge_types[edges.ids] < graph.relation_count]
    back = graph.leaving_over(graph.targets[outgoing], graph.inverse(graph.edge_types[outgoing]))
    others = np.flatnonzero(~np.isin(graph.targets[back.ids], references))
    edge, entity = outgoing[back.owners[others[0]]], graph.targets[back.ids[others[:1]]]
    fact = np.array([(entity[0], graph.edge_types[edge], graph.targets[edge])])
    column = FEATURE["shares with the tails, best"]
    idf = graph.tuple_idf(edges.ids)
    lost = graph.tuple_idf(edge[None]) / idf.sum()
    before, after = (of.entity_features(entity)[0, column] for of in (evidence, evidence.without(fact)))
    assert before - after == pytest.approx(lost[0], abs=1e-5)
