"""Hops and the read-out of one head and all tails, without gradients, in tiles of nodes or pairs.

Most of the time of an answer is spent here. A tile has as many pairs as fit, with all that is computed of them, into
the processor's nearest memory; a row of it is one value of each pair, so that processors compute many pairs at a time,
and a pair has the same bits wherever it is. Pairs that walks reach come first, because what is known to be zero is not
multiplied. Of the others, most are told apart by nothing: they are computed once, or once for all heads.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.systems.path.readout import Described, Inputs, ReadOut, by_member
from hire.systems.path.tile_kernels import (
    UNROLLED,
    TiledHop,
    TiledTails,
    TiledWeights,
    number_rows,
    read_out_tiles,
    update_tiles,
)
from hire.systems.path.walks import Walks
from hire.util.arrays import FloatArray


def tiled_weights(weights: ReadOut) -> TiledWeights:
    """The weights of a read-out, with zeros where a number of rows is no multiple."""
    features, channels = (_up(part.shape[1]) for part in (weights.units.of_features, weights.units.of_state))
    linear = _stacked(weights.linear)[..., 0]
    linear[0, :features] = linear[:, :features].sum(dim=0)  # features are the same for all members
    linear[1:, :features] = 0
    return TiledWeights(
        _padded(_stacked(weights.units), 2).numpy(),
        linear.contiguous().numpy(),
        _padded(weights.hidden, 1, 2).numpy(),
        _padded(weights.hidden_bias, 1).numpy(),
        _padded(weights.last, 1).numpy(),
        weights.last_bias.sum(dim=0, keepdim=True).numpy(),
        features,
        channels,
    )


def tiled_tails(described: Described, members: int, factors: Tensor) -> TiledTails:
    """Some tails as described, and the factors by which what arrives is lessened for their degrees."""
    linear = described.linear.sum(dim=1)
    firsts, kinds = _equal_rows(described.units.numpy(), linear.numpy())
    chosen = torch.from_numpy(firsts)
    units = _padded(by_member(described.units[chosen], members).transpose(0, 1), 2)
    unlinked = np.full(len(firsts), np.nan, np.float32)
    return TiledTails(kinds, factors.numpy(), units.numpy(), linear[chosen].numpy(), unlinked)


def tiled_hop(update: Tensor, scale: Tensor, shift: Tensor) -> TiledHop:
    """The weights of a hop, with zeros where a number of rows is no multiple."""
    sorts = [_padded(part, 1, 2) for part in torch.split(update, scale.shape[1], dim=1)]
    return TiledHop(torch.cat(sorts, dim=1).numpy(), scale.contiguous().numpy(), shift.contiguous().numpy())


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
    update_tiles(
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
    read_out_tiles(
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
