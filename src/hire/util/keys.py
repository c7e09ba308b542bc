"""Keys of 64 bits for (row, column) pairs, in the order of rows, then of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError
from hire.util.arrays import IntArray, positions_in

LIMIT = 1 << 63  # keys are below it
PLAIN = LIMIT  # below it, rows are taken as they are


class Keying:
    """Turns rows and columns into keys, and back.

    A key is row * width + column. Where that could exceed 64 bits, only rows that occur have keys, and the rank of a
    row among them takes its place: the order of keys is the same.
    """

    def __init__(self, width: int, rows: NDArray[np.int64] | None = None) -> None:
        self.width = width  # the number of columns
        self.rows = rows  # those that occur, sorted; None if rows are taken as they are

    @classmethod
    def of(
        cls, rows: NDArray[np.int64], columns: IntArray, row_count: int, width: int
    ) -> tuple[Keying, NDArray[np.int64]]:
        """A keying for some of `row_count` rows, in any order and with repetitions, and the keys of these cells."""
        if row_count * width < PLAIN:
            return cls(width), rows * width + columns
        if row_count >= LIMIT:
            raise _too_many(row_count, width)
        ranked, ranks = np.unique(rows, return_inverse=True)  # far faster than to look up millions in any order
        if len(ranked) * width >= LIMIT:
            raise _too_many(len(ranked), width)
        return cls(width, ranked), ranks * width + columns

    def keys(self, rows: Any, columns: Any) -> Any:
        """A key for each row and column; it is negative, which no key of a cell is, for rows that do not occur."""
        return (rows if self.rows is None else positions_in(self.rows, rows)) * self.width + columns

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each key."""
        numbers = keys // self.width
        return numbers if self.rows is None else self.rows[numbers]

    def split(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and the column of each key."""
        numbers, columns = np.divmod(keys, self.width)
        return numbers if self.rows is None else self.rows[numbers], columns


def _too_many(row_count: int, width: int) -> HireError:
    return HireError(
        f"{row_count:,} pairs of a head and a relation with {width:,} possible tails are too many for 64-bit keys",
        remedy="remove relations or entities that are not needed",
    )
