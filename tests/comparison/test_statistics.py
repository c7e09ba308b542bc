from __future__ import annotations

import numpy as np
import pytest

from hire.comparison import statistics
from hire.comparison.statistics import Floats, holm, interval, p_value, resampled_means


def ones(values: list[Floats]) -> list[Floats]:
    return [np.ones(len(of_relation)) for of_relation in values]


def noisy(generator: np.random.Generator, sizes: list[int], lead: float, columns: int = 2) -> list[Floats]:
    """Reciprocal ranks of equal systems, but that the first leads."""
    found = [generator.uniform(0, 1, (size, columns)) for size in sizes]
    for of_relation in found:
        of_relation[:, 0] += lead
    return found


def plain_resampled_means(totals: list[Floats], weights: list[Floats], resamples: int, seed: int) -> list[list[float]]:
    """One resample after the other, query by query, drawn in the order in which the vectorised version draws."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, len(totals), (resamples, len(totals))).tolist()
    drawn: dict[tuple[int, int], list[list[int]]] = {}
    for relation, weight in enumerate(weights):
        for resample, relations in enumerate(chosen):
            for _ in range(relations.count(relation)):
                queries = generator.integers(0, len(weight), len(weight)).tolist()
                drawn.setdefault((resample, relation), []).append(queries)
    means = []
    for resample in range(resamples):
        sums, count = [0.0] * totals[0].shape[1], 0.0
        for relation, total in enumerate(totals):
            for queries in drawn.get((resample, relation), []):
                for query in queries:
                    count += weights[relation][query]
                    sums = [sum_ + value for sum_, value in zip(sums, total[query].tolist(), strict=True)]
        means.append([sum_ / count for sum_ in sums])
    return means


def test_resamples_are_those_of_a_plain_version(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    sizes = [4, 1, 9]
    weights = [generator.integers(1, 4, size).astype(float) for size in sizes]
    totals = [generator.uniform(0, 1, (size, 3)) * weight[:, None] for size, weight in zip(sizes, weights, strict=True)]
    plain = plain_resampled_means(totals, weights, 50, 7)
    assert resampled_means(totals, weights, 50, 7) == pytest.approx(np.array(plain))
    monkeypatch.setattr(statistics, "DRAWN_AT_ONCE", 10)  # in parts, as a large dataset
    assert resampled_means(totals, weights, 50, 7) == pytest.approx(np.array(plain))


def test_relations_that_differ_make_intervals_wider() -> None:
    values = [np.full((100, 1), 0.9), np.full((100, 1), 0.1), np.full((100, 1), 0.5)]
    low, high = interval(resampled_means(values, ones(values))[:, 0])
    assert low < 0.25 and high > 0.75  # resampling queries alone would give 0.44 to 0.56


def test_a_planted_difference_is_found_and_equal_systems_are_not() -> None:
    generator = np.random.default_rng(0)
    sizes = [40, 60, 80, 100, 50]
    ahead = resampled_means(values := noisy(generator, sizes, 0.15), ones(values))
    assert p_value(ahead[:, 0] - ahead[:, 1]) < 0.01 and interval(ahead[:, 0] - ahead[:, 1])[0] > 0
    found = []
    for seed in range(40):
        values = noisy(np.random.default_rng(seed), sizes, 0.0)
        equal = resampled_means(values, ones(values), 500, seed)
        found.append(p_value(equal[:, 0] - equal[:, 1]) < 0.05)
    assert sum(found) <= 6  # about one in twenty, somewhat more with so few relations


def test_pairing_finds_a_small_difference_between_systems_that_rise_and_fall_together() -> None:
    generator = np.random.default_rng(1)
    values = []
    for size in (50, 70, 90, 60):
        both = generator.uniform(0, 1, (size, 1)) * np.ones((1, 2))
        both[:, 0] += 0.01 + 0.001 * generator.normal(size=size)
        values.append(both)
    means = resampled_means(values, ones(values))
    assert interval(means[:, 0])[0] < interval(means[:, 1])[1]  # apart from one another, they overlap
    assert p_value(means[:, 0] - means[:, 1]) < 0.01


def test_the_same_system_twice_does_not_differ() -> None:
    generator = np.random.default_rng(2)
    one = [generator.uniform(0, 1, (size, 1)) for size in (30, 40)]
    twice = [np.repeat(of_relation, 7, axis=1) for of_relation in one]
    means = resampled_means(twice, ones(twice))
    assert all(p_value(means[:, 0] - means[:, column]) == 1.0 for column in range(7))


def test_several_tests_at_once() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0]) and holm([]) == []
