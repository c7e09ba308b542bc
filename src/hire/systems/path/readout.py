"""The read-out of the path network: from what arrives at pairs of head and tail, and what they are, to their scores.

The values of all members lie side by side in the row of a pair. `tiles` computes the same for answers, faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hire.systems.path.walks import Walks


@dataclass(frozen=True)
class Described:
    """What tails themselves add to the first layer: to its units, and to the score itself."""

    units: Tensor  # [tails, members * width]
    linear: Tensor  # [tails, members]


class Inputs(NamedTuple):
    """Weights of each member for the inputs of a pair, and some outputs of the first layer."""

    of_features: Tensor  # [members, pair features, outputs]
    of_arrived: Tensor  # [members, 2 * channels, outputs]: of what arrives, and of what is lessened for high degrees
    of_state: Tensor  # [members, channels, outputs]: of tails that were reached before the last hop


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


def reached_inputs(arrived: Tensor, factors: Tensor, members: int) -> Tensor:
    """What arrives at reached pairs, and the same lessened for high degrees, [reached, members, 2 * channels]."""
    parts = by_member(arrived, members)
    return torch.cat([parts, parts * factors[:, None, None]], dim=2)


def hidden_units(weights: ReadOut, of_tails: Tensor, walks: Walks, both: Tensor, stayed: Tensor) -> Tensor:
    """The units of the hidden layer for each pair, [pairs, members, width], from the first layer's part for tails."""
    members, dropout = len(weights.hidden), weights.dropout
    units = _first_layer(weights.units, of_tails, walks, both, stayed)
    hidden = F.dropout(F.gelu(units), dropout, dropout > 0)
    hidden = torch.addmm(weights.hidden_bias.flatten(), hidden, of_each_member(weights.hidden))
    return by_member(F.dropout(F.gelu(hidden), dropout, dropout > 0), members)


def read_out(
    weights: ReadOut, described: Described, walks: Walks, arrived: Tensor, factors: Tensor, state: Tensor
) -> Tensor:
    """The score of each pair, [members, pairs].

    arrived are the messages of the last hop at reached pairs [reached, members * channels], factors [reached] lessen
    them for the degrees of the tails; state is that of the layer before.
    """
    both = reached_inputs(arrived, factors, len(weights.hidden)).flatten(1)  # [reached, members * 2 * channels]
    stayed = staying(state, walks.kept[-1])
    linear = _first_layer(weights.linear, described.linear, walks, both, stayed)
    hidden = hidden_units(weights, described.units, walks, both, stayed)
    return (linear + (hidden * weights.last).sum(dim=-1) + weights.last_bias).T


def _first_layer(own: Inputs, of_tails: Tensor, walks: Walks, both: Tensor, stayed: Tensor) -> Tensor:
    """Some outputs of the first layer, [pairs, members * outputs]."""
    of_pairs = torch.addmm(of_tails.index_select(0, walks.tails), walks.pairs, side_by_side(own.of_features))
    of_reached = both @ of_each_member(own.of_arrived) + stayed @ of_each_member(own.of_state)
    return of_pairs.index_add(0, walks.reached, of_reached)
