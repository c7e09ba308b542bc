from __future__ import annotations

import numpy as np
import pytest
import torch

from hire.datasets import FewShotDataset
from hire.errors import HireError
from hire.models.hire import Hire, HireNetwork, HireSettings
from hire.teaching import TrainedModel

EXAMPLES = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]


@pytest.fixture(scope="module")
def trained(umls: FewShotDataset) -> TrainedModel:
    torch.manual_seed(0)
    entities, projections = torch.randn(2, len(umls.graph.entities), 8)
    return TrainedModel(Hire(HireNetwork(HireSettings(dimension=8)), entities, projections), umls)


def test_answers_are_the_best_candidates_in_order(trained: TrainedModel, umls: FewShotDataset) -> None:
    relation = trained.teach(EXAMPLES)
    everything = relation.predict("plant", k=1_000)
    assert len(everything) == len(umls.graph.entities)
    scores = [answer.score for answer in everything]
    assert scores == sorted(scores, reverse=True)
    assert relation.predict("plant", k=7) == everything[:7] == relation.predict("plant", k=7)
    pairs = [("plant", answer.tail) for answer in everything[:20]]
    assert relation.score(pairs) == pytest.approx(scores[:20], abs=1e-4)
    assert relation.score([]) == []


def test_what_is_known_is_left_out_unless_asked_for(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES)
    new = {answer.tail for answer in relation.predict("virus", k=1_000)}
    all_ = {answer.tail for answer in relation.predict("virus", k=1_000, known=True)}
    assert all_ - new == {"organism"}


def test_candidates_may_be_given(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES, candidates=["plant", "animal", "organism", "plant"])
    assert {answer.tail for answer in relation.predict("virus")} == {"plant", "animal"}


def test_candidates_share_a_type_with_an_examples_tail(nell_one: FewShotDataset) -> None:
    entities = torch.randn(len(nell_one.graph.entities), 4)
    trained = TrainedModel(Hire(HireNetwork(HireSettings(dimension=4)), entities, entities), nell_one)
    task = nell_one.split("dev")[0]
    names = [(nell_one.graph.entities[int(h)], nell_one.graph.entities[int(t)]) for h, t in task.pairs[:3]]
    types = {tail.split(":")[1] for _, tail in names}
    relation = trained.teach(names)
    assert {nell_one.graph.entities[int(i)].split(":")[1] for i in relation.candidates} == types
    assert len(np.unique(relation.candidates)) == len(relation.candidates)


def test_bad_input_is_told(trained: TrainedModel) -> None:
    with pytest.raises(HireError, match="at least one example"):
        trained.teach([])
    with pytest.raises(HireError, match="virsu") as caught:
        trained.teach([("virsu", "organism")])
    assert "virus" in str(caught.value.problems[0].remedy)
    with pytest.raises(HireError, match="nobody"):
        trained.teach(EXAMPLES).predict("nobody")
