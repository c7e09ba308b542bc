from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.build import BuildSettings, build
from hire.data.dataset import FewShotDataset
from hire.data.sources.columns import TripleTable
from hire.errors import HireError
from hire.sampling.episodes import EpisodeBatch, EpisodeSampler, Regime, draw_distinct
from tests.conftest import random_triples


def dataset_of(triples: list[tuple[str, str, str]], more_than: int = 2) -> FewShotDataset:
    table = TripleTable("test")
    for row in triples:
        table.triples.append(*row)
    return build([table], BuildSettings("test", more_than=more_than, split=(2, 1, 1)))[0]


def true_facts(dataset: FewShotDataset) -> set[tuple[int, int, int]]:
    facts = {(int(h), int(r), int(t)) for h, r, t in dataset.graph.triples}
    return facts | {(int(h), task.relation, int(t)) for task in dataset.tasks for h, t in task.pairs}


def check(dataset: FewShotDataset, batch: EpisodeBatch, facts: set[tuple[int, int, int]]) -> None:
    """Every promise about an episode, slowly."""
    for i, relation in enumerate(batch.relations.tolist()):
        references = [tuple(pair) for pair in batch.references[i].tolist()]
        queries = [tuple(pair) for pair in batch.queries[i].tolist()]
        assert len(set(references)) == len(references)
        assert not set(references) & set(queries)
        for pairs, negatives in ((references, batch.reference_negatives[i]), (queries, batch.query_negatives[i])):
            for (head, tail), false in zip(pairs, negatives.tolist(), strict=True):
                assert (head, relation, tail) in facts
                assert not any((head, relation, entity) in facts for entity in false)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from(["tasks", "in-train"]),
)
def test_every_promise_on_small_graphs(seed: int, shots: int, queries: int, negatives: int, regime: Regime) -> None:
    sizes = {"a": 6, "b": 7, "c": 40, "d": 12, "e": 9, "background": 600, "small": 2}
    dataset = dataset_of(random_triples(seed % 7, 26, sizes), more_than=5)
    sampler = EpisodeSampler(
        dataset, shots=shots, queries=queries, negatives=negatives, batch_size=32, regime=regime, seed=seed
    )
    batch = sampler.batch(seed)
    assert batch.relations.shape == (32,) and batch.relations.dtype == torch.int64
    assert batch.references.shape == (32, shots, 2)
    assert batch.reference_negatives.shape == (32, shots, negatives)
    assert batch.queries.shape == (32, queries, 2)
    assert batch.query_negatives.shape == (32, queries, negatives)
    check(dataset, batch, true_facts(dataset))


def test_queries_of_one_episode_are_distinct_where_there_are_enough(umls: FewShotDataset) -> None:
    batch = EpisodeSampler(umls, shots=5, queries=20).batch(0)
    for pairs in batch.queries.tolist():
        assert len({tuple(pair) for pair in pairs}) == 20


def test_few_triples_repeat_all_queries_before_any_twice_more() -> None:
    sizes = {"a": 6, "b": 6, "c": 6, "d": 6, "background": 600}
    sampler = EpisodeSampler(dataset_of(random_triples(1, 30, sizes), 5), shots=3, queries=7, batch_size=64)
    for pairs in sampler.batch(0).queries.tolist():
        counts = Counter(tuple(pair) for pair in pairs)
        assert sorted(counts.values()) == [2, 2, 3]


def test_every_choice_is_equally_likely() -> None:
    """Pairs of (reference, query) of a task with 6 triples: each of the 30 must come about equally often."""
    drawn = draw_distinct(np.random.default_rng(0), np.full(60_000, 6), shots=1, queries=1)
    counts = Counter(map(tuple, drawn.tolist()))
    assert len(counts) == 30
    assert max(abs(count - 2000) for count in counts.values()) < 5 * np.sqrt(2000)


def test_the_same_seed_gives_the_same_episodes_on_any_number_of_threads(umls: FewShotDataset) -> None:
    def first(workers: int, seed: int = 7, start: int = 0) -> list[EpisodeBatch]:
        sampler = EpisodeSampler(umls, shots=3, batch_size=64, seed=seed, regime="in-train")
        return list(islice(sampler.stream(start, workers=workers), 6))

    def same(left: list[EpisodeBatch], right: list[EpisodeBatch]) -> bool:
        return all(
            torch.equal(getattr(a, name), getattr(b, name))
            for a, b in zip(left, right, strict=True)
            for name, value in vars(a).items()
            if value is not None
        )

    reference = first(1)
    assert same(reference, first(2)) and same(reference, first(5))
    assert same(reference[2:], first(2, start=2)[:4])
    assert not same(reference, first(1, seed=8))


