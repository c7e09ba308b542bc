"""Whether systems differ: a paired bootstrap over relations and queries.

The queries of a relation rise and fall together, so that resampling queries alone would take chance for a difference.
Here a resample draws as many relations as there are, with replacement, and of each drawn relation as many queries as
it has. Every system is measured on the same resamples: what is compared are differences on the same queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 5_000
CONFIDENCE = 0.95
DRAWN_AT_ONCE = 1 << 23  # bounds the memory
ROUNDING = 1e-9  # sums of the same numbers may differ by so much

Floats = NDArray[np.float64]


def resampled_means(
    totals: Sequence[Floats], weights: Sequence[Floats], resamples: int = RESAMPLES, seed: int = 0
) -> Floats:
    """The means of some columns in each resample, [resamples, columns].

    totals has an array [queries, columns] for each relation. A query counts as often as its weight says, [queries] for
    each relation: the number of draws of the references in which it was a query; its total is a sum over these.
    """
    generator = np.random.default_rng(seed)
    relations = len(totals)
    chosen = generator.integers(0, relations, (resamples, relations))  # the relations of each resample
    sums = np.zeros((resamples, totals[0].shape[1] + 1))  # of the columns, and of the weights
    for relation, (total, weight) in enumerate(zip(totals, weights, strict=True)):
        owners = np.nonzero(chosen == relation)[0]  # the resample of each time that the relation was drawn
        both = np.column_stack([total, weight])
        at_once = max(1, DRAWN_AT_ONCE // len(weight))
        for start in range(0, len(owners), at_once):
            part = owners[start : start + at_once]
            np.add.at(sums, part, _counts(generator, len(part), len(weight)) @ both)
    return np.asarray(sums[:, :-1] / sums[:, -1:])


def _counts(generator: np.random.Generator, resamples: int, size: int) -> Floats:
    """How often each of `size` queries is in each resample of them, [resamples, size]."""
    drawn = generator.integers(0, size, (resamples, size))
    drawn += np.arange(resamples)[:, None] * size
    return np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def interval(values: Floats) -> tuple[float, float]:
    """Between which values the middle 95% of some resamples lie."""
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return low, high


def p_value(differences: Floats) -> float:
    """How often a difference would be on the other side of zero, on both sides together."""
    fewer = min((differences <= ROUNDING).sum(), (differences >= -ROUNDING).sum())
    return min(1.0, 2 * (1 + int(fewer)) / (1 + len(differences)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests at once, after Holm: the smallest counts for all of them, the next for all but one."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(order))
    largest = 0.0
    for place, which in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[which]))
        adjusted[which] = largest
    return [float(value) for value in adjusted]
