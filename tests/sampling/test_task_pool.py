from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.errors import HireError
from hire.sampling.episodes import EpisodeBatch, Regime
from hire.sampling.task_pool import TaskPool, TaskShares, collect_tasks


def batch_of(pool: TaskPool, step: int = 0) -> EpisodeBatch:
    return pool.batch(5, step, tasks=16, shots=3, queries=9, negatives=40, inner_negatives=25)


@pytest.mark.parametrize("regime", ["tasks", "in-train"])
def test_what_is_marked_false_is_false_and_the_rest_true(umls: FewShotDataset, regime: Regime) -> None:
    pool = TaskPool(umls, regime, TaskShares())
    count = len(umls.graph.relations)
    for step in range(4):
        batch = batch_of(pool, step)
        for task, relation in enumerate(batch.relations.tolist()):
            for part, negatives, marked in (
                (batch.references, batch.reference_negatives, batch.reference_false),
                (batch.queries, batch.query_negatives, batch.query_false),
            ):
                assert marked is not None
                for (head, tail), row in zip(part[task].tolist(), marked[task].tolist(), strict=True):
                    for negative, is_false in zip(negatives[task].tolist(), row, strict=True):
                        ends = (head, negative) if relation < count else (negative, head)
                        assert is_false != bool(umls.facts.contain(ends[0], relation % count, ends[1]))
                    ends = (head, tail) if relation < count else (tail, head)
                    assert umls.facts.contain(ends[0], relation % count, ends[1])
            pairs = [{tuple(pair) for pair in part[task].tolist()} for part in (batch.references, batch.queries)]
            assert not pairs[0] & pairs[1]


def test_held_out_relations_are_never_drawn(umls: FewShotDataset) -> None:
    pool = TaskPool(umls, "in-train", TaskShares())
    held_out = {task.relation for task in umls.tasks if task.split != "train"}
    relations = torch.cat([batch_of(pool, step).relations for step in range(20)])
    drawn = set((relations % len(umls.graph.relations)).tolist())
    assert drawn and not drawn & held_out


def test_kinds_of_tasks(umls: FewShotDataset, nell_one: FewShotDataset) -> None:
    assert set(TaskPool(umls, "tasks", TaskShares()).kinds) == {"train"}
    assert set(TaskPool(umls, "in-train", TaskShares()).kinds) == {"train", "background"}
    assert set(TaskPool(nell_one, "in-train", TaskShares()).kinds) == {"train", "background", "types"}
    both, one = (TaskPool(umls, "tasks", TaskShares(inverse=inverse)) for inverse in (True, False))
    assert len(both) == 2 * len(one) == 2 * umls.split_sizes["train"]
    with pytest.raises(HireError, match="no relation has the 1000 triples"):
        TaskPool(umls, "tasks", TaskShares(), min_facts=1000)


def test_tasks_between_types_need_no_memory_for_types_that_nothing_links() -> None:
    first, last = 7, 2_999
    names = Vocabulary.of([f"t{i}" for i in range(last + 1)], "type")
    types = Types.of(names, np.arange(50), np.repeat([first, last], 25), 50)
    triples = np.array([(head, 0, 25 + head) for head in range(25)])
    graph = KnowledgeGraph.of(
        Vocabulary.of([f"e{i}" for i in range(50)], "entity"), Vocabulary.of(["r"], "relation"), triples, None, types
    )
    dataset = FewShotDataset.of("typed", graph, {"train": {}, "dev": {}, "test": {}}, {})
    tracemalloc.start()
    tasks = collect_tasks(dataset, "in-train", TaskShares(inverse=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    forward = triples[:, [0, 2]].tolist()
    assert [task.pairs.tolist() for task in tasks if task.kind == "types"] == [forward, triples[:, [2, 0]].tolist()]
    assert peak < 8 * len(names) ** 2 / 10  # a number for each pair of types would be 72 MB


def test_without_types_any_entity_may_be_a_negative(umls: FewShotDataset) -> None:
    """As when the tasks are evaluated: a model that never sees the others does not learn to leave them out."""
    batch = batch_of(TaskPool(umls, "in-train", TaskShares()))
    assert batch.candidates is not None
    assert set(batch.candidates.tolist()) == {len(umls.graph.entities)}


def test_a_step_gives_the_same_batch_whenever_it_is_drawn(umls: FewShotDataset) -> None:
    pool = TaskPool(umls, "in-train", TaskShares())
    first = batch_of(pool, 7)
    batch_of(pool, 8)
    again = batch_of(pool, 7)
    assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in vars(first))
