"""Updates that touch only the rows in use, so that a step's time does not grow with the number of entities."""

from __future__ import annotations

import torch
from torch import Tensor


def kept_share(averaging: float | None) -> float:
    """How much of an exponential average over so many updates is kept with each; none without an average."""
    return 0.0 if averaging is None else 1 - 1 / max(1.0, averaging)


class RowTable:
    """A table of vectors, learned by row-wise Adam: one second moment for each row, and only the rows in use move.

    With `averaging` it also keeps the exponential average of the weights over that many updates, exactly, although a
    row is touched only when it moves: a row that stands still is brought up to date when it is next needed.
    """

    def __init__(
        self, weights: Tensor, *, momentum: float = 0.9, decay: float = 0.99, averaging: float | None = None
    ) -> None:
        self.weights = weights  # [rows, dim]
        self.momentum = momentum
        self.decay = decay
        self.first = torch.zeros_like(weights)  # [rows, dim]
        self.second = weights.new_zeros(len(weights), 1)
        self.keep = kept_share(averaging)
        if self.keep:
            self.average = weights.clone()  # [rows, dim]: as of the row's last update
            self.last = torch.zeros(len(weights), 1, dtype=torch.int64, device=weights.device)
        self.updates = 0

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        return self.weights[numbers].requires_grad_()

    @torch.no_grad()
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient."""
        first = self.first[numbers].mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        mean_square = torch.linalg.vector_norm(gradient, dim=1, keepdim=True).square_().div_(gradient.shape[1])
        second = self.second[numbers].mul_(self.decay).add_(mean_square, alpha=1 - self.decay)
        self.first[numbers] = first
        self.second[numbers] = second
        before = self.weights[numbers]
        after = torch.addcdiv(before, first, second.sqrt_().add_(1e-8), value=-rate)
        self.weights[numbers] = after
        if self.keep:
            still = self._brought_up(self.average[numbers], before, self.last[numbers])
            self.average[numbers] = torch.lerp(after, still, self.keep)
            self.last[numbers] = self.updates + 1
        self.updates += 1

    def _brought_up(self, average: Tensor, weights: Tensor, last: Tensor) -> Tensor:
        """The average of rows whose weights have stood still since their last update."""
        return weights + (average - weights) * self.keep ** (self.updates - last)

    def averaged(self) -> Tensor:
        """The averaged weights of all rows; the weights themselves where no average is kept."""
        return self._brought_up(self.average, self.weights, self.last) if self.keep else self.weights

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        names = ["weights", "first", "second", *(["average", "last"] if self.keep else [])]
        return {"updates": torch.tensor(self.updates), **{name: getattr(self, name) for name in names}}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        for name, tensor in state.items():
            if name != "updates":
                setattr(self, name, tensor.to(self.weights.device, copy=True))
        self.updates = int(state["updates"])
