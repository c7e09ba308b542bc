from __future__ import annotations

import numpy as np
import pytest
import torch

from hire.systems.base import Support
from hire.systems.evidence import Evidence
from hire.systems.path.explain import explain_path
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
    rule = next(rule for rule in explanation.rules if rule.kinds == (PLAYS_FOR, COACHED_BY))
    assert (rule.support, rule.references) == (2, 3)
    assert [path.entities for path in rule.paths] == [(2, 6, 9)]
    assert rule.weight == pytest.approx(sum(path.weight for path in rule.paths)) and rule.weight


def test_only_paths_from_head_to_tail_count(explanation: Evidence) -> None:
    edges = {(h, r, t) for h, r, t in FACTS} | {(t, r + 3, h) for h, r, t in FACTS}
    for rule in explanation.rules:
        for path in rule.paths:
            assert path.entities[0] == 2 and path.entities[-1] == 9
            assert len(set(path.entities)) == len(path.entities)
            for kind, one, other in zip(rule.kinds, path.entities, path.entities[1:], strict=False):
                assert (one, kind, other) in edges


def test_shared_tuples_and_the_most_similar_reference(explanation: Evidence) -> None:
    assert [(shared.kind, shared.entity, shared.support) for shared in explanation.shared] == [(IN_CITY, 10, 2)]
    assert 0 < explanation.shared[0].weight < 1
    assert explanation.most_similar.tail == 7
    assert 0 < explanation.most_similar.tail_similarity <= 1


def test_the_score_is_the_models() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    relation = model.adapt(Support(REFERENCES))
    score = model.score(relation, np.array([2]), np.arange(11))[0, 9]
    assert explain_path(model, relation, 2, 9).score == pytest.approx(score.item(), abs=1e-5)


def test_a_weight_is_what_the_score_hangs_on() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array(FACTS), 11, 3))
    relation = model.adapt(Support(REFERENCES))
    found = explain_path(model, relation, 2, 10)
    assert all(path.weight != 0 for rule in found.rules for path in rule.paths)
    for member in model.network.members:
        member.of_pairs.weight.data[:, :8] = 0  # nothing that was passed on is read
    silent = explain_path(model, relation, 2, 10)
    assert all(path.weight == 0 for rule in silent.rules for path in rule.paths)


def test_no_path_no_rule() -> None:
    model = PathModel(path_network(), EvidenceGraph(np.array([*FACTS, (11, IN_CITY, 12)]), 13, 3))
    found = explain_path(model, model.adapt(Support(REFERENCES)), 2, 12)
    assert found.rules == () and found.shared == ()
    assert torch.tensor(found.score).isfinite()
