"""Ranges of numbers, said beside a setting's type: checked wherever it is read, and shown by `hire systems NAME`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The finite numbers from `low` to `high`; without `low` itself if it is open, without `high` if that is."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, value: float) -> bool:
        if isinstance(value, float) and not math.isfinite(value):
            return False
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def __str__(self) -> str:
        low = f"above {_written(self.low)}" if self.low_open else f"from {_written(self.low)}"
        return f"{low}, below {_written(self.high)}" if self.high_open else f"{low} to {_written(self.high)}"


def _written(value: float) -> str:
    if isinstance(value, int):
        return "2^63 - 1" if value == LARGEST_SEED else f"{value:,}"
    return f"{value:g}"


LARGEST_SEED = 2**63 - 1  # of numpy's and torch's generators alike

Seed = Annotated[int, Range(0, LARGEST_SEED)]
Count = Annotated[int, Range(1, 1_000_000_000)]  # of steps, neighbours, candidates
Natural = Annotated[int, Range(0, 1_000_000_000)]
Shots = Annotated[int, Range(1, 1_000_000)]
Few = Annotated[int, Range(1, 1_000)]  # of layers, attention heads, members
Repeats = Annotated[int, Range(0, 1_000)]  # of something that may be left out
Size = Annotated[int, Range(1, 65_536)]  # of a vector or a layer
Batch = Annotated[int, Range(1, 10_000_000)]  # tasks, queries or negatives in a step
Drawn = Annotated[int, Range(0, 10_000_000)]  # the same, where none is allowed

Share = Annotated[float, Range(0, 1)]
Dropout = Annotated[float, Range(0, 1, high_open=True)]
Fraction = Annotated[float, Range(0, 1, low_open=True)]
Weight = Annotated[float, Range(0, 1_000_000)]
Scale = Annotated[float, Range(0, 1_000_000, low_open=True)]
Rate = Annotated[float, Range(0, 1_000)]  # learning rates; 0 to leave something as it is
Horizon = Annotated[float, Range(0, 1_000_000_000, low_open=True)]  # steps, or a share of them
