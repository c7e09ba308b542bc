"""Updates that touch only the rows in use, so that a step's time does not grow with the number of entities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from hire.optim.kernels import move_rows, rows_at_rest
from hire.optim.storage import Start, StorageSettings, stochastically_rounded
from hire.util.tensors import NO_PARTS, Parts, blocks_of

FLOAT = torch.float32
IN_MEMORY = StorageSettings()


def kept_share(ema: float | None) -> float:
    """How much of an EMA that reaches so many updates back is kept with each; none without an EMA."""
    return 0.0 if ema is None else 1 - 1 / max(1.0, ema)


class Table(ABC):
    """Vectors that are learned; a step asks for some rows, and moves them."""

    count: int  # of rows
    dimension: int  # of a vector

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the rows are."""

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """The vectors of this process as they are kept, [rows, dimension]."""

    @abstractmethod
    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some distinct rows in ascending order, [n, dimension], to compute gradients for."""

    @abstractmethod
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient."""

    @abstractmethod
    def averaged(self) -> Tensor:
        """The averaged weights of all rows; the weights themselves where no average is kept."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""

    @property
    def parts(self) -> Parts:
        """What a state has for the rows of this process alone."""
        return NO_PARTS

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state, of all rows."""


class _Column(NamedTuple):
    """A part of a row: vectors, moments, or a number."""

    start: int  # in units of single precision
    width: int
    kind: torch.dtype

    def of(self, rows: Tensor) -> Tensor:
        """This part of whole rows [n, width of all], as a view."""
        if self.kind == rows.dtype:
            return rows[:, self.start : self.start + self.width]
        return rows[:, self.start : self.start + _units(self.width, self.kind)].view(self.kind)[:, : self.width]


