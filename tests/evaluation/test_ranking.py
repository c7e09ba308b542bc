from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.published.read import read_published
from hire.errors import HireError
from hire.evaluation.ranking import Ranks, evaluate, evaluate_draws, metrics, rank, rank_split, rank_task
from hire.systems.base import FewShotSystem, Support
from hire.systems.popularity import Popularity
from hire.util.arrays import IntArray


class Untrained(FewShotSystem):
    """A system without weights."""

    settings_type = object

    def tensors(self) -> dict[str, Tensor]:
        return {}

    @classmethod
    def restore(cls, *_: Any, **__: Any) -> Untrained:
        return cls()


class Scripted(Untrained):
    """Scores that depend on head and tail alone, with many ties."""

    name = "scripted"

    def adapt(self, support: Support) -> None:
        pass

    def score(self, state: None, heads: IntArray, tails: IntArray) -> Tensor:
        values = (np.asarray(heads)[:, None] * 7919 + np.asarray(tails)[None] * 104729) % 11
        return torch.from_numpy(values.astype(np.float32))


def slow_ranks(
    model: Scripted, dataset: FewShotDataset, relation: int, shots: int, everything: bool
) -> list[list[int]]:
    """One query at a time, in plain Python."""
    (task,) = [task for task in dataset.tasks if task.relation == relation]
    facts = {(int(h), int(t)) for h, t in task.pairs}
    found = []
    for head, tail in task.pairs[shots:].tolist():
        pool = range(len(dataset.graph.entities)) if everything or task.candidates is None else task.candidates.tolist()
        left = [c for c in pool if c == tail or (head, c) not in facts]
        scores = {c: float(model.score(None, np.array([head]), np.array([c]))[0, 0]) for c in left}
        better = sum(score > scores[tail] for score in scores.values())
        tied = sum(score == scores[tail] for score in scores.values()) - 1
        found.append([better + 1, better + tied + 1])
    return found


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("shots", [1, 5])
def test_ranks_equal_a_slow_and_obvious_implementation(umls: FewShotDataset, shots: int, everything: bool) -> None:
    model = Scripted()
    for task in umls.split("dev"):
        ranks = rank_task(model, umls, task, shots, among_all=everything)
        expected = slow_ranks(model, umls, task.relation, shots, everything)
        assert np.stack([ranks.optimistic, ranks.pessimistic], axis=1).tolist() == expected


@given(st.data())
def test_ranks_of_random_scores_with_ties(data: st.DataObject) -> None:
    queries, candidates = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    values = st.sampled_from([0.0, 1.0, 2.0, -np.inf])
    scores = np.array(data.draw(st.lists(values, min_size=queries * candidates, max_size=queries * candidates)))
    scores = scores.reshape(queries, candidates).astype(np.float32)
    true = np.array(data.draw(st.lists(st.integers(0, candidates - 1), min_size=queries, max_size=queries)))
    filtered = [(q, c) for q in range(queries) for c in range(candidates) if c != true[q] and data.draw(st.booleans())]
    rows, columns = np.array(filtered, np.int64).reshape(-1, 2).T
    ranks = rank(scores.copy(), true, rows, columns)
    for q in range(queries):
        others = [scores[q, c] for c in range(candidates) if c != true[q] and (q, c) not in filtered]
        better = sum(score > scores[q, true[q]] for score in others)
        tied = sum(score == scores[q, true[q]] for score in others)
        assert (ranks.optimistic[q], ranks.pessimistic[q]) == (better + 1, better + tied + 1)
        assert ranks.realistic[q] == 1 + better + tied / 2


def test_metrics_and_their_intervals() -> None:
    ranks = np.array([1.0, 2.0, 7.5, 20.0] * 50)
    found = metrics(ranks, seed=0)
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 7.5 + 1 / 20) / 4)
    assert (found["hits@1"], found["hits@5"], found["hits@10"]) == (0.25, 0.5, 0.75)
    low, high = found["hits@5_interval"]
    assert low < 0.5 < high and high - low == pytest.approx(4 * np.sqrt(0.25 / 200), rel=0.15)
    assert metrics(ranks, seed=0) == found != metrics(ranks, seed=1)


