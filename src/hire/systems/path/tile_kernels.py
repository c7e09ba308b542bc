"""The inner loops of tiles, from what arrives at pairs to their scores; `tiles` says what they mean.

PyTorch is not needed here, so that a process that only compiles them starts at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.systems.path import kernels
from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled

LANES = 128  # pairs of a tile
LAYER_NORM_EPSILON = 1e-5  # PyTorch's default
UNROLLED = 4  # rows that are multiplied at once: the number of units, and of each sort of input, is a multiple of it
OWN, UNLINKED = -1, -2  # a pair's score is computed for itself; it is that of its tail's kind


class TiledWeights(NamedTuple):
    """The weights of a read-out; inputs are the pair's features, what arrives, that lessened, and the tail's state."""

    inputs: FloatArray  # [members, inputs, units]: of the first layer
    linear: FloatArray  # [members, inputs]: of the score itself
    hidden: FloatArray  # [members, units, units]
    hidden_bias: FloatArray  # [members, units]
    last: FloatArray  # [members, units]
    last_bias: FloatArray  # [1]: the sum over the members
    feature_rows: int  # inputs that are features of the pair
    channel_rows: int  # inputs of each other sort


class TiledTails(NamedTuple):
    """What tails themselves add to the first layer; tails for which it is the same are of one kind."""

    kinds: NDArray[np.int32]  # [tails]
    factors: FloatArray  # [tails]: by which what arrives is lessened for the tail's degree
    units: FloatArray  # [members, kinds, units]
    linear: FloatArray  # [kinds]: to the sum of the members' scores
    unlinked: FloatArray  # [kinds]: the score of a tail that nothing links to the head; NaN until it is computed


class TiledHop(NamedTuple):
    """The weights of a hop before the last: what arrives is updated, normalized and scaled."""

    update: FloatArray  # [members, 2 * channels, channels]: of what arrives, then of that lessened
    scale: FloatArray  # [members, channels]
    shift: FloatArray  # [members, channels]


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


@compiled
def read_out_tiles(
    own: TiledWeights,
    tails: TiledTails,
    features: FloatArray,
    reached: IntArray,
    stays: IntArray,
    state: FloatArray,
    carried: FloatArray,
    weights: FloatArray,
    at_source: FloatArray,
    at_target: FloatArray,
    sources: IntArray,
    edge_types: IntArray,
    levels: IntArray,
    targets: IntArray,
    message_scale: np.float32,
    scores: FloatArray,
) -> None:
    """Compute the scores [pairs], tile by tile; the edges of the last hop are ordered by target."""
    members, input_count, unit_count = own.inputs.shape
    channels = state.shape[1] // members
    of_features, of_channels = own.feature_rows, own.channel_rows
    inputs = np.empty((input_count, LANES), np.float32)
    units, hidden = np.empty((unit_count, LANES), np.float32), np.empty((unit_count, LANES), np.float32)
    sums, arrived = np.empty((LANES, state.shape[1]), np.float32), np.empty((LANES, state.shape[1]), np.float32)
    exponents, total = np.empty(arrived.size, np.int32), np.zeros(LANES, np.float32)
    lanes, factors = np.empty(LANES, np.int32), np.empty(LANES, np.float32)
    for lane in range(LANES):
        lanes[lane] = lane
    pairs, shared = np.empty(len(features), np.int32), np.empty(len(features), np.int32)
    count = _choose_pairs(tails, features, reached, pairs, shared)
    chosen = np.zeros(count + LANES, np.int32)  # the kinds of the pairs
    for row in range(count):
        chosen[row] = tails.kinds[pairs[row]]
    edge: int | np.int64 = np.int64(0)  # a literal would be compiled once more
    for start in range(0, count, LANES):
        width = min(LANES, count - start)
        walked = min(width, max(0, len(reached) - start))  # pairs of the tile that are reached
        inputs[:] = 0
        for lane in range(width):
            total[lane] = tails.linear[chosen[start + lane]]
            for column in range(features.shape[1]):
                inputs[column, lane] = features[pairs[start + lane], column]
        row_count = of_features
        if walked:
            edge = arrive(
                start,
                start + walked,
                edge,
                carried,
                weights,
                at_source,
                at_target,
                sources,
                edge_types,
                levels,
                targets,
                sums,
            )
            compress(sums[:walked].reshape(-1), message_scale, arrived.reshape(-1), exponents)
            arrived[walked:], factors[walked:] = 0, 0
            row_count = of_features + 2 * of_channels
            for lane in range(walked):
                factors[lane] = tails.factors[pairs[start + lane]]
                if stays[start + lane] >= 0:
                    row_count = input_count
        for member in range(members):
            if walked:
                arriving = inputs[of_features : of_features + channels]
                lessened = inputs[of_features + of_channels : of_features + 2 * of_channels]
                gather(arrived, member * channels, lanes, arriving)
                for c in range(channels):
                    for lane in range(LANES):
                        lessened[c, lane] = arriving[c, lane] * factors[lane]
            staying = inputs[of_features + 2 * of_channels :]
            for lane in range(walked):
                stay = stays[start + lane]
                if stay >= 0:
                    for c in range(channels):
                        staying[c, lane] = state[stay, member * channels + c]
            add_row_product(own.linear[member], inputs, row_count, total)
            gather(tails.units[member], np.int64(0), chosen[start : start + LANES], units)
            add_product(own.inputs[member], inputs, row_count, units)
            kernels.gelu(units.reshape(-1))
            for unit in range(unit_count):
                hidden[unit] = own.hidden_bias[member, unit]
            add_product(own.hidden[member], units, unit_count, hidden)
            kernels.gelu(hidden.reshape(-1))
            add_row_product(own.last[member], hidden, unit_count, total)
        for lane in range(width):
            scores[pairs[start + lane]] = (total[lane] + own.last_bias[0]) / np.float32(members)
    for row in range(len(reached), count):
        linked = False
        for column in range(features.shape[1]):
            linked |= features[pairs[row], column] != 0
        if not linked:
            tails.unlinked[chosen[row]] = scores[pairs[row]]  # whichever thread is first: the bits are the same
    for pair in range(len(features)):
        if shared[pair] >= 0:
            scores[pair] = scores[shared[pair]]
        elif shared[pair] == UNLINKED:
            scores[pair] = tails.unlinked[tails.kinds[pair]]


@compiled
def _choose_pairs(tails: TiledTails, features: FloatArray, reached: IntArray, pairs: IntArray, shared: IntArray) -> int:
    """Choose the pairs to compute, the reached ones first; returns how many there are.

    `shared` takes for each pair the one that has its score, UNLINKED if that is the kind's, OWN if it is computed.
    """
    shared[:] = UNLINKED
    count = len(reached)
    for row in range(count):
        pairs[row], shared[reached[row]] = reached[row], OWN
    latest = np.full(len(tails.linear), -1, np.int32)  # of each kind, the pair that was chosen last
    for pair in range(len(features)):
        if shared[pair] == OWN:
            continue
        kind = tails.kinds[pair]
        other, wanted = latest[kind], np.isnan(tails.unlinked[kind])
        same = other >= 0
        for column in range(features.shape[1]):
            wanted |= features[pair, column] != 0
            same &= features[pair, column] == features[other, column]
        if wanted and same:
            shared[pair] = other
        elif wanted:
            pairs[count], shared[pair], latest[kind] = pair, OWN, pair
            count += 1
    return count


@compiled
def update_tiles(
    own: TiledHop,
    summed: FloatArray,
    node_factors: FloatArray,
    gates: FloatArray,
    before: FloatArray,
    stays: IntArray,
    message_scale: np.float32,
    states: FloatArray,
) -> None:
    """Compute the states of nodes after a hop, tile by tile."""
    members, channels = own.scale.shape
    rows = own.update.shape[2]
    inputs, outputs = np.zeros((2 * rows, LANES), np.float32), np.empty((rows, LANES), np.float32)
    arrived, exponents = np.empty((LANES, members * channels), np.float32), np.empty(LANES * summed.shape[1], np.int32)
    mean, spread = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for start in range(0, len(summed), LANES):
        width = min(LANES, len(summed) - start)
        compress(summed[start : start + width].reshape(-1), message_scale, arrived.reshape(-1), exponents)
        for member in range(members):
            for c in range(channels):
                for lane in range(width):
                    value = arrived[lane, member * channels + c]
                    inputs[c, lane] = value
                    inputs[rows + c, lane] = value * node_factors[start + lane]
            outputs[:] = 0
            add_product(own.update[member], inputs, 2 * rows, outputs)
            normalize(outputs[:channels], mean, spread)
            for c in range(channels):
                for lane in range(LANES):
                    outputs[c, lane] = own.shift[member, c] + outputs[c, lane] * own.scale[member, c]
            kernels.gelu(outputs.reshape(-1))
            for lane in range(width):
                node = start + lane
                for c in range(channels):
                    value, column = outputs[c, lane], member * channels + c
                    if len(gates):
                        value *= gates[node, column]
                    states[node, column] = value + before[stays[node], column] if stays[node] >= 0 else value


def unreached_scores(weights: TiledWeights, tails: TiledTails, features: FloatArray, channels: int) -> FloatArray:
    """The mean of the members' scores for pairs with all tails, none of them reached by a walk, [tails]."""
    scores = np.empty(len(features), np.float32)
    nothing, nowhere = np.zeros((0, channels), np.float32), np.zeros(0, np.int64)
    no_edges, no_levels = np.zeros(0, np.int32), np.zeros((0, 2), np.int16)
    read_out_tiles(
        weights,
        tails,
        features,
        nowhere,
        nowhere,
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        no_edges,
        no_edges,
        no_levels,
        no_edges,
        np.float32(1),
        scores,
    )
    return scores


def compile_tiles() -> None:
    """Compile the loops of an answer, on one tail that nothing is known of and the smallest network."""
    one, some = 1, UNROLLED
    weights = TiledWeights(
        _zeros(one, 4 * some, some),
        _zeros(one, 4 * some),
        _zeros(one, some, some),
        _zeros(one, some),
        _zeros(one, some),
        _zeros(one),
        some,
        some,
    )
    tails = TiledTails(np.zeros(one, np.int32), _zeros(one), _zeros(one, one, some), _zeros(one), _zeros(one))
    unreached_scores(weights, tails, _zeros(one, some), some)
    hop, nodes = TiledHop(_zeros(one, 2 * some, some), _zeros(one, some), _zeros(one, some)), _zeros(one, some)
    update_tiles(
        hop, nodes, _zeros(one), _zeros(0, 0), nodes, np.zeros(one, np.int64), np.float32(1), _zeros(one, some)
    )


def _zeros(*sizes: int) -> FloatArray:
    return np.zeros(sizes, np.float32)
