"""The read-out of the path network: from what arrives at pairs of head and tail, and what they are, to their scores.

All candidates of a query go through it, whether a path leads to them or not, so most of the time of an answer is spent
here. The values of all members lie side by side in the row of a pair.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hire.systems.path import kernels
from hire.systems.path.walks import Walks
from hire.util.arrays import FloatArray


@dataclass(frozen=True)
class Described:
    """What tails themselves add to the first layer: to its units, and to the score itself."""

    units: Tensor  # [tails, members * width]
    linear: Tensor  # [tails, members]

    @cached_property
    def summed(self) -> Tensor:
        """What is added to the sum of the members' scores, [tails]."""
        return self.linear.sum(dim=1)


class Inputs(NamedTuple):
    """Weights of each member for the inputs of a pair, and some outputs of the first layer."""

    of_features: Tensor  # [members, pair features, outputs]
    of_arrived: Tensor  # [members, 2 * channels, outputs]: of what arrives, and of what is lessened for high degrees
    of_state: Tensor  # [members, channels, outputs]: of tails that were reached before the last hop


class Summed(NamedTuple):
    """Weights of a read-out as they are needed without gradients, for the sum of the members' scores."""

    linear: tuple[Tensor, Tensor, Tensor]  # of features, of what arrives and of the state, for the score itself
    of_features: Tensor  # [pair features, members * width]
    of_state: Tensor  # [members * channels, members * width]
    hidden_bias: FloatArray  # [members * width]
    last: Tensor  # [members * width]
    last_bias: Tensor  # []


@dataclass(frozen=True)
class ReadOut:
    """The weights of each member: the first layer, which also adds to the score itself, a hidden layer, the last."""

    linear: Inputs  # of the score itself, one output
    units: Inputs  # of the units, [members, ..., width]
    hidden: Tensor  # [members, width, width]
    hidden_bias: Tensor  # [members, width]
    last: Tensor  # [members, width]
    last_bias: Tensor  # [members]
    dropout: float

    @cached_property
    def summed(self) -> Summed:
        """The same weights for the sum over the members."""
        return Summed(
            (
                self.linear.of_features.sum(dim=0)[:, 0],
                self.linear.of_arrived.flatten(),
                self.linear.of_state.flatten(),
            ),
            side_by_side(self.units.of_features),
            of_each_member(self.units.of_state),
            self.hidden_bias.flatten().numpy(),
            self.last.flatten(),
            self.last_bias.sum(),
        )


def side_by_side(weights: Tensor) -> Tensor:
    """Weights [members, inputs, outputs] for inputs that all members share, [inputs, members * outputs]."""
    return weights.transpose(0, 1).flatten(1)


def of_each_member(weights: Tensor) -> Tensor:
    """Weights [members, inputs, outputs] for inputs of each member, [members * inputs, members * outputs]."""
    found: Tensor = torch.block_diag(*weights)  # type: ignore[no-untyped-call]
    return found


def by_member(values: Tensor, members: int) -> Tensor:
    """Rows of all members [n, members * width] as [n, members, width]."""
    return values.view(len(values), members, values.shape[1] // members)


def staying(state: Tensor, kept: Tensor) -> Tensor:
    """The states of nodes that were in the previous layer too; zero for the others."""
    return F.pad(state, (0, 0, 0, 1)).index_select(0, kept)


def read_out(
    weights: ReadOut, described: Described, walks: Walks, arrived: Tensor, factors: Tensor, state: Tensor
) -> Tensor:
    """The score of each pair, [members, pairs]; where no gradients are needed, the members' mean, [1, pairs].

    arrived are the messages of the last hop at reached pairs [reached, members * channels], factors [reached] lessen
    them for the degrees of the tails; state is that of the layer before.
    """
    parts = by_member(arrived, len(weights.hidden))
    both = torch.cat([parts, parts * factors[:, None, None]], dim=2)  # [reached, members, 2 * channels]
    if torch.is_grad_enabled() or arrived.device.type != "cpu":
        return _plain(weights, described, walks, both.flatten(1), state)
    return _compiled(weights, described, walks, both.flatten(1), state)


def _plain(weights: ReadOut, described: Described, walks: Walks, arrived: Tensor, state: Tensor) -> Tensor:
    """The read-out in PyTorch's operations."""
    members, dropout = len(weights.hidden), weights.dropout
    stayed = staying(state, walks.kept[-1])
    linear, units = (
        torch.addmm(of_tails.index_select(0, walks.tails), walks.pairs, side_by_side(own.of_features)).index_add(
            0, walks.reached, arrived @ of_each_member(own.of_arrived) + stayed @ of_each_member(own.of_state)
        )
        for of_tails, own in ((described.linear, weights.linear), (described.units, weights.units))
    )
    hidden = F.dropout(F.gelu(units), dropout, dropout > 0)
    hidden = torch.addmm(weights.hidden_bias.flatten(), hidden, of_each_member(weights.hidden))
    hidden = by_member(F.dropout(F.gelu(hidden), dropout, dropout > 0), members)
    return (linear + (hidden * weights.last).sum(dim=-1) + weights.last_bias).T


def _compiled(weights: ReadOut, described: Described, walks: Walks, arrived: Tensor, state: Tensor) -> Tensor:
    """The same without gradients, on a CPU: summed over the members, in memory that is kept, without products by 0."""
    (members, width), summed = weights.last.shape, weights.summed
    stays = walks.stays[-1]
    before = (stays >= 0).nonzero()[:, 0]  # positions of tails that were reached before the last hop: few
    state = state.index_select(0, stays.index_select(0, before))

    of_features, of_arrived, of_state = summed.linear
    linear = torch.addmv(_of(described.summed, walks), walks.pairs, of_features)
    linear.index_add_(0, walks.reached, arrived @ of_arrived)
    linear.index_add_(0, walks.reached.index_select(0, before), state @ of_state)

    units = _space("units", len(walks.pairs), members * width)
    torch.addmm(_of(described.units, walks), walks.pairs, summed.of_features, out=units)
    of_walks = _times(arrived, weights.units.of_arrived, _space("walks", len(arrived), members * width))
    of_walks.index_add_(0, before, state @ summed.of_state)
    units.index_add_(0, walks.reached, of_walks)
    kernels.gelu(units.numpy().reshape(-1))
    hidden = _times(units, weights.hidden, _space("hidden", len(units), members * width))
    kernels.add_rows(hidden.numpy(), summed.hidden_bias)
    kernels.gelu(hidden.numpy().reshape(-1))
    return (linear.addmv_(hidden, summed.last) + summed.last_bias)[None] / members


def _times(inputs: Tensor, weights: Tensor, found: Tensor) -> Tensor:
    """The inputs of each member [n, members * inputs] times its weights, written to a table."""
    members = len(weights)
    for part, weight, columns in zip(inputs.chunk(members, dim=1), weights, found.chunk(members, dim=1), strict=True):
        torch.mm(part, weight, out=columns)
    return found


def _of(described: Tensor, walks: Walks) -> Tensor:
    """What is said of tails, for the tail of each pair."""
    return described if walks.one_by_one else described.index_select(0, walks.tails)


_kept = threading.local()


def _space(name: str, rows: int, columns: int) -> Tensor:
    """Memory of this thread for a table, which the next call by that name overwrites: new memory would be slower."""
    found: Tensor | None = getattr(_kept, name, None)
    if found is None or found.numel() < rows * columns:
        found = torch.empty(rows * columns)
        setattr(_kept, name, found)
    return found[: rows * columns].view(rows, columns)
