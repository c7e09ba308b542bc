"""Arrays of integers: compressed rows, and looking many numbers up at once in sorted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.signedinteger[Any]]


def distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """The distinct numbers, sorted; for millions many times faster than numpy's own, which hashes."""
    ordered = np.sort(numbers, axis=None)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def row_offsets(rows: IntArray, row_count: int) -> NDArray[np.int64]:
    """Where each row starts among sorted row numbers: [row_count + 1]."""
    offsets = np.zeros(row_count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=row_count), out=offsets[1:])
    return offsets


def expand_rows(
    offsets: NDArray[np.int64], rows: IntArray, limit: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions of all elements of some compressed rows, and for each the index in `rows` it belongs to."""
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    if limit is not None:
        lengths = np.minimum(lengths, limit)
    owners = np.repeat(np.arange(len(rows)), lengths)
    firsts = np.cumsum(lengths) - lengths
    return np.arange(len(owners)) - firsts[owners] + starts[owners], owners


FloatArray = NDArray[np.float32]
