from __future__ import annotations

import numpy as np
import pytest

from hire.data.dataset import FewShotDataset
from hire.systems.any_link import AnyLink, AnyLinkSettings
from hire.systems.base import Support


def links(dataset: FewShotDataset, settings: AnyLinkSettings, hidden: int | None) -> list[tuple[int, int]]:
    """The two ends of every known fact that is not hidden."""
    facts = [tuple(fact) for fact in dataset.graph.triples.tolist()]
    if settings.train_facts:
        facts += [(h, task.relation, t) for task in dataset.split("train") for h, t in task.pairs.tolist()]
    return [(head, tail) for head, relation, tail in facts if relation != hidden]


@pytest.mark.parametrize("train_facts", [True, False])
@pytest.mark.parametrize("hide", [True, False])
def test_scores_order_tails_by_links_then_by_degree(umls: FewShotDataset, train_facts: bool, hide: bool) -> None:
    settings = AnyLinkSettings(train_facts)
    hidden = umls.split("train")[0].relation if hide else None
    known = links(umls, settings, hidden)
    degrees = np.bincount(np.array(known).ravel(), minlength=len(umls.graph.entities))
    system = AnyLink.restore(umls, settings, {})
    heads, tails = np.array([3, 70, 3]), np.array([90, 4, 17, 4, 3, 60])  # in any order, and repeated
    scores = system.score(system.adapt(Support(np.array([[1, 2]]), relation=hidden)), heads, tails)
    for row, head in zip(scores.tolist(), heads, strict=True):
        counts = [sum({(head, tail): 1, (tail, head): 1}.get(pair, 0) for pair in known) for tail in tails]
        counts = [2 * n if tail == head else n for n, tail in zip(counts, tails, strict=True)]  # both ends of a loop
        assert [int(score) for score in row] == counts
        expected = sorted(zip(counts, degrees[tails].tolist(), strict=True))
        by_score = sorted(zip(row, counts, degrees[tails].tolist(), strict=True))
        assert [(count, degree) for _, count, degree in by_score] == expected


def test_a_new_entity_brings_its_links(umls: FewShotDataset) -> None:
    count = len(umls.graph.entities)
    relation = int(umls.graph.triples[0, 1])
    system = AnyLink.restore(umls, AnyLinkSettings(), {})
    wider = system.extended(umls.graph.extended(["new"], np.array([[count, relation, 5]])))
    scores = wider.score(wider.adapt(Support(np.array([[1, 2]]))), np.array([count]), np.arange(count))[0]
    assert scores.argmax() == 5 and int(scores[5]) == 1 and (scores[np.arange(count) != 5] < 1).all()
    assert len(wider.task_facts) == sum(len(task.pairs) for task in umls.split("train"))
