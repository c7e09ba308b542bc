"""Updates that touch only the rows in use, so that a step's time does not grow with the number of entities."""

from __future__ import annotations

import torch
from torch import Tensor


def kept_share(ema: float | None) -> float:
    """How much of an EMA that reaches so many updates back is kept with each; none without an EMA."""
    return 0.0 if ema is None else 1 - 1 / max(1.0, ema)


class RowTable:
    """A table of vectors, learned by row-wise Adam: one second moment for each row, and only the rows in use move.

    With `ema` it also keeps the exponential average of the weights over that many updates, exactly, although a
    row is touched only when it moves: a row that stands still is brought up to date when it is next needed.

    All that belongs to a row lies side by side, so that an update of rows here and there in a large table reaches into
    memory once for each, not once for each part.
    """

    def __init__(
        self, weights: Tensor, *, momentum: float = 0.9, decay: float = 0.99, ema: float | None = None
    ) -> None:
        self.momentum = momentum
        self.decay = decay
        self.keep = kept_share(ema)
        dimension = weights.shape[1]
        self._widths = {"weights": dimension, "first": dimension, "second": 1}  # weights and their moments
        if self.keep:
            self._widths |= {"average": dimension, "last": 1}  # as of the row's last update, and its number
        self._parts = weights.new_zeros(len(weights), sum(self._widths.values()))
        for name in ("weights", "average") if self.keep else ("weights",):
            self._part(self._parts, name).copy_(weights)
        self.updates = 0

    def _part(self, rows: Tensor, name: str) -> Tensor:
        """A part of whole rows [n, width of all], as a view."""
        start = 0
        for other, width in self._widths.items():
            if other == name:
                return rows[:, start : start + width]
            start += width
        raise KeyError(name)

    @property
    def weights(self) -> Tensor:
        """The vectors, [rows, dim]."""
        return self._part(self._parts, "weights")

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        return self.weights[numbers].requires_grad_()

    @torch.no_grad()
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient."""
        rows = self._parts[numbers]
        weights, first, second = (self._part(rows, name) for name in ("weights", "first", "second"))
        if self.keep:
            average, last = (self._part(rows, name) for name in ("average", "last"))
            average.copy_(self._brought_up(average, weights, last))
            last.fill_(self.updates + 1)
        first.mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        mean_square = torch.linalg.vector_norm(gradient, dim=1, keepdim=True).square_().div_(gradient.shape[1])
        second.mul_(self.decay).add_(mean_square, alpha=1 - self.decay)
        weights.addcdiv_(first, second.sqrt().add_(1e-8), value=-rate)
        if self.keep:
            average.lerp_(weights, 1 - self.keep)
        self._parts[numbers] = rows
        self.updates += 1

    def _brought_up(self, average: Tensor, weights: Tensor, last: Tensor) -> Tensor:
        """The average of rows whose weights have stood still since their last update."""
        return weights + (average - weights) * self.keep ** (self.updates - last)

    def averaged(self) -> Tensor:
        """The averaged weights of all rows; the weights themselves where no average is kept."""
        if not self.keep:
            return self.weights
        return self._brought_up(*(self._part(self._parts, name) for name in ("average", "weights", "last")))

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return {"updates": torch.tensor(self.updates), **{n: self._part(self._parts, n) for n in self._widths}}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        for name in self._widths:
            self._part(self._parts, name).copy_(state[name])
        self.updates = int(state["updates"])
