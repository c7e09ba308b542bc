from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.inference.answers import Direction
from hire.inference.model import RECENT, TrainedModel, load
from hire.training.settings import TeachingSettings
from tests.support import random_model

EXAMPLES = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]


@pytest.fixture(scope="module")
def trained(umls: FewShotDataset) -> TrainedModel:
    return random_model(umls)


def test_answers_are_the_best_candidates_in_order(trained: TrainedModel, umls: FewShotDataset) -> None:
    relation = trained.teach(EXAMPLES)
    everything = relation.predict("plant", k=1_000)
    assert len(everything) == len(umls.graph.entities) - 1  # all but itself
    scores = [answer.score for answer in everything]
    assert scores == sorted(scores, reverse=True)
    assert relation.predict("plant", k=7) == everything[:7] == relation.predict("plant", k=7)
    pairs = [("plant", answer.tail) for answer in everything[:20]]
    assert relation.score(pairs) == everything[:20]
    assert relation.score([]) == []


def test_the_relations_that_were_used_last_are_kept(trained: TrainedModel) -> None:
    first = trained.teach(EXAMPLES[:1])
    for number in range(RECENT - 1):
        other = trained.teach(EXAMPLES, f"relation {number}")
    assert trained.teach(EXAMPLES[:1]) is first
    trained.teach(EXAMPLES, "one more")
    assert trained.teach(EXAMPLES[:1]) is first and trained.teach(EXAMPLES, f"relation {number}") is other
    assert len(trained._recent) == RECENT
    trained.forget()
    assert trained.teach(EXAMPLES[:1]) is not first


def test_what_is_known_is_left_out_unless_asked_for(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES)
    new = {answer.tail for answer in relation.predict("virus", k=1_000)}
    all_ = {answer.tail for answer in relation.predict("virus", k=1_000, known=True)}
    assert all_ - new == {"organism"}


def test_candidates_may_be_given(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES, candidates=["plant", "animal", "organism", "plant"])
    assert {answer.tail for answer in relation.predict("virus")} == {"plant", "animal"}


def test_of_too_many_candidates_the_most_similar_are_ranked(trained: TrainedModel) -> None:
    trained = TrainedModel(trained.system, trained.dataset, teaching=TeachingSettings(max_candidates=20))
    relation = trained.teach(EXAMPLES)
    entities = trained.dataset.graph.entities
    assert len(relation.candidates) == 20 and (np.diff(relation.candidates) > 0).all()
    assert entities.id("organism") in relation.candidates
    assert len(relation.predict("plant", k=100)) in (19, 20)
    assert len(trained.teach(EXAMPLES, candidates=list(entities)[:50]).candidates) == 50
    wider = trained.with_entities({"moss": [("isa", "plant", "out")]})
    assert len(wider.teach(EXAMPLES).candidates) == 21


def test_candidates_have_types_like_those_of_the_examples_tails(nell_one: FewShotDataset) -> None:
    trained = random_model(nell_one, 4)
    task = nell_one.split("dev")[0]
    names = [(nell_one.graph.entities[int(h)], nell_one.graph.entities[int(t)]) for h, t in task.pairs[:3]]
    types = {tail.split(":")[1] for _, tail in names}
    relation = trained.teach(names)
    found = {nell_one.graph.entities[int(i)].split(":")[1] for i in relation.candidates}
    assert types <= found and {"personus", "personeurope"} <= found and "city" not in found
    assert (np.diff(relation.candidates) > 0).all()
    assert np.isin(task.pairs[:, 1], relation.candidates).mean() > 0.95


def test_bad_input_is_told(trained: TrainedModel) -> None:
    with pytest.raises(HireError, match="at least one example"):
        trained.teach([])
    with pytest.raises(HireError, match="virsu") as caught:
        trained.teach([("virsu", "organism")])
    assert "virus" in str(caught.value.problems[0].remedy)
    with pytest.raises(HireError, match="nobody"):
        trained.teach(EXAMPLES).predict("nobody")


def test_the_head_itself_is_an_answer_only_if_an_example_says_so(trained: TrainedModel) -> None:
    def tails(examples: list[tuple[str, str]]) -> set[str]:
        return {answer.tail for answer in trained.teach(examples).predict("plant", k=1_000)}

    assert "plant" not in tails(EXAMPLES)
    assert "plant" in tails([*EXAMPLES, ("virus", "virus")])
    heads = {answer.head for answer in trained.teach(EXAMPLES).predict_heads("plant", k=1_000)}
    assert "plant" not in heads


def test_facts_of_a_relation_of_that_name_are_known(trained: TrainedModel, umls: FewShotDataset) -> None:
    task = next(task for task in umls.tasks if task.name == "part_of")
    names = [(umls.graph.entities[int(h)], umls.graph.entities[int(t)]) for h, t in task.pairs]
    head, tail = names[-1]
    true = {t for h, t in names if h == head}
    named, unnamed = trained.teach(names[:3], name="part_of"), trained.teach(names[:3])
    assert not true & {answer.tail for answer in named.predict(head, 1_000)}
    assert true <= {answer.tail for answer in named.predict(head, 1_000, known=True)}
    assert true - {t for h, t in names[:3] if h == head} <= {answer.tail for answer in unnamed.predict(head, 1_000)}
    heads = {h for h, t in names if t == tail}
    assert not heads & {answer.head for answer in named.predict_heads(tail, 1_000)}
    assert heads <= {answer.head for answer in named.predict_heads(tail, 1_000, known=True)}