def test_regimes(umls: FewShotDataset) -> None:
    tasks = {task.relation for task in umls.split("train")}
    assert set(EpisodeSampler(umls, shots=1).relations.tolist()) == tasks
    both = set(EpisodeSampler(umls, shots=1, regime="in-train").relations.tolist())
    held_out = {task.relation for task in umls.tasks if task.split != "train"}
    assert both > tasks and not both & held_out
    assert both - tasks == {
        int(r) for r in umls.graph.background_relations if (umls.graph.triples[:, 1] == r).sum() > 1
    }


def test_too_few_triples_for_the_shots_is_an_error() -> None:
    dataset = dataset_of(random_triples(1, 30, {"a": 6, "b": 6, "c": 6, "d": 6, "background": 600}), 5)
    with pytest.raises(HireError, match="has 6 triples, but 6 references and a query need 7"):
        EpisodeSampler(dataset, shots=6)


@pytest.mark.parametrize("wrong", [{"shots": 0}, {"shots": 1, "queries": 0}, {"shots": 1, "regime": "other"}])
def test_wrong_arguments(umls: FewShotDataset, wrong: dict[str, int]) -> None:
    with pytest.raises(HireError):
        EpisodeSampler(umls, **wrong)  # type: ignore[arg-type]


def test_heads_without_any_false_tail_are_left_out() -> None:
    everything = [("e0", relation, f"e{t}") for relation in "abcd" for t in range(9)]
    others = [(f"e{h}", relation, f"e{h}") for relation in "abcd" for h in range(1, 6)]
    dataset = dataset_of([*everything, *others, ("e0", "x", "e1")], 5)
    sampler = EpisodeSampler(dataset, shots=3)
    batch = sampler.batch(0)
    assert batch.references[..., 0].min() > 0 and batch.queries[..., 0].min() > 0
    with pytest.raises(HireError, match="no relation has 6 triples whose heads have a false tail"):
        EpisodeSampler(dataset, shots=5)


def test_negatives_of_background_relations_share_a_type_with_their_tails() -> None:
    triples = random_triples(5, 40, {"a": 60, "b": 60, "c": 60})
    triples += [(f"e{h}", "typed", f"e{t}") for h in range(40) for t in (0, 4, 8)]
    triples += [(f"e{h}", "untyped", f"e{t}") for h in range(40) for t in (1, 3)]
    table = TripleTable("test")
    for row in triples:
        table.triples.append(*row)
    for entity in range(0, 40, 2):
        table.types.append(f"e{entity}", f"type{entity % 4}")
    dataset, _ = build([table], BuildSettings("test", fewer_than=80))
    graph = dataset.graph
    sampler = EpisodeSampler(dataset, shots=1, negatives=20, batch_size=300, regime="in-train")
    batch = sampler.batch(0)
    drawn = {
        graph.relations[r]: {
            int(graph.entities[int(e)][1:]) for e in batch.query_negatives[batch.relations == r].ravel()
        }
        for r in set(batch.relations.tolist())
    }
    assert drawn["typed"] == set(range(0, 40, 4)) - {0, 4, 8}
    assert drawn["untyped"] <= set(range(40)) - {1, 3}
    assert drawn.keys() >= {"typed", "untyped"}


@pytest.mark.parametrize("regime", ["tasks", "in-train"])
def test_nell_one(nell_one: FewShotDataset, regime: Regime) -> None:
    sampler = EpisodeSampler(nell_one, shots=5, negatives=2, batch_size=512, regime=regime, seed=3)
    check(nell_one, sampler.batch(11), true_facts(nell_one))


def test_background_relations_with_few_facts_are_no_tasks(umls: FewShotDataset) -> None:
    every = EpisodeSampler(umls, shots=1, regime="in-train")
    some = EpisodeSampler(umls, shots=1, regime="in-train", min_facts=20)
    train = {task.relation for task in umls.split("train")}
    facts = np.bincount(umls.graph.triples[:, 1], minlength=len(umls.graph.relations))
    kept = set(some.relations.tolist()) - train
    assert kept == {int(r) for r in every.relations if r not in train and facts[r] >= 20}
    assert train < set(some.relations.tolist()) < set(every.relations.tolist())
