"""Arrays of integers: distinct values, lookups in sorted ones, and rows of different lengths in compressed form."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.signedinteger[Any]]
FloatArray = NDArray[np.float32]
S = TypeVar("S", bound=np.generic)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, sorted; for millions of them many times faster than `np.unique`, which hashes."""
    ordered = np.sort(values, axis=None)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def read_only(values: NDArray[S]) -> NDArray[S]:
    """A view that cannot be written, whether the array can or is mapped: a loop is compiled for one of the two."""
    view = values.view()
    view.flags.writeable = False
    return view


def row_offsets(rows: IntArray, row_count: int) -> NDArray[np.int64]:
    """Where each row starts when elements are sorted by row: [row_count + 1]."""
    offsets = np.zeros(row_count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=row_count), out=offsets[1:])
    return offsets


def expand_rows(
    offsets: NDArray[np.int64], rows: IntArray, limit: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions of all elements of some compressed rows, and for each element the index of its row in `rows`."""
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    if limit is not None:
        lengths = np.minimum(lengths, limit)
    owners = np.repeat(np.arange(len(rows)), lengths)
    firsts = np.cumsum(lengths) - lengths
    return np.arange(len(owners)) - firsts[owners] + starts[owners], owners


def contains(ordered: IntArray, wanted: Any) -> NDArray[np.bool_]:
    """Whether each value is among sorted ones."""
    wanted = np.asarray(wanted)
    if not len(ordered):
        return np.zeros(wanted.shape, bool)
    return np.asarray(ordered[_lower_bound(ordered, wanted)] == wanted)


def positions_in(ordered: IntArray, wanted: Any) -> NDArray[np.int64]:
    """The position of each value among sorted, distinct ones, -1 where it is not there."""
    wanted = np.asarray(wanted)
    if not len(ordered):
        return np.full(wanted.shape, -1)
    positions = _lower_bound(ordered, wanted)
    return np.where(ordered[positions] == wanted, positions, -1)


def _lower_bound(ordered: IntArray, wanted: NDArray[Any]) -> NDArray[np.int64]:
    """The position of the first sorted value that is not below each wanted one, or of the last value."""
    return np.asarray(np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1))