def test_many_heads_are_answered_as_one(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.inference.relation.HEADS_AT_ONCE", 2)
    monkeypatch.setattr("hire.systems.base.TAILS_AT_ONCE", 50)
    relation = trained.teach(EXAMPLES)
    read = []

    def heads() -> Iterator[str]:
        for name in ("plant", "virus", "plant", "cell", "tissue"):
            read.append(name)
            yield name

    found = relation.predict_many(heads(), k=4)
    first = next(found)
    assert len(read) == 2  # no more than needed
    answers = [first, *found]
    assert [head for head, _ in answers] == ["plant", "virus", "plant", "cell", "tissue"] == read
    for head, of_head in answers:
        alone = relation.predict(head, k=4)
        assert [answer.tail for answer in of_head] == [answer.tail for answer in alone]
        assert [answer.score for answer in of_head] == pytest.approx([answer.score for answer in alone], abs=1e-4)
    assert relation.predict("plant", k=0) == []


def test_heads_are_ranked_by_the_same_scores(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES)
    found = relation.predict_heads("organism", k=1_000)
    assert not {"virus", "bacterium", "fungus", "organism"} & {answer.head for answer in found}
    scores = [answer.score for answer in found]
    assert scores == sorted(scores, reverse=True)
    pairs = [(answer.head, "organism") for answer in found[:5]]
    assert [answer.score for answer in relation.score(pairs)] == pytest.approx(scores[:5], abs=1e-4)


def test_more_examples_and_rejections_refine_at_once(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES)
    more = relation.add("plant", "entity")
    assert len(more.references) == 4 and len(relation.references) == 3
    assert "entity" not in {answer.tail for answer in more.predict("plant", 1_000)}
    assert len(more.add("plant", "entity").references) == 4
    worst = relation.predict("plant")[0].tail
    less = relation.reject("plant", worst)
    for known in (False, True):
        assert worst not in {answer.tail for answer in less.predict("plant", 1_000, known=known)}
    other = [("animal", worst)]
    assert less.score(other)[0].score < relation.score(other)[0].score  # other heads learn from it
    back = less.add("plant", worst)
    assert not len(back.rejected) and len(back.references) == 4
    assert len(back.reject("plant", worst).references) == 3
    with pytest.raises(HireError, match="only example"):
        trained.teach(EXAMPLES[:1]).reject(*EXAMPLES[0])


def test_a_calibrated_run_has_confidence(umls_run: Path) -> None:
    relation = load(umls_run).teach(EXAMPLES)
    answers = relation.predict("plant", k=20)
    confidences = [answer.confidence or 0.0 for answer in answers]
    assert confidences == sorted(confidences, reverse=True) and all(0 < c < 1 for c in confidences)
    middle = confidences[7]
    assert len(relation.predict("plant", k=20, threshold=middle)) == 8
    assert relation.predict("plant", k=20, threshold=1.0) == []
    assert relation.explain("plant", answers[0].tail).confidence == pytest.approx(confidences[0])
    assert relation.explain("virus", "organism").confidence is not None  # though it is known
    assert relation.explain("virus", "virus").confidence is None
    sizes = [len(relation.answer_set("plant", confidence)) for confidence in (0.5, 0.8, 0.99)]
    assert sizes == sorted(sizes) and sizes[0] >= 1
    assert relation.answer_set("plant", 0.5)[0] == answers[0]
    with pytest.raises(HireError, match="not a confidence"):
        relation.answer_set("plant", 90)


def test_without_calibration_there_is_none(trained: TrainedModel) -> None:
    relation = trained.teach(EXAMPLES)
    assert relation.predict("plant", 1)[0].confidence is None
    with pytest.raises(HireError, match="not calibrated"):
        relation.predict("plant", threshold=0.5)
    with pytest.raises(HireError, match="not calibrated"):
        relation.answer_set("plant")


def test_entities_that_were_not_there_at_training(umls_run: Path) -> None:
    model = load(umls_run)
    graph = model.dataset.graph
    count = len(graph.relations)
    facts: list[tuple[str, str, Direction]] = [
        (graph.relations[edge_type % count], graph.entities[entity], "out" if edge_type < count else "in")
        for edge_type, entity in graph.neighbors_of(graph.entities.id("virus"), None).tolist()
    ]
    wider = model.with_entities({"twin": facts, "far": [("isa", "twin", "out")], "near": [("isa", "plant", "in")]})
    relation = wider.teach([("bacterium", "organism"), ("fungus", "organism")])
    assert relation.predict("far", 3) and {"twin", "near"} <= {a.tail for a in relation.predict("plant", 1_000)}
    ids = np.array([wider.names.id(name) for name in ("twin", "virus", "temporal_concept")])
    vectors = wider.system.vectors(ids)
    assert (vectors[0] - vectors[1]).norm() < (vectors[0] - vectors[2]).norm()
    assert relation.explain("twin", "organism").to_dict()["head"] == "twin"
    assert wider.search("twi")[0].entity == "twin" and len(model.dataset.graph.entities) == 135
    before, after = (of.teach(EXAMPLES, candidates=["cell"]).score([("plant", "cell")])[0] for of in (model, wider))
    assert after.score == pytest.approx(before.score, abs=0.5)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"virus": [("isa", "plant", "out")]}, "already exists"),
        ({"new": [("isa", "nothing", "out")]}, "unknown entity 'nothing'"),
        ({"new": [("is_a", "plant", "out")]}, "unknown relation 'is_a'"),
        ({"new": []}, "'new' has no fact"),
        ({"new": [("part_of", "plant", "out")]}, "no fact in the graph"),
    ],
)
def test_new_entities_without_footing_are_told(trained: TrainedModel, facts: Any, message: str) -> None:
    with pytest.raises(HireError, match=message):
        trained.with_entities(facts)
