"""The content of a source: triples of names in columns, and labels and types of entities."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import Problem
from hire.util.files import printable

ROWS_PER_CHUNK = 1 << 17


class Columns:
    """Rows of names in pyarrow columns: millions of rows without millions of Python objects."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._chunks: list[list[Any]] = [[] for _ in range(width)]
        self._rows: list[tuple[str, ...]] = []
        self._taken = 0  # rows

    def append(self, *row: str) -> None:
        """Add one row."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_CHUNK:
            self._flush()

    def extend(self, arrays: list[Any]) -> None:
        """Add many rows: one pyarrow array of large strings for each column."""
        self._flush()
        for chunks, array in zip(self._chunks, arrays, strict=True):
            chunks.append(array)

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            for chunks, values in zip(self._chunks, zip(*self._rows, strict=True), strict=True):
                chunks.append(pa.array(values, pa.large_string()))
            self._rows = []

    def arrays(self, *, take: bool = False) -> list[Any]:
        """The columns, as pyarrow chunked arrays of large strings; what is taken is not kept, but its number is."""
        import pyarrow as pa

        self._flush()
        found = [pa.chunked_array(chunks, pa.large_string()) for chunks in self._chunks]
        if take:
            self._taken, self._chunks = len(self), [[] for _ in range(self.width)]
        return found

    def __len__(self) -> int:
        return self._taken + sum(len(chunk) for chunk in self._chunks[0]) + len(self._rows)


@dataclass
class TripleTable:
    """The content of one source."""

    source: str  # its name in messages
    triples: Columns = field(default_factory=lambda: Columns(3))  # head, relation, tail
    labels: Columns = field(default_factory=lambda: Columns(2))  # entity, label
    types: Columns = field(default_factory=lambda: Columns(2))  # entity, type
    lines: NDArray[np.int64] | None = None  # the line number of each triple, if the source has lines
    skipped: Counter[str] = field(default_factory=Counter)  # what was skipped, and how often
    notes: list[Problem] = field(default_factory=list)  # what was corrected while reading

    @property
    def short_name(self) -> str:
        """The source without its folders: the same on every machine."""
        return self.source if "://" in self.source else printable(PurePath(self.source).name)
