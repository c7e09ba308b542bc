from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.evidence import Evidence, Rule, SharedTuple
from hire.systems.path.explain import _fact_gradients, explain_path
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from tests.systems.path.test_model import path_network

PLAYS_FOR, COACHED_BY, IN_CITY = range(3)
# Players 0 to 3, teams 4 to 6, coaches 7 to 9, city 10.
FACTS = [(0, PLAYS_FOR, 4), (1, PLAYS_FOR, 5), (2, PLAYS_FOR, 6), (3, PLAYS_FOR, 6)]
FACTS += [(4, COACHED_BY, 7), (5, COACHED_BY, 8), (6, COACHED_BY, 9), (7, IN_CITY, 10), (9, IN_CITY, 10)]
REFERENCES = np.array([(0, 7), (1, 8), (1, 7)])


@pytest.fixture
def explanation() -> Evidence:
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    return explain_path(model, model.adapt(Support(REFERENCES)), 2, 9)


def test_a_rule_with_its_entities_and_support(explanation: Evidence) -> None:
    rule = next(rule for rule in explanation.rules if rule.edge_types == (PLAYS_FOR, COACHED_BY))
    assert (rule.support, rule.references) == (2, 3)
    assert rule.paths == ((2, 6, 9),)
    assert rule.weight


def test_only_paths_from_head_to_tail_count(explanation: Evidence) -> None:
    edges = {(h, r, t) for h, r, t in FACTS} | {(t, r + 3, h) for h, r, t in FACTS}
    for rule in explanation.rules:
        for path in rule.paths:
            assert path[0] == 2 and path[-1] == 9
            assert len(set(path)) == len(path)
            for edge_type, one, other in zip(rule.edge_types, path, path[1:], strict=False):
                assert (one, edge_type, other) in edges


def test_shared_tuples_and_the_most_similar_reference(explanation: Evidence) -> None:
    assert [(shared.edge_type, shared.entity, shared.support) for shared in explanation.shared] == [(IN_CITY, 10, 2)]
    assert explanation.shared[0].weight
    assert explanation.most_similar.tail == 7
    assert 0 < explanation.most_similar.tail_similarity <= 1


def test_the_score_is_the_models() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    state = model.adapt(Support(REFERENCES))
    score = model.score(state, np.array([2]), np.arange(11))[0, 9]
    assert explain_path(model, state, 2, 9).score == pytest.approx(score.item(), abs=1e-5)


def test_facts_of_a_graph_of_any_size_have_gradients_of_their_own() -> None:
    sizes = SimpleNamespace(entity_count=2**31, relation_count=2**13)  # 2^20 times both is 0 in 64 bits
    two, none = torch.tensor([0, 1]), torch.zeros(0, dtype=torch.int64)
    layers = [SimpleNamespace(sources=part, edge_types=0 * part, targets=0 * part) for part in (two, none, none)]
    nodes = np.array([0, 2**20]), np.array([5]), np.array([5])
    walked: Any = SimpleNamespace(layers=layers, nodes=nodes, reached=none)
    evidence: Any = SimpleNamespace(graph=sizes)
    gradients = [np.array([1.0, 2.0], np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32)]
    facts, sums = _fact_gradients(evidence, 5, walked, gradients)
    assert [part.tolist() for part in facts] == [[0, 1], [], []] and sums.tolist() == [1, 2]


class Explained(NamedTuple):
    references: Support
    head: int
    tail: int
    evidence: Evidence


@pytest.fixture(scope="module")
def model(umls: FewShotDataset) -> PathModel:
    return PathModel(path_network(), EvidenceGraph.of(umls))


