"""Batches drawn ahead of time by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Batch = TypeVar("Batch")


def drawn_ahead(draw: Callable[[int], Batch], first_step: int, *, workers: int = 1) -> Generator[Batch, None, None]:
    """The batches of all steps from `first_step` on, in order; the number of threads does not change them."""
    with ThreadPoolExecutor(workers) as pool:
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
