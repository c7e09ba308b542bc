"""Triplet level: the meta relation of a set of references, of any size and order (Eq. 6-8, appendix D.2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DropPath(nn.Module):
    """Drops a branch for some of the sets during training."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        """Drop the whole branch [..., elements, dim] of a set with the given rate, and scale up the others."""
        if not self.training or self.rate == 0:
            return branch
        kept = torch.rand(*branch.shape[:-2], 1, 1, device=branch.device) >= self.rate
        return branch * (kept / (1 - self.rate))


class SetAttentionBlock(nn.Module):
    """SAB(X) = LayerNorm(H + rFF(H)) with H = LayerNorm(X + MultiHead(X, X, X))."""

    def __init__(self, dimension: int, *, heads: int = 1, drop_path: float = 0.2) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dimension, 3 * dimension)
        self.output = nn.Linear(dimension, dimension)
        self.row_wise = nn.Sequential(nn.Linear(dimension, dimension), nn.ReLU())
        self.after_attention = nn.LayerNorm(dimension)
        self.after_row_wise = nn.LayerNorm(dimension)
        self.drop_path = DropPath(drop_path)

    def forward(self, elements: Tensor) -> Tensor:
        """Let the elements [..., set, dim] attend to each other; the result has the same shape."""
        # [..., set, heads, 3 * dim / heads] -> [..., heads, set, dim / heads] three times
        split = self.query_key_value(elements).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        attended = F.scaled_dot_product_attention(*split.chunk(3, dim=-1))
        attended = self.output(attended.transpose(-2, -3).flatten(-2))
        hidden = self.after_attention(elements + self.drop_path(attended))  # H
        normed: Tensor = self.after_row_wise(hidden + self.drop_path(self.row_wise(hidden)))
        return normed


class SetLearner(nn.Module):
    """The paper's meta relation learner: set attention, a two-layer MLP, and the mean (Eq. 6-8)."""

    def __init__(self, dimension: int, outputs: int, *, drop_path: float = 0.2) -> None:
        super().__init__()
        self.attention = SetAttentionBlock(2 * dimension, drop_path=drop_path)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dimension, 2 * dimension), nn.LeakyReLU(), nn.Linear(2 * dimension, outputs)
        )

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        elements = torch.cat([heads, tails], dim=-1)  # x_i = h_i + t_i, concatenated (Eq. 6)
        interacting = self.attention(elements)  # X' (Eq. 7)
        meta: Tensor = self.mlp(interacting).mean(dim=-2)  # (Eq. 8)
        return meta


class MeanLearner(nn.Module):
    """The ablation MRL-AVG: each reference on its own, then the mean."""

    def __init__(self, dimension: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * dimension, 2 * dimension), nn.LeakyReLU(), nn.Linear(2 * dimension, outputs)
        )

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        meta: Tensor = self.mlp(torch.cat([heads, tails], dim=-1)).mean(dim=-2)
        return meta


class LstmLearner(nn.Module):
    """The ablation MRL-LSTM: the references one after the other, as if their order mattered."""

    def __init__(self, dimension: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 * dimension, 2 * dimension, batch_first=True)
        self.output = nn.Linear(2 * dimension, outputs)

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """The meta relation [..., outputs] of references [..., shots, dim]."""
        elements = torch.cat([heads, tails], dim=-1)
        _, (last, _) = self.lstm(elements.flatten(0, -3))
        meta: Tensor = self.output(last[0]).unflatten(0, elements.shape[:-2])
        return meta
