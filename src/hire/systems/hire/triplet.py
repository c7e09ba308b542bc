"""Triplet level: the meta relation of a set of references, of any size and order (Eq. 6-8, appendix D.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropping(NamedTuple):
    """What is dropped of some tasks while training, as factors: 0 of what is dropped, and above 1 of what is kept."""

    attention: Tensor | None = None  # [tasks, 1, 1]: the attention of the set attention block
    row_wise: Tensor | None = None  # [tasks, 1, 1]: its feed-forward layer
    outputs: Tensor | None = None  # [tasks, outputs]: single outputs of the learner
    relation: Tensor | None = None  # [tasks, 1]: all of them

    def part(self, some: Tensor) -> Dropping:
        """Those of some of the tasks."""
        return Dropping(*(None if factors is None else factors[some] for factors in self))


NOTHING = Dropping()


def dropped(values: Tensor, factors: Tensor | None) -> Tensor:
    """Values after dropping some of them."""
    return values if factors is None else values * factors


def path_factors(rate: float, *shape: int, device: torch.device | str = "cpu") -> Tensor | None:
    """What drop path multiplies branches with; None if it drops none."""
    if rate == 0:
        return None
    return (torch.rand(*shape, device=device) >= rate) / (1 - rate)


class SetAttentionBlock(nn.Module):
    """SAB(X) = LayerNorm(H + rFF(H)) with H = LayerNorm(X + MultiHead(X, X, X))."""

    def __init__(self, dimension: int, *, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dimension, 3 * dimension)
        self.output = nn.Linear(dimension, dimension)
        self.row_wise = nn.Sequential(nn.Linear(dimension, dimension), nn.ReLU())
        self.after_attention = nn.LayerNorm(dimension)
        self.after_row_wise = nn.LayerNorm(dimension)

    def forward(self, elements: Tensor, dropping: Dropping = NOTHING) -> Tensor:
        """Let the elements [..., set, dim] attend to each other; the result has the same shape."""
        # [..., set, heads, 3 * dim / heads] -> [..., heads, set, dim / heads] three times
        split = self.query_key_value(elements).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        attended = F.scaled_dot_product_attention(*split.chunk(3, dim=-1))
        attended = self.output(attended.transpose(-2, -3).flatten(-2))
        hidden = self.after_attention(elements + dropped(attended, dropping.attention))  # H
        normed: Tensor = self.after_row_wise(hidden + dropped(self.row_wise(hidden), dropping.row_wise))
        return normed


def _mean(layers: nn.Sequential, elements: Tensor) -> Tensor:
    """The mean of a set [..., set, dim] after some layers: as the last is linear, it is given the mean."""
    mean: Tensor = layers[-1](layers[:-1](elements).mean(dim=-2))
    return mean


class SetLearner(nn.Module):
    """The paper's meta relation learner: set attention, a two-layer MLP, and the mean (Eq. 6-8)."""

    def __init__(self, dimension: int, outputs: int) -> None:
        super().__init__()
        self.attention = SetAttentionBlock(2 * dimension)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dimension, 2 * dimension), nn.LeakyReLU(), nn.Linear(2 * dimension, outputs)
        )

    def forward(self, heads: Tensor, tails: Tensor, dropping: Dropping = NOTHING) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        elements = torch.cat([heads, tails], dim=-1)  # x_i = h_i + t_i, concatenated (Eq. 6)
        interacting = self.attention(elements, dropping)  # X' (Eq. 7)
        meta: Tensor = _mean(self.mlp, interacting)  # (Eq. 8)
        return meta


class MeanLearner(nn.Module):
    """The ablation MRL-AVG: each reference on its own, then the mean."""

    def __init__(self, dimension: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * dimension, 2 * dimension), nn.LeakyReLU(), nn.Linear(2 * dimension, outputs)
        )

    def forward(self, heads: Tensor, tails: Tensor, dropping: Dropping = NOTHING) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        meta: Tensor = _mean(self.mlp, torch.cat([heads, tails], dim=-1))
        return meta


class LstmLearner(nn.Module):
    """The ablation MRL-LSTM: the references one after the other, as if their order mattered."""

    def __init__(self, dimension: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 * dimension, 2 * dimension, batch_first=True)
        self.output = nn.Linear(2 * dimension, outputs)

    def forward(self, heads: Tensor, tails: Tensor, dropping: Dropping = NOTHING) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        elements = torch.cat([heads, tails], dim=-1)
        _, (last, _) = self.lstm(elements.flatten(0, -3))
        meta: Tensor = self.output(last[0]).unflatten(0, elements.shape[:-2])
        return meta
