"""Hops and the read-out of one head and all tails, without gradients, in tiles of nodes or pairs.

All candidates of a query go through it, whether a path leads to them or not, so most of the time of an answer is spent
here. A tile has as many pairs as fit, with all that is computed of them, into the processor's nearest memory; a row of
it is one value of each pair, so that processors compute many pairs at a time, and a pair has the same bits wherever it
is. What is known to be zero is not multiplied: tails are best ordered so that those that walks reach come first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hire.systems.path import kernels
from hire.systems.path.readout import Described, Inputs, ReadOut, by_member
from hire.systems.path.walks import Walks
from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled

LANES = 128  # pairs of a tile
LAYER_NORM_EPSILON = 1e-5  # PyTorch's default
UNROLLED = 4  # rows that are multiplied at once: the number of units, and of each sort of input, is a multiple of it


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

    @classmethod
    def of(cls, weights: ReadOut) -> TiledWeights:
        """The weights, with zeros where a number of rows is no multiple."""
        features, channels = (_up(part.shape[1]) for part in (weights.units.of_features, weights.units.of_state))
        linear = _stacked(weights.linear)[..., 0]
        linear[0, :features] = linear[:, :features].sum(dim=0)  # features are the same for all members
        linear[1:, :features] = 0
        return cls(
            _padded(_stacked(weights.units), 2).numpy(),
            linear.contiguous().numpy(),
            _padded(weights.hidden, 1, 2).numpy(),
            _padded(weights.hidden_bias, 1).numpy(),
            _padded(weights.last, 1).numpy(),
            weights.last_bias.sum(dim=0, keepdim=True).numpy(),
            features,
            channels,
        )


class TiledTails(NamedTuple):
    """What tails themselves add to the first layer, for all tiles."""

    units: FloatArray  # [tiles, members, units, LANES]
    linear: FloatArray  # [tails]: to the sum of the members' scores
    factors: FloatArray  # [tails]: by which what arrives is lessened for the tail's degree

    @classmethod
    def of(cls, described: Described, members: int, factors: Tensor) -> TiledTails:
        """Some tails as described."""
        count, width = described.units.shape
        padded = described.units.new_zeros(_up(count, LANES), members, _up(width // members))
        padded[:count, :, : width // members] = by_member(described.units, members)
        units = padded.view(-1, LANES, *padded.shape[1:]).permute(0, 2, 3, 1).contiguous()
        return cls(units.numpy(), described.linear.sum(dim=1).numpy(), factors.numpy())


class TiledHop(NamedTuple):
    """The weights of a hop before the last: what arrives is updated, normalized and scaled."""

    update: FloatArray  # [members, 2 * channels, channels]: of what arrives, then of that lessened
    scale: FloatArray  # [members, channels]
    shift: FloatArray  # [members, channels]

    @classmethod
    def of(cls, update: Tensor, scale: Tensor, shift: Tensor) -> TiledHop:
        """The weights, with zeros where a number of rows is no multiple."""
        sorts = [_padded(part, 1, 2) for part in torch.split(update, scale.shape[1], dim=1)]
        return cls(torch.cat(sorts, dim=1).numpy(), scale.contiguous().numpy(), shift.contiguous().numpy())


def updated(
    own: TiledHop,
    summed: FloatArray,
    factors: Tensor,
    gate: Tensor | None,
    before: Tensor,
    stays: Tensor,
    message_scale: float,
) -> Tensor:
    """The states of nodes [nodes, members * channels] after a hop, from the messages that arrive at them, summed.

    factors [nodes] lessen for high degrees; before are the states of the previous layer, where stays says.
    """
    state = torch.empty(summed.shape)
    gates = np.zeros((0, 0), np.float32) if gate is None else gate.numpy()
    _update(
        own, summed, factors.numpy(), gates, before.numpy(), stays.numpy(), np.float32(message_scale), state.numpy()
    )
    return state


def _stacked(parts: Inputs) -> Tensor:
    """The weights of all inputs, [members, inputs, outputs]."""
    sorts = (parts.of_features, *torch.split(parts.of_arrived, parts.of_state.shape[1], dim=1), parts.of_state)
    return torch.cat([_padded(part, 1) for part in sorts], dim=1)


def _padded(values: Tensor, *axes: int) -> Tensor:
    """Values with zeros behind them, along some axes."""
    found = values.new_zeros([_up(size) if axis in axes else size for axis, size in enumerate(values.shape)])
    found[tuple(slice(size) for size in values.shape)] = values
    return found


def _up(count: int, multiple: int = UNROLLED) -> int:
    return -(-count // multiple) * multiple


def tiled_scores(
    weights: TiledWeights,
    tails: TiledTails,
    walks: Walks,
    carried: tuple[Tensor, Tensor, Tensor, Tensor],
    state: Tensor,
    message_scale: float,
) -> Tensor:
    """The mean of the members' scores for one head and all tails, [tails].

    carried are the states that the last hop starts from, and its weights, as `pass_messages` takes them; state is that
    of the nodes before.
    """
    layer = walks.layers[-1]
    scores = torch.empty(len(walks.pairs))
    _read_out(
        weights,
        tails,
        walks.pairs.numpy(),
        walks.reached.numpy(),
        walks.stays[-1].numpy(),
        state.contiguous().numpy(),
        carried[0].contiguous().numpy(),
        carried[1].numpy(),
        carried[2].numpy(),
        carried[3].numpy(),
        layer.sources.numpy(),
        layer.edge_types.numpy(),
        layer.levels.numpy(),
        layer.targets.numpy(),
        np.float32(message_scale),
        scores.numpy(),
    )
    return scores


def unreached_scores(weights: TiledWeights, tails: TiledTails, features: FloatArray, channels: int) -> FloatArray:
    """The mean of the members' scores for pairs with all tails, none of them reached by a walk, [tails]."""
    scores = np.empty(len(features), np.float32)
    nothing, nowhere = np.zeros((0, channels), np.float32), np.zeros(0, np.int64)
    no_edges, no_levels = np.zeros(0, np.int32), np.zeros((0, 2), np.int16)
    _read_out(
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


@compiled
def _read_out(
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
    inputs = np.zeros((input_count, LANES), np.float32)
    units, hidden = np.empty((unit_count, LANES), np.float32), np.empty((unit_count, LANES), np.float32)
    sums, arrived = np.empty((LANES, state.shape[1]), np.float32), np.empty((LANES, state.shape[1]), np.float32)
    exponents, total = np.empty(arrived.size, np.int32), np.empty(LANES, np.float32)
    lanes, factors = np.empty(LANES, np.uint32), np.empty(LANES, np.float32)
    first = edge = 0
    for start in range(0, len(features), LANES):
        width = min(LANES, len(features) - start)
        last, before = first, False
        while last < len(reached) and reached[last] < start + LANES:
            before |= stays[last] >= 0
            lanes[last - first] = reached[last] - start
            factors[last - first] = tails.factors[reached[last]]
            last += 1
        count = of_features
        if last > first:
            count = input_count if before else of_features + 2 * of_channels
            edge = _arrive(
                first, last, edge, carried, weights, at_source, at_target, sources, edge_types, levels, targets, sums
            )
            _compress(sums[: last - first].reshape(-1), message_scale, arrived.reshape(-1), exponents)
        total[:] = 0
        total[:width] = tails.linear[start : start + width]
        for column in range(features.shape[1]):
            for lane in range(width):
                inputs[column, lane] = features[start + lane, column]
        for member in range(members):
            inputs[of_features:count] = 0
            if last > first:
                arriving = inputs[of_features : of_features + of_channels]
                lessened = inputs[of_features + of_channels : of_features + 2 * of_channels]
                for c in range(channels):
                    for row in range(last - first):
                        lane, value = lanes[row], arrived[row, member * channels + c]
                        arriving[c, lane] = value
                        lessened[c, lane] = value * factors[row]
            if before:
                staying = inputs[of_features + 2 * of_channels :]
                for row in range(last - first):
                    if stays[first + row] >= 0:
                        for c in range(channels):
                            staying[c, lanes[row]] = state[stays[first + row], member * channels + c]
            _add_row_product(own.linear[member], inputs, count, total)
            units[:] = tails.units[start // LANES, member]
            _add_product(own.inputs[member], inputs, count, units)
            kernels.gelu(units.reshape(-1))
            for unit in range(unit_count):
                hidden[unit] = own.hidden_bias[member, unit]
            _add_product(own.hidden[member], units, unit_count, hidden)
            kernels.gelu(hidden.reshape(-1))
            _add_row_product(own.last[member], hidden, unit_count, total)
        for lane in range(width):
            scores[start + lane] = (total[lane] + own.last_bias[0]) / np.float32(members)
        first = last


@compiled
def _update(
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
        _compress(summed[start : start + width].reshape(-1), message_scale, arrived.reshape(-1), exponents)
        for member in range(members):
            for c in range(channels):
                for lane in range(width):
                    value = arrived[lane, member * channels + c]
                    inputs[c, lane] = value
                    inputs[rows + c, lane] = value * node_factors[start + lane]
            outputs[:] = 0
            _add_product(own.update[member], inputs, 2 * rows, outputs)
            _normalize(outputs[:channels], mean, spread)
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


@compiled
def _compress(summed: FloatArray, message_scale: np.float32, arrived: FloatArray, exponents: IntArray) -> None:
    """The inverse hyperbolic sine of sums [n] of messages, scaled first."""
    for i in range(len(summed)):
        summed[i] *= message_scale
    kernels.asinh(summed, arrived, exponents)


@compiled
def _normalize(values: FloatArray, mean: FloatArray, spread: FloatArray) -> None:
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
def _arrive(
    first: int,
    last: int,
    edge: int,
    carried: FloatArray,
    weights: FloatArray,
    at_source: FloatArray,
    at_target: FloatArray,
    sources: IntArray,
    edge_types: IntArray,
    levels: IntArray,
    targets: IntArray,
    sums: FloatArray,
) -> int:
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
def _add_product(weights: FloatArray, inputs: FloatArray, count: int, outputs: FloatArray) -> None:
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
def _add_row_product(weights: FloatArray, inputs: FloatArray, count: int, total: FloatArray) -> None:
    """Add weights [inputs] times the first inputs [count, lanes] to a total [lanes]."""
    for i in range(0, count, UNROLLED):
        a, b, c, d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        of_0, of_1, of_2, of_3 = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        for lane in range(LANES):
            total[lane] = (((total[lane] + a * of_0[lane]) + b * of_1[lane]) + c * of_2[lane]) + d * of_3[lane]
