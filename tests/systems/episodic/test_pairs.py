from __future__ import annotations

import pytest
import torch

from hire.systems.episodic.network import Pairs
from hire.systems.faan import FaanModelSettings, FaanNetwork
from tests.systems.episodic.support import some_entities

TASKS, SHOTS, QUERIES, NEGATIVES = 2, 3, 4, 5


@pytest.mark.parametrize("shared", [True, False])
def test_a_step_scores_pairs_as_they_are_scored_one_by_one(shared: bool) -> None:
    """All pairs of a step are computed at once; each has the score that it has by itself."""
    torch.manual_seed(0)
    network = FaanNetwork(FaanModelSettings(dimension=4, loss="margin", margin=100.0)).eval()
    shape = (TASKS, 2 * SHOTS + 2 * QUERIES + (1 if shared else QUERIES) * NEGATIVES)
    entities = some_entities(shape, dimension=4)
    first, second = 2 * SHOTS, 2 * SHOTS + 2 * QUERIES
    references = Pairs(entities[:, :SHOTS], entities[:, SHOTS:first], entities[:, :0])
    heads, tails, rest = (
        entities[:, first : first + QUERIES],
        entities[:, first + QUERIES : second],
        entities[:, second:],
    )
    queries = Pairs(heads, tails, rest if shared else rest.reshape(TASKS, QUERIES, NEGATIVES))
    relation = network.adapt(references)
    losses = network.losses(relation, queries)
    for task in range(TASKS):
        own = relation[task : task + 1]
        for query in range(QUERIES):
            head = heads[task : task + 1, query : query + 1, None]
            others = (
                queries.negatives[task : task + 1, None] if shared else queries.negatives[task : task + 1, query, None]
            )
            true = network.score(own, head, tails[task : task + 1, query : query + 1, None])
            false = network.score(own, head, others)
            expected = (100.0 - true + false).clamp_min(0).mean()
            assert losses[task, query].item() == pytest.approx(expected.item(), rel=1e-5)
