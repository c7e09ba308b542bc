"""An answer has one confidence, whatever is shown and whatever was said of its head."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.inference.model import TrainedModel, load
from hire.inference.relation import TaughtRelation

RELATIONS = ("part_of", "complicates", "precedes", "produces")


@pytest.fixture(scope="module")
def trained(umls_run: Path) -> TrainedModel:
    return load(umls_run)


def taught(trained: TrainedModel, name: str, shots: int = 3, *, named: bool = True) -> TaughtRelation:
    task = next(task for task in trained.dataset.tasks if task.name == name)
    entities = trained.dataset.graph.entities
    pairs = [(entities[int(h)], entities[int(t)]) for h, t in task.pairs[:shots]]
    return trained.teach(pairs, name if named else None)


def confidences(relation: TaughtRelation, head: str, *, known: bool = True, k: int = 1_000) -> dict[str, float | None]:
    return {answer.tail: answer.confidence for answer in relation.predict(head, k, known=known)}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_shown_changes_no_confidence(trained: TrainedModel, data: st.DataObject) -> None:
    tasks = [task for task in trained.dataset.tasks if len(task.pairs) > 10]
    task = data.draw(st.sampled_from(tasks))
    entities = trained.dataset.graph.entities
    relation = taught(trained, task.name, data.draw(st.integers(1, 5)))
    head = entities[int(data.draw(st.sampled_from(task.pairs[:, 0].tolist())))]
    everything = confidences(relation, head)
    new = confidences(relation, head, known=False)
    assert set(new) < set(everything) or task.name not in RELATIONS
    assert all(confidence is not None and 0 < confidence < 1 for confidence in everything.values())
    assert new == {tail: everything[tail] for tail in new}
    few = confidences(relation, head, known=False, k=3)
    assert few == {tail: everything[tail] for tail in few}
    tails = data.draw(st.lists(st.sampled_from(sorted(everything)), min_size=1, max_size=5))
    assert [answer.confidence for answer in relation.score([(head, tail) for tail in tails])] == [
        everything[tail] for tail in tails
    ]
    assert relation.explain(head, tails[0]).confidence == everything[tails[0]]
    ((_, answers),) = relation.predict_many([head], 1_000, known=True)
    assert {answer.tail: answer.confidence for answer in answers} == everything


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_accepting_or_rejecting_an_answer_moves_no_other_of_its_head(
    trained: TrainedModel, data: st.DataObject
) -> None:
    task = data.draw(st.sampled_from([task for task in trained.dataset.tasks if len(task.pairs) > 10]))
    entities = trained.dataset.graph.entities
    relation = taught(trained, task.name, 3, named=data.draw(st.booleans()))
    others = sorted(set(task.pairs[:, 0].tolist()) - set(relation.references[:, 0].tolist()))
    if not others:
        return
    head = entities[int(data.draw(st.sampled_from(others)))]
    before = confidences(relation, head)
    tail = data.draw(st.sampled_from(sorted(before)))
    accepted, rejected = relation.add(head, tail), relation.reject(head, tail)
    assert confidences(accepted, head) == before
    assert tail not in confidences(accepted, head, known=False)
    assert confidences(rejected, head) == {other: of for other, of in before.items() if other != tail}
    more = accepted.add(head, data.draw(st.sampled_from(sorted(before))))
    assert confidences(more, head) == before


def test_many_heads_that_are_references_are_answered_as_one(trained: TrainedModel) -> None:
    relation = taught(trained, "part_of", 5, named=False)
    entities = trained.dataset.graph.entities
    heads = [entities[int(h)] for h in relation.references[:, 0]] + ["virus", "cell", "virus"]
    for head, answers in relation.predict_many(heads, 5, known=True):
        alone = relation.predict(head, 5, known=True)
        assert [answer.tail for answer in answers] == [answer.tail for answer in alone]
        for one, other in zip(answers, alone, strict=True):
            assert one.confidence == pytest.approx(other.confidence, abs=1e-4)


def test_an_answer_set_shows_new_tails_and_at_least_one(trained: TrainedModel) -> None:
    relation = taught(trained, "part_of", 3)
    head = trained.dataset.graph.entities[int(relation.references[0, 0])]
    known = {answer.tail for answer in relation.predict(head, 1_000, known=True)}
    new = {answer.tail for answer in relation.predict(head, 1_000)}
    for level in (0.5, 0.9, 0.99):
        found = {answer.tail for answer in relation.answer_set(head, level)}
        assert found and found <= new < known


def test_its_repr_is_short(trained: TrainedModel) -> None:
    relation = taught(trained, "part_of", 3)
    assert repr(relation) == "<TaughtRelation part_of: 3 references, 135 candidates>"
    assert "umls-one" in repr(trained) and len(repr(trained)) < 120
    assert "1 rejected" in repr(relation.reject("virus", "cell"))


def test_a_relation_that_nobody_uses_leaves_memory_at_once(trained: TrainedModel) -> None:
    gc.disable()  # which would find cycles, but only now and then
    try:
        relation = taught(trained, "part_of")
        known = trained.dataset.graph.entities[int(relation.references[0, 0])]
        for head in (known, "plant"):
            relation.explain(head, relation.predict(head)[0].tail)
        gone = weakref.ref(relation)
        del relation
        trained.forget()
        assert gone() is None
    finally:
        gc.enable()


def test_of_the_relations_that_answer_other_heads_one_is_kept(trained: TrainedModel) -> None:
    relation = taught(trained, "part_of", 5)
    entities = trained.dataset.graph.entities
    known = [entities[int(head)] for head in dict.fromkeys(relation.references[:, 0].tolist())]
    assert len(known) > 1
    answers = {head: relation.predict(head) for head in ("plant", *known, "cell", *known)}
    assert [entities[head] for head, (other, _) in relation._kept.items() if other] == known[-1:]
    assert {"plant", "cell"} < {entities[head] for head in relation._kept}
    assert answers == {head: relation.predict(head) for head in answers}
