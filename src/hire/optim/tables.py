"""Updates that touch only the rows in use, so that a step's time does not grow with the number of entities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hire.optim.kernels import move_rows, rows_at_rest


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


class DenseTable(RowTable):
    """A table learned as by Adam with dense gradients: second moments are elementwise, and rows that are not in use
    keep moving by what is left of their first moment.

    A row that is used once moves by about thirty times the learning rate in all, where row-wise Adam moves it by one.
    Rows at rest are not touched: while a row has no gradient, its moments shrink by known factors, so that all steps it
    has missed since its last update are one multiple of m / sqrt(v), the same for all rows last updated at that time.
    """

    EPSILON = 1e-8
    REACH = 400  # updates after which nothing is left of a first moment, in single precision

    def __init__(self, weights: Tensor, *, momentum: float = 0.9, decay: float = 0.999) -> None:
        super().__init__(weights, momentum=momentum, decay=decay)
        dimension = weights.shape[1]
        self._widths = {"weights": dimension, "first": dimension, "second": dimension, "last": 1}
        self._parts = weights.new_zeros(len(weights), sum(self._widths.values()))
        self.weights.copy_(weights)
        # By how many m / sqrt(v) a row has moved since its last update, by the number of that update.
        self._drift = weights.new_zeros(1)
        self._compiled = weights.device.type == "cpu" and weights.dtype == torch.float32

    def _moved(self, rows: Tensor) -> Tensor:
        """The weights of whole rows [n, width of all] as they are now, in place."""
        weights, first, second, last = (self._part(rows, name) for name in self._widths)
        return weights.addcdiv_(self._drift[last.long()] * first, second.sqrt().add_(self.EPSILON), value=-1)

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        if not self._compiled:
            return self._moved(self._parts[numbers]).clone().requires_grad_()
        found = self._parts.new_empty(len(numbers), self._widths["weights"])
        rows_at_rest(self._parts.numpy(), numbers.numpy(), self._drift.numpy(), self.EPSILON, found.numpy())
        return found.requires_grad_()

    @torch.no_grad()
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient; the others have none."""
        self.updates += 1
        unbiased = math.sqrt(1 - self.decay**self.updates)
        step = rate * unbiased / (1 - self.momentum**self.updates)
        if self._compiled:
            constants = (self.momentum, self.decay, self.EPSILON, self.EPSILON * unbiased)
            parts, drift, slopes = (each.numpy() for each in (self._parts, self._drift, gradient.contiguous()))
            move_rows(parts, numbers.numpy(), slopes, drift, self.updates, step, *constants)
        else:
            self._update(numbers, gradient, step, self.EPSILON * unbiased)
        ago = torch.arange(1, 1 + min(self.REACH, self.updates), device=self._drift.device)
        self._drift[self.updates - ago] += step * (self.momentum / math.sqrt(self.decay)) ** ago
        self._drift = torch.cat([self._drift, self._drift.new_zeros(1)])

    def _update(self, numbers: Tensor, gradient: Tensor, step: float, epsilon: float) -> None:
        """What `move_rows` does, on any device."""
        rows = self._parts[numbers]
        weights = self._moved(rows)
        _, first, second, last = (self._part(rows, name) for name in self._widths)
        since = self.updates - last
        first.mul_(self.momentum**since).add_(gradient, alpha=1 - self.momentum)
        second.mul_(self.decay**since).addcmul_(gradient, gradient, value=1 - self.decay)
        last.fill_(self.updates)
        weights.addcdiv_(first, second.sqrt().add_(epsilon), value=-step)
        self._parts[numbers] = rows

    def averaged(self) -> Tensor:
        """The weights of all rows as they are now."""
        return self._moved(self._parts.clone())

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return super().state() | {"drift": self._drift}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        super().load(state)
        self._drift = state["drift"].to(self._drift).clone()
