"""Options that several commands share, and the numbers that options may be: always within a range, always finite."""

from __future__ import annotations

import math
from typing import Any

import click

from hire.util.ranges import LARGEST_SEED


class FiniteRange(click.FloatRange):
    """A number within a range; "nan" is none, although every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


NATURAL, POSITIVE = click.IntRange(0, 1_000_000_000), click.IntRange(1, 1_000_000_000)
SEED = click.IntRange(0, LARGEST_SEED)
SHOTS = click.IntRange(1, 1_000_000)
FEW = click.IntRange(1, 1_000)  # seeds, draws, threads
SIZE = click.IntRange(1, 65_536)  # of vectors
SHARE = FiniteRange(0, 1)
MINUTES = FiniteRange(0, 525_600, min_open=True)  # a year

device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto is CUDA where there is one.",
)
threads_option = click.option(
    "--threads",
    type=FEW,
    default=1,
    show_default=True,
    help="Threads of tensor operations in training; batches are drawn by another one.",
)


def use_one_thread() -> None:
    """Compute with one thread: the small tensor operations of answers only wait for one another with more of them."""
    import torch

    torch.set_num_threads(1)