@pytest.fixture(scope="module")
def explained(umls: FewShotDataset, model: PathModel) -> list[Explained]:
    """The best answers to some questions, with their evidence."""
    found = []
    for task in (*umls.split("dev"), umls.split("test")[2]):
        references = Support(np.asarray(task.pairs[:3]))
        state = model.adapt(references)
        for head in (int(task.pairs[3, 0]), int(task.pairs[-1, 0])):
            tail = int(model.score(state, np.array([head]), np.arange(model.graph.entity_count)).argmax())
            evidence = explain_path(model, state, head, tail, most=6)
            found.append(Explained(references, head, tail, evidence))
    return found


def facts_of(piece: Rule | SharedTuple, tail: int, relations: int) -> set[tuple[int, int, int]]:
    """The facts that are to be removed: those on the paths of a rule, or the tail's of a shared tuple."""
    if isinstance(piece, SharedTuple):
        edges = {(tail, piece.edge_type, piece.entity)}
    else:
        edges = {edge for path in piece.paths for edge in zip(path, piece.edge_types, path[1:], strict=False)}
    return {
        (one, edge_type, two) if edge_type < relations else (two, edge_type - relations, one)
        for one, edge_type, two in edges
    }


def without(dataset: FewShotDataset, graph: EvidenceGraph, facts: set[tuple[int, int, int]]) -> EvidenceGraph:
    """The graph of a dataset, built anew without some facts."""
    triples = np.concatenate([dataset.graph.triples, graph.task_facts])
    stays = [tuple(fact) not in facts for fact in triples.tolist()]
    assert sum(stays) == len(triples) - len(facts)
    return EvidenceGraph(triples[stays], graph.entity_count, graph.relation_count, graph.types, graph.settings)


def test_without_the_evidence_the_score_really_moves_as_stated(
    umls: FewShotDataset, model: PathModel, explained: list[Explained]
) -> None:
    stated, really = [], []
    for references, head, tail, evidence in explained:
        pieces: list[Rule | SharedTuple] = [*evidence.rules, *evidence.shared]
        for piece in pieces:
            rest = without(umls, model.graph, facts_of(piece, tail, model.graph.relation_count))
            blind = PathModel(model.network, rest)
            score = blind.score(blind.adapt(references), np.array([head]), np.array([tail])).item()
            stated.append(piece.weight)
            really.append(evidence.score - score)
    assert len(stated) > 50 and np.corrcoef(stated, really)[0, 1] > 0.995
    assert stated == pytest.approx(really, rel=0.2, abs=0.05)
    signs = {(one > 0, other > 0) for one, other in zip(stated, really, strict=True) if abs(one) > 0.05}
    assert signs == {(True, True), (False, False)}


def test_what_speaks_for_an_answer_comes_first_then_what_speaks_against(explained: list[Explained]) -> None:
    weights = [[piece.weight for piece in of] for *_, found in explained for of in (found.rules, found.shared)]
    for some in weights:
        above, below = [w for w in some if w >= 0], [w for w in some if w < 0]
        assert some == sorted(above, reverse=True) + sorted(below) and len(some) <= 6
    assert any(some[0] > 0 > some[-1] for some in weights)


def test_what_the_score_does_not_depend_on_is_no_evidence() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    for part in (model.network.of_pairs, model.network.of_tails):
        part.weight.data.zero_()
    found = explain_path(model, model.adapt(Support(REFERENCES)), 2, 9)
    assert found.rules == () and found.shared == ()


@pytest.mark.parametrize("at_once", [1, 2])
def test_many_removals_are_measured_as_one_by_one(
    explanation: Evidence, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("hire.systems.path.explain.REMOVALS_AT_ONCE", at_once)
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    found = explain_path(model, model.adapt(Support(REFERENCES)), 2, 9)
    assert [rule.weight for rule in found.rules] == pytest.approx([rule.weight for rule in explanation.rules], abs=1e-4)


def test_no_path_no_rule() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array([*FACTS, (11, IN_CITY, 12)]), 13, 3))
    found = explain_path(model, model.adapt(Support(REFERENCES)), 2, 12)
    assert found.rules == () and found.shared == ()
    assert torch.tensor(found.score).isfinite()
