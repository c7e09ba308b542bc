"""Compiled loops over the rows of a table that Adam moves; see `hire.optim.tables.DenseTable`.

A row of `parts` is weights, first moments, second moments, each `dimension` long, and the number of its last update.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import IntArray
from hire.util.compiled import compiled

Floats = NDArray[np.float32]


@compiled
def rows_at_rest(parts: Floats, numbers: IntArray, drift: Floats, epsilon: float, found: Floats) -> None:
    """Fill `found` [n, dimension] with the weights of some rows as they are now."""
    dimension = found.shape[1]
    small = np.float32(epsilon)
    for i in range(len(numbers)):
        row = parts[numbers[i]]
        missed = drift[int(row[3 * dimension])]
        for d in range(dimension):
            found[i, d] = row[d] - missed * row[dimension + d] / (np.sqrt(row[2 * dimension + d]) + small)


@compiled
def move_rows(
    parts: Floats,
    numbers: IntArray,
    gradient: Floats,
    drift: Floats,
    now: int,
    step: float,
    momentum: float,
    decay: float,
    epsilon_before: float,
    epsilon: float,
) -> None:
    """Bring some distinct rows up to date, then take the step of update `now` with their gradient [n, dimension].

    Rows whose gradient is zero stay at rest.
    """
    dimension = gradient.shape[1]
    rate, before, small = np.float32(step), np.float32(epsilon_before), np.float32(epsilon)
    first_share, second_share = np.float32(1 - momentum), np.float32(1 - decay)
    for i in range(len(numbers)):
        if not gradient[i].any():
            continue
        row = parts[numbers[i]]
        last = int(row[3 * dimension])
        missed = drift[last]
        first_kept, second_kept = np.float32(momentum ** (now - last)), np.float32(decay ** (now - last))
        for d in range(dimension):
            first, second, slope = row[dimension + d], row[2 * dimension + d], gradient[i, d]
            weight = row[d] - missed * first / (np.sqrt(second) + before)
            first = first * first_kept + first_share * slope
            second = second * second_kept + second_share * slope * slope
            row[d] = weight - rate * first / (np.sqrt(second) + small)
            row[dimension + d] = first
            row[2 * dimension + d] = second
        row[3 * dimension] = now
