"""Updates that touch only the rows in use, so that a step's time does not grow with the number of entities."""

from __future__ import annotations

import torch
from torch import Tensor


class RowTable:
    """A table of vectors, learned by row-wise Adam: one second moment for each row, and only the rows in use move."""

    def __init__(self, weights: Tensor, *, momentum: float = 0.9, decay: float = 0.99) -> None:
        self.weights = weights  # [rows, dim]
        self.momentum = momentum
        self.decay = decay
        self.first = torch.zeros_like(weights)  # [rows, dim]
        self.second = torch.zeros(len(weights), 1)

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        return self.weights[numbers].requires_grad_()

    @torch.no_grad()
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient."""
        first = self.first[numbers].mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        mean_square = gradient.square().mean(dim=1, keepdim=True)
        second = self.second[numbers].mul_(self.decay).add_(mean_square, alpha=1 - self.decay)
        self.first[numbers] = first
        self.second[numbers] = second
        self.weights[numbers] -= rate * first / (second.sqrt() + 1e-8)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return {"weights": self.weights, "first": self.first, "second": self.second}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self.weights, self.first, self.second = (state[name].clone() for name in ("weights", "first", "second"))