def test_scores_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(HireError, match="not numbers"):
        rank(np.array([[np.nan, 1]], np.float32), np.array([0]), np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_the_report(umls: FewShotDataset) -> None:
    found = evaluate(Popularity(umls.graph), umls, "test", 3)
    assert (found["split"], found["shots"], found["queries"]) == ("test", 3, 623 - 4 * 3)
    assert sum(part["queries"] for part in found["relations"].values()) == found["queries"]
    assert found["pessimistic"]["mrr"] <= found["realistic"]["mrr"] <= found["optimistic"]["mrr"]


class ReferenceTails(Untrained):
    """The tails of references before all others."""

    name = "reference tails"

    def __init__(self) -> None:
        self.seen: list[list[list[int]]] = []

    def adapt(self, support: Support) -> IntArray:
        self.seen.append(support.pairs.tolist())
        return support.pairs[:, 1]

    def score(self, state: IntArray, heads: IntArray, tails: IntArray) -> Tensor:
        return torch.from_numpy(np.isin(tails, state).astype(np.float32)).expand(len(heads), -1)


def test_references_drawn_at_random(umls: FewShotDataset) -> None:
    model = ReferenceTails()
    found = evaluate_draws(model, umls, "dev", 3, 4)
    tasks = umls.split("dev", 3)
    assert len(model.seen) == 4 * len(tasks) and len({str(seen) for seen in model.seen}) == len(model.seen)
    for index, references in enumerate(model.seen):
        pairs = tasks[index % len(tasks)].pairs.tolist()
        assert all(pair in pairs for pair in references)
    assert [task.pairs.tolist() for task in umls.split("dev", 3)] == [task.pairs.tolist() for task in tasks]
    reciprocals = [draw["mrr"] for draw in found["draws"]]
    assert len(set(reciprocals)) > 1
    assert found["mean"]["mrr"] == pytest.approx(np.mean(reciprocals))
    assert found["deviation"]["mrr"] == pytest.approx(np.std(reciprocals, ddof=1))
    assert evaluate_draws(ReferenceTails(), umls, "dev", 3, 4) == found
    assert evaluate_draws(ReferenceTails(), umls, "dev", 3, 4, seed=1)["draws"] != found["draws"]
    assert evaluate_draws(ReferenceTails(), umls, "dev", 3, 1)["deviation"]["mrr"] == 0


def test_the_protocol_of_nell_one(nell_one: FewShotDataset) -> None:
    for shots, queries in ((1, 2_147), (5, 2_103)):
        assert evaluate(Popularity(nell_one.graph), nell_one, "test", shots)["queries"] == queries


def test_the_candidates_of_fb15k237_one_are_easier_than_all_entities(fb15k237_one_directory: Path) -> None:
    dataset = read_published(fb15k237_one_directory)
    for task in dataset.split("test"):
        assert task.candidates is not None and set(task.candidates.tolist()) == set(task.pairs[:, 1].tolist())
    listed, everything = (
        evaluate(Popularity(dataset.graph), dataset, "test", 5, among_all=among_all) for among_all in (False, True)
    )
    assert listed["queries"] == everything["queries"] == 2_284 - 8 * 5
    assert (listed["candidates"], everything["candidates"]) == ("task", "all")
    assert everything["realistic"]["mrr"] < listed["realistic"]["mrr"] / 2


def test_the_ranks_of_a_split_say_which_pairs_are_queries(umls: FewShotDataset) -> None:
    model = Scripted()
    for draw in (None, 0, 1):
        found = rank_split(model, umls, "test", 3, draw=draw)
        assert list(found) == [task.name for task in umls.split("test")]
        for task in umls.split("test"):
            queries, ranks = found[task.name]
            assert len(set(queries.tolist())) == len(ranks.optimistic) == len(task.pairs) - 3
            assert draw is not None or queries.tolist() == list(range(3, len(task.pairs)))
    drawn = evaluate_draws(model, umls, "test", 3, 2)["draws"][1]
    assert drawn == metrics(Ranks.joined(ranks for _, ranks in found.values()).realistic)
