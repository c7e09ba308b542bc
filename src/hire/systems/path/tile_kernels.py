"""The inner loops of tiles: what arrives at pairs, products of small matrices, rows that are equal; see `tiles`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hire.systems.path import kernels
from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled

LANES = 128  # pairs of a tile
LAYER_NORM_EPSILON = 1e-5  # PyTorch's default
UNROLLED = 4  # rows that are multiplied at once: the number of units, and of each sort of input, is a multiple of it


@compiled
def normalize(values: FloatArray, mean: FloatArray, spread: FloatArray) -> None:
    """Shift and scale the columns of values [n, lanes] to a mean of 0 and a variance of 1, as layer norm does."""
    count = np.float32(len(values))
    mean[:] = 0
    spread[:] = 0
    for row in range(len(values)):
        for lane in range(LANES):
            mean[lane] += values[row, lane] / count
    for row in range(len(values)):
        for lane in range(LANES):
            values[row, lane] -= mean[lane]
            spread[lane] += values[row, lane] * values[row, lane] / count
    for lane in range(LANES):
        spread[lane] = np.float32(1) / np.sqrt(spread[lane] + np.float32(LAYER_NORM_EPSILON))
    for row in range(len(values)):
        for lane in range(LANES):
            values[row, lane] *= spread[lane]


@compiled
def arrive(
    first: int,
    last: int,
    edge: int | np.int64,
    carried: FloatArray,
    weights: FloatArray,
    at_source: FloatArray,
    at_target: FloatArray,
    sources: IntArray,
    edge_types: IntArray,
    levels: IntArray,
    targets: IntArray,
    sums: FloatArray,
) -> int | np.int64:
    """Add up what arrives at some targets, from an edge on; returns the edge to go on with."""
    sums[: last - first] = 0
    while edge < len(targets) and targets[edge] < last:
        row, source, edge_type = targets[edge] - first, sources[edge], edge_types[edge]
        near, far = levels[edge, 0], levels[edge, 1]
        for c in range(carried.shape[1]):
            sums[row, c] += carried[source, c] * (weights[edge_type, c] * (at_source[near, c] * at_target[far, c]))
        edge += 1
    return edge


@compiled
def add_product(weights: FloatArray, inputs: FloatArray, count: int, outputs: FloatArray) -> None:
    """Add weights [inputs, outputs], transposed, times the first inputs [count, lanes] to outputs [outputs, lanes].

    Four inputs and four outputs at once: a value that was loaded is used four times.
    """
    for j in range(0, len(outputs), UNROLLED):
        to_0, to_1, to_2, to_3 = outputs[j], outputs[j + 1], outputs[j + 2], outputs[j + 3]
        for i in range(0, count, UNROLLED):
            of_0, of_1, of_2, of_3 = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
            a_0, a_1, a_2, a_3 = weights[i, j], weights[i, j + 1], weights[i, j + 2], weights[i, j + 3]
            b_0, b_1, b_2, b_3 = weights[i + 1, j], weights[i + 1, j + 1], weights[i + 1, j + 2], weights[i + 1, j + 3]
            c_0, c_1, c_2, c_3 = weights[i + 2, j], weights[i + 2, j + 1], weights[i + 2, j + 2], weights[i + 2, j + 3]
            d_0, d_1, d_2, d_3 = weights[i + 3, j], weights[i + 3, j + 1], weights[i + 3, j + 2], weights[i + 3, j + 3]
            for lane in range(LANES):
                a, b, c, d = of_0[lane], of_1[lane], of_2[lane], of_3[lane]
                to_0[lane] = (((to_0[lane] + a_0 * a) + b_0 * b) + c_0 * c) + d_0 * d
                to_1[lane] = (((to_1[lane] + a_1 * a) + b_1 * b) + c_1 * c) + d_1 * d
                to_2[lane] = (((to_2[lane] + a_2 * a) + b_2 * b) + c_2 * c) + d_2 * d
                to_3[lane] = (((to_3[lane] + a_3 * a) + b_3 * b) + c_3 * c) + d_3 * d


@compiled
def add_row_product(weights: FloatArray, inputs: FloatArray, count: int, total: FloatArray) -> None:
    """Add weights [inputs] times the first inputs [count, lanes] to a total [lanes]."""
    for i in range(0, count, UNROLLED):
        a, b, c, d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        of_0, of_1, of_2, of_3 = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        for lane in range(LANES):
            total[lane] = (((total[lane] + a * of_0[lane]) + b * of_1[lane]) + c * of_2[lane]) + d * of_3[lane]


@compiled
def gather(rows: FloatArray, first: int | np.int64, chosen: IntArray, found: FloatArray) -> None:
    """Copy chosen rows [LANES], from a column on, into the columns of a tile [width, LANES].

    Eight at once wait for memory once.
    """
    for lane in range(0, LANES, 8):
        of_0, of_1, of_2, of_3 = (
            rows[chosen[lane]],
            rows[chosen[lane + 1]],
            rows[chosen[lane + 2]],
            rows[chosen[lane + 3]],
        )
        of_4, of_5 = rows[chosen[lane + 4]], rows[chosen[lane + 5]]
        of_6, of_7 = rows[chosen[lane + 6]], rows[chosen[lane + 7]]
        for i in range(len(found)):
            row, c = found[i], first + i
            row[lane], row[lane + 1], row[lane + 2], row[lane + 3] = of_0[c], of_1[c], of_2[c], of_3[c]
            row[lane + 4], row[lane + 5], row[lane + 6], row[lane + 7] = of_4[c], of_5[c], of_6[c], of_7[c]


@compiled
def compress(summed: FloatArray, message_scale: np.float32, arrived: FloatArray, exponents: IntArray) -> None:
    """The inverse hyperbolic sine of sums [n] of messages, scaled first."""
    for i in range(len(summed)):
        summed[i] *= message_scale
    kernels.asinh(summed, arrived, exponents)


@compiled
def number_rows(
    rows: NDArray[np.uint32],
    last: NDArray[np.uint32],
    keys: NDArray[np.uint64],
    table: IntArray,
    firsts: IntArray,
    kinds: IntArray,
) -> int:
    """Number the sets of equal rows in the order of their firsts; returns how many there are.

    `table` takes each set at its hash, a sum of products with random `keys`, or at the next place that is free.
    """
    found, width = 0, rows.shape[1]
    for row in range(len(rows)):
        mixed = np.uint64(last[row]) * keys[width]
        for column in range(width):
            mixed += np.uint64(rows[row, column]) * keys[column]
        place = np.int64(mixed >> np.uint64(32)) & (len(table) - 1)
        while table[place] >= 0:
            other = firsts[table[place]]
            same = last[other] == last[row]
            for column in range(width):
                same &= rows[other, column] == rows[row, column]
            if same:
                break
            place = (place + 1) & (len(table) - 1)
        if table[place] < 0:
            table[place], firsts[found] = found, row
            found += 1
        kinds[row] = table[place]
    return found
