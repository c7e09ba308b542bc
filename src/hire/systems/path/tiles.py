"""Hops and the read-out of one head and all tails, without gradients, in tiles of nodes or pairs.

Most of the time of an answer is spent here. A tile has as many pairs as fit, with all that is computed of them, into
the processor's nearest memory; a row of it is one value of each pair, so that processors compute many pairs at a time,
and a pair has the same bits wherever it is. Pairs that walks reach come first, because what is known to be zero is not
multiplied. Of the others, most are told apart by nothing: they are computed once, or once for all heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.systems.path import kernels
from hire.systems.path.readout import Described, Inputs, ReadOut, by_member
from hire.systems.path.tile_kernels import (
    LANES,
    UNROLLED,
    add_product,
    add_row_product,
    arrive,
    compress,
    gather,
    normalize,
    number_rows,
)
from hire.systems.path.walks import Walks
from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled

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
    """What tails themselves add to the first layer; tails for which it is the same are of one kind."""

    kinds: NDArray[np.int32]  # [tails]
    factors: FloatArray  # [tails]: by which what arrives is lessened for the tail's degree
    units: FloatArray  # [members, kinds, units]
    linear: FloatArray  # [kinds]: to the sum of the members' scores
    unlinked: FloatArray  # [kinds]: the score of a tail that nothing links to the head; NaN until it is computed

    @classmethod
    def of(cls, described: Described, members: int, factors: Tensor) -> TiledTails:
        """Some tails as described."""
        linear = described.linear.sum(dim=1)
        firsts, kinds = _equal_rows(described.units.numpy(), linear.numpy())
        chosen = torch.from_numpy(firsts)
        units = _padded(by_member(described.units[chosen], members).transpose(0, 1), 2)
        unlinked = np.full(len(firsts), np.nan, np.float32)
        return cls(kinds, factors.numpy(), units.numpy(), linear[chosen].numpy(), unlinked)


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


def _equal_rows(rows: FloatArray, last: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first of each set of rows that are equal, bit for bit, and for each row the index of its set.

    `last` [rows] is one more column.
    """
    count, width = rows.shape
    firsts, kinds = np.empty(count, np.int64), np.empty(count, np.int32)
    table = np.full(1 << max(4, (2 * count).bit_length()), -1, np.int32)
    keys = np.random.default_rng(0).integers(1, 1 << 63, width + 1, np.uint64)
    found = number_rows(rows.view(np.uint32), last.view(np.uint32), keys, table, firsts, kinds)
    return firsts[:found].copy(), kinds


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