def _units(width: int, kind: torch.dtype) -> int:
    return -(-width // 2) if kind.itemsize == 2 else width


class RowTable(Table):
    """A table of vectors, learned by row-wise Adam: one second moment for each row, and only the rows in use move.

    With `ema` it also keeps the exponential average of the weights over that many updates, exactly, although a
    row is touched only when it moves: a row that stands still is brought up to date when it is next needed.

    All that belongs to a row lies side by side, so that an update of rows here and there in a large table reaches into
    memory once for each, not once for each part. In half precision, a row is computed in single precision and rounded
    at random; first moments, which are soon forgotten, are rounded to bfloat16, since float16 has no small numbers.
    """

    def __init__(
        self,
        start: Tensor | Start,
        *,
        momentum: float = 0.9,
        decay: float = 0.99,
        ema: float | None = None,
        storage: StorageSettings = IN_MEMORY,
        device: torch.device | str | None = None,
    ) -> None:
        self.momentum = momentum
        self.decay = decay
        self.keep = kept_share(ema)
        self.updates = 0
        self._storage = storage
        whole = FLOAT
        if isinstance(start, Tensor):
            device, whole, start = device or start.device, start.dtype, Start.of(start)
        self.count, self.dimension = start.rows, start.width
        self._columns = self._laid_out(storage.kind if storage.kind != FLOAT else whole)
        last = list(self._columns.values())[-1]
        width = last.start + _units(last.width, last.kind)
        self._parts = storage.zeros(self.count, width, whole, device or "cpu")
        begin = 0
        for block in start.blocks():
            rows = self._parts[begin : begin + len(block)]
            for name in ("weights", "average"):
                if name in self._columns:
                    self._columns[name].of(rows).copy_(block)
            begin += len(block)

    def _laid_out(self, kind: torch.dtype) -> dict[str, _Column]:
        """The parts of a row, in vectors of a type."""
        half = kind.itemsize == 2
        widths = {"weights": kind, "first": torch.bfloat16 if half else kind, "second": FLOAT if half else kind}
        if self.keep:  # as of the row's last update, and its number
            widths |= {"average": kind, "last": FLOAT if half else kind}
        return self._side_by_side(widths, single=("second", "last"))

    def _side_by_side(self, kinds: Mapping[str, torch.dtype], single: tuple[str, ...]) -> dict[str, _Column]:
        found: dict[str, _Column] = {}
        start = 0
        for name, kind in kinds.items():
            found[name] = _Column(start, 1 if name in single else self.dimension, kind)
            start += _units(found[name].width, kind)
        return found

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self._parts.device

    @property
    def weights(self) -> Tensor:
        """The vectors as they are kept, [rows, dim]."""
        return self._columns["weights"].of(self._parts)

    @property
    def row_bytes(self) -> int:
        """What a row takes, with all that belongs to it."""
        return self._parts.shape[1] * self._parts.element_size()

    @property
    def row_parts(self) -> list[str]:
        """What a state has for each row."""
        return list(self._columns)

    def _values(self, rows: Tensor) -> dict[str, Tensor]:
        """All parts of whole rows to compute with: views, but copies of what is kept in half precision."""
        found = {name: column.of(rows) for name, column in self._columns.items()}
        return {name: part.float() if part.dtype.itemsize == 2 else part for name, part in found.items()}

    def _put_back(self, numbers: Tensor, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Store whole rows after their parts have been computed."""
        halves = {name: column for name, column in self._columns.items() if column.kind.itemsize == 2}
        if halves:
            generator = torch.Generator(rows.device).manual_seed(self.updates)
            for name, column in halves.items():
                column.of(rows).copy_(stochastically_rounded(values[name], column.kind, generator))
        self._parts[numbers] = rows

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        rows = self.weights[numbers]
        return (rows.float() if rows.dtype.itemsize == 2 else rows).requires_grad_()

    @torch.no_grad()
    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows against their gradient."""
        rows = self._parts[numbers]
        values = self._values(rows)
        weights, first, second = (values[name] for name in ("weights", "first", "second"))
        if self.keep:
            average, last = values["average"], values["last"]
            average.copy_(self._brought_up(average, weights, last))
            last.fill_(self.updates + 1)
        first.mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        mean_square = torch.linalg.vector_norm(gradient, dim=1, keepdim=True).square_().div_(gradient.shape[1])
        second.mul_(self.decay).add_(mean_square, alpha=1 - self.decay)
        weights.addcdiv_(first, second.sqrt().add_(1e-8), value=-rate)
        if self.keep:
            average.lerp_(weights, 1 - self.keep)
        self._put_back(numbers, rows, values)
        self.updates += 1

    def _brought_up(self, average: Tensor, weights: Tensor, last: Tensor) -> Tensor:
        """The average of rows whose weights have stood still since their last update."""
        return weights + (average - weights) * self.keep ** (self.updates - last)

    def averaged(self) -> Tensor:
        """The averaged weights of all rows; the weights themselves where no average is kept."""
        if not self._rest_matters:
            return self.weights
        found = self._storage.zeros(self.count, self.dimension, self._columns["weights"].kind, self.device)
        start = 0
        for rows in blocks_of(self._parts):
            found[start : start + len(rows)] = self._averaged(self._values(rows))
            start += len(rows)
        return found

    @property
    def _rest_matters(self) -> bool:
        """Whether the weights that count are not those that are stored."""
        return self.keep > 0

    def _averaged(self, values: Mapping[str, Tensor]) -> Tensor:
        return self._brought_up(*(values[name] for name in ("average", "weights", "last")))

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return {"updates": torch.tensor(self.updates), **{n: part.of(self._parts) for n, part in self._columns.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        for name, column in self._columns.items():
            column.of(self._parts).copy_(state[name])
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

    def __init__(
        self,
        start: Tensor | Start,
        *,
        momentum: float = 0.9,
        decay: float = 0.999,
        storage: StorageSettings = IN_MEMORY,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(start, momentum=momentum, decay=decay, storage=storage, device=device)
        # By how many m / sqrt(v) a row has moved since its last update, by the number of that update.
        self._drift = self._parts.new_zeros(1)
        self._compiled = self.device.type == "cpu" and all(part.kind == FLOAT for part in self._columns.values())

    def _laid_out(self, kind: torch.dtype) -> dict[str, _Column]:
        half = kind.itemsize == 2
        first, other = (torch.bfloat16, FLOAT) if half else (kind, kind)
        return self._side_by_side({"weights": kind, "first": first, "second": other, "last": other}, single=("last",))

    def _averaged(self, values: Mapping[str, Tensor]) -> Tensor:
        """The weights of whole rows as they are now."""
        drift = self._drift[values["last"].long()] * values["first"]
        return torch.addcdiv(values["weights"], drift, values["second"].sqrt().add_(self.EPSILON), value=-1)

    @property
    def _rest_matters(self) -> bool:
        return True

    @torch.no_grad()
    def averaged(self) -> Tensor:
        """The weights of all rows as they are now.

        Rows at rest are brought up to date where they are: a copy of all would not fit beside a large table. In half
        precision they are copied, since each rounding would move them.
        """
        if any(column.kind.itemsize == 2 for column in self._columns.values()):
            return super().averaged()
        for rows in blocks_of(self._parts):
            values = self._values(rows)
            values["weights"].copy_(self._averaged(values))
            self._decay_moments(values)
        return self.weights

    def _decay_moments(self, values: Mapping[str, Tensor]) -> None:
        """Bring the moments of whole rows to the present update."""
        since = self.updates - values["last"]
        values["first"].mul_(self.momentum**since)
        values["second"].mul_(self.decay**since)
        values["last"].fill_(self.updates)

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, to compute gradients for."""
        if not self._compiled:
            return self._averaged(self._values(self._parts[numbers])).requires_grad_()
        found = self._parts.new_empty(len(numbers), self.dimension)
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
        """What `move_rows` does, on any device and in any precision."""
        rows = self._parts[numbers]
        values = self._values(rows)
        weights = values["weights"].copy_(self._averaged(values))
        self._decay_moments(values)
        first = values["first"].add_(gradient, alpha=1 - self.momentum)
        second = values["second"].addcmul_(gradient, gradient, value=1 - self.decay)
        weights.addcdiv_(first, second.sqrt().add_(epsilon), value=-step)
        self._put_back(numbers, rows, values)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return super().state() | {"drift": self._drift}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        super().load(state)
        self._drift = state["drift"].to(self._drift).clone()
