"""The graphs of benchmarks/planted.py: facts follow from rules, and the perfect reasoner is perfect."""

from __future__ import annotations

import runpy
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Planted: Any = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "planted.py"))["Planted"]


@pytest.fixture(scope="module")
def planted() -> Any:
    return Planted(10_000, seed=3)


def test_every_entity_has_a_name_and_a_fact_and_the_seed_decides(planted: Any) -> None:
    everything = np.arange(planted.entities)
    assert np.array_equal(np.unique(planted.name(everything)), everything)
    pairs = [planted.pairs(relation) for relation in range(planted.relations)]
    assert set(np.concatenate(pairs).ravel().tolist()) == set(range(planted.entities))
    again, other = Planted(10_000, seed=3), Planted(10_000, seed=4)
    assert np.array_equal(again.pairs(1), pairs[1]) and not np.array_equal(other.pairs(1), pairs[1])
    popular = Counter(np.concatenate(pairs)[:, 1].tolist()).most_common(1)[0][1]
    assert popular > 50  # degrees are far from equal


def plain_conclusions(planted: Any, rule: Any) -> dict[int, set[int]]:
    """What follows from a rule, by plain loops."""
    first, *more = (planted.pairs(int(name[1:])).tolist() for name in rule.relations)
    found = defaultdict(set)
    for head, tail in first:
        if rule.kind == "link":
            found[head].add(tail)
        elif rule.kind == "inverse":
            found[tail].add(head)
        else:
            found[head].update(end for middle, end in more[0] if middle == tail)
    return found


def test_facts_follow_from_rules_and_the_perfect_reasoner_knows_how_far(planted: Any) -> None:
    for task in range(3):
        rule, pairs = planted.rule_of(task)
        follows = plain_conclusions(planted, rule)
        rows = [(int(head), int(tail)) for head, tail in pairs]
        noise = [tail not in follows[head] for head, tail in rows]
        assert sum(noise) == rule.noise < 0.4 * len(rows) and 50 < len(rows) == rule.facts < 500
        of_type = set(planted.type_of(pairs[:, 1]).tolist())
        assert len(of_type) == 1
        first = int(planted.type_starts[of_type.pop()])
        expected = []
        for (head, tail), wrong in zip(rows, noise, strict=True):
            known = {other for same, other in rows if same == head} - {tail}
            left = [
                t for t in follows[head] - known - {tail} if planted.type_of(np.array([t])) == planted.type_of(tail)
            ]
            if wrong:
                expected.append(1 / (1 + len(left) + tail - first))
            else:  # at each place among the conclusions with the same probability
                expected.append(float(np.mean([1 / (1 + place) for place in range(len(left) + 1)])))
        assert rule.mrr == pytest.approx(np.mean(expected))
