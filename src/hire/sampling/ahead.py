"""Batches drawn ahead of time by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


def drawn_ahead(draw: Callable[[int], Batch], first_step: int, *, workers: int = 1) -> Generator[Batch, None, None]:
    """The batches of all steps from `first_step` on, in order; the number of threads does not change them.

    Each thread computes alone: helpers of its own would wait, spinning, on the cores that the training needs.
    """
    torch.get_num_threads()  # settles that of the caller, which would otherwise take over what the threads set
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        ahead = deque(pool.submit(draw, first_step + i) for i in range(2 * workers))
        step = first_step + len(ahead)
        try:
            while True:
                batch = ahead.popleft().result()
                ahead.append(pool.submit(draw, step))
                step += 1
                yield batch
        finally:
            for future in ahead:
                future.cancel()
