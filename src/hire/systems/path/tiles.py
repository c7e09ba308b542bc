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
    units: FloatArray  # [kinds, members, units]
    linear: FloatArray  # [kinds]: to the sum of the members' scores
    unlinked: FloatArray  # [kinds]: the score of a tail that nothing links to the head; none if it is not known yet

    @classmethod
    def of(cls, weights: TiledWeights, described: Described, factors: Tensor) -> TiledTails:
        """Some tails as described."""
        rows = torch.cat([described.units, described.linear.sum(dim=1, keepdim=True)], dim=1).numpy()
        firsts, kinds = _equal_rows(rows)
        units = by_member(torch.from_numpy(rows[firsts, :-1]), len(weights.hidden))
        linear, nothing = rows[firsts, -1].copy(), np.zeros(0, np.float32)
        found = cls(kinds, factors.numpy(), _padded(units, 2).numpy(), linear, nothing)
        each = found._replace(kinds=np.arange(len(firsts), dtype=np.int32))
        channels = len(weights.hidden) * weights.channel_rows
        features = np.zeros((len(firsts), weights.feature_rows), np.float32)
        return found._replace(unlinked=unreached_scores(weights, each, features, channels))


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


def _equal_rows(rows: FloatArray) -> tuple[IntArray, NDArray[np.int32]]:
    """The first of each set of rows that are equal, bit for bit, and for each row the index of its set."""
    keys = np.empty(len(rows), np.uint64)
    _hash_rows(rows.view(np.uint32), keys)
    _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(firsts)  # neighbors stay neighbors: what is read next is near
    firsts, kinds = firsts[order], np.argsort(order)[kinds]
    if not np.array_equal(rows[firsts][kinds].view(np.uint32), rows.view(np.uint32)):  # two keys happen to be the same
        firsts = kinds = np.arange(len(rows))
    return firsts, kinds.astype(np.int32)


@compiled
def _hash_rows(rows: NDArray[np.uint32], keys: NDArray[np.uint64]) -> None:
    """Compute a number from each row."""
    for row in range(len(rows)):
        mixed = np.uint64(0)
        for column in range(rows.shape[1]):
            mixed = (mixed ^ np.uint64(rows[row, column])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        keys[row] = mixed


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
    inputs = np.zeros((input_count, LANES), np.float32)
    units, hidden = np.empty((unit_count, LANES), np.float32), np.empty((unit_count, LANES), np.float32)
    sums, arrived = np.empty((LANES, state.shape[1]), np.float32), np.empty((LANES, state.shape[1]), np.float32)
    exponents, total = np.empty(arrived.size, np.int32), np.zeros(LANES, np.float32)
    pairs, shared = np.empty(len(features), np.int32), np.empty(len(features), np.int32)
    count = _choose_pairs(tails, features, reached, pairs, shared)
    chosen = np.zeros(count + LANES, np.int32)  # the kinds of the pairs
    for row in range(count):
        chosen[row] = tails.kinds[pairs[row]]
    edge = 0
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
            row_count = of_features + 2 * of_channels
            for lane in range(walked):
                if stays[start + lane] >= 0:
                    row_count = input_count
        for member in range(members):
            arriving = inputs[of_features : of_features + of_channels]
            lessened = inputs[of_features + of_channels : of_features + 2 * of_channels]
            staying = inputs[of_features + 2 * of_channels :]
            for lane in range(walked):
                factor, stay = tails.factors[pairs[start + lane]], stays[start + lane]
                for c in range(channels):
                    value = arrived[lane, member * channels + c]
                    arriving[c, lane] = value
                    lessened[c, lane] = value * factor
                if stay >= 0:
                    for c in range(channels):
                        staying[c, lane] = state[stay, member * channels + c]
            add_row_product(own.linear[member], inputs, row_count, total)
            gather(tails.units, chosen[start : start + LANES], member, units)
            add_product(own.inputs[member], inputs, row_count, units)
            kernels.gelu(units.reshape(-1))
            for unit in range(unit_count):
                hidden[unit] = own.hidden_bias[member, unit]
            add_product(own.hidden[member], units, unit_count, hidden)
            kernels.gelu(hidden.reshape(-1))
            add_row_product(own.last[member], hidden, unit_count, total)
        for lane in range(width):
            scores[pairs[start + lane]] = (total[lane] + own.last_bias[0]) / np.float32(members)
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
        kind, linked = tails.kinds[pair], len(tails.unlinked) == 0
        other = latest[kind]
        same = other >= 0
        for column in range(features.shape[1]):
            linked |= features[pair, column] != 0
            same &= features[pair, column] == features[other, column]
        if linked and same:
            shared[pair] = other
        elif linked:
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
