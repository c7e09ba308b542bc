"""Whether the arrays of a dataset fit together: their types and shapes, their offsets, and every id in them.

All of it is read once when a dataset is opened, 8 ms for NELL-One: an id out of range would otherwise end in a
traceback or, worse, in another entity's name. Large arrays are read in blocks that stay in the processor's own memory,
several arrays at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError

if TYPE_CHECKING:
    from hire.data.dataset import FewShotDataset

ALL_ENTITIES = -1  # instead of the id of a candidate set
ROWS_AT_ONCE, SIDE_BY_SIDE = 1 << 15, 1 << 8
READERS = 2  # arrays that are read at once


def check_arrays(dataset: FewShotDataset, directory: Path) -> None:
    """Raise if an array of an opened dataset is not what it should be; names its file."""
    graph, facts = dataset.graph, dataset.facts
    check = _Check(directory)
    check.vocabulary("graph/entities", graph.entities)
    check.vocabulary("graph/relations", graph.relations)
    entities, relations = len(graph.entities), len(graph.relations)
    triples = check.ids("graph/triples", graph.triples, (None, 3), (entities, relations, entities))
    check.offsets("graph/offsets", graph.offsets, entities, 2 * triples)
    check.ids("graph/neighbors", graph.neighbors, (2 * triples, 2), (2 * relations, entities))
    if graph.labels is not None:
        check.strings("graph/labels", graph.labels, entities)
    if graph.types is not None:
        check.vocabulary("graph/types", graph.types.names)
        members = check.ids("graph/type_members", graph.types.members, (None,), len(graph.types.names))
        check.offsets("graph/type_offsets", graph.types.offsets, entities, members)
    tasks = check.ids("task_relations", dataset.task_relations, (None,), relations)
    pairs = check.ids("task_pairs", dataset.task_pairs, (None, 2), entities)
    check.offsets("task_offsets", dataset.task_offsets, tasks, pairs)
    members = check.ids("candidate_members", dataset.candidate_members, (None,), entities)
    sets = check.offsets("candidate_offsets", dataset.candidate_offsets, None, members)
    check.ids("task_candidates", dataset.task_candidates, (tasks,), sets, ALL_ENTITIES)
    pair_count = entities * relations
    if facts.pairs is not None:  # keys have the ranks of pairs
        pair_count = check.rising("fact_pairs", facts.pairs, pair_count)
    check.rising("facts", facts.keys, pair_count * entities)
    check.read()


class _Check:
    """Shapes are checked at once, elements by `read`: by then, every shape is known to be right."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._waiting: list[Callable[[], None]] = []

    def read(self) -> None:
        """Check the elements of all arrays."""
        with ThreadPoolExecutor(READERS) as readers:
            for _ in readers.map(lambda check: check(), self._waiting):
                pass

    def wrong(self, name: str, message: str) -> HireError:
        return HireError(message, file=self.directory / f"{name}.npy", remedy="build the dataset again")

    def shape(self, name: str, array: Any, shape: tuple[int | None, ...], kinds: str = "i") -> int:
        """Check type and shape, where None is any number of rows; returns the number of rows."""
        fits = array.ndim == len(shape) and all(
            wanted is None or wanted == size for wanted, size in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype.kind not in kinds:
            expected = " x ".join("n" if size is None else f"{size:,}" for size in shape)
            found = " x ".join(f"{size:,}" for size in array.shape)
            raise self.wrong(name, f"is an array of {found} {array.dtype}, not of {expected} integers")
        return int(array.shape[0])

    def ids(
        self, name: str, array: Any, shape: tuple[int | None, ...], bound: int | tuple[int, ...], least: int = 0
    ) -> int:
        """Check that an array has ids below a bound, or below one for each of its columns; the number of rows."""
        rows = self.shape(name, array, shape)

        def check() -> None:
            for block in _blocks(array):
                if block.ndim == 2 and len(block) == ROWS_AT_ONCE:  # numpy is slow where rows are short
                    block = block.reshape(-1, SIDE_BY_SIDE, block.shape[1])
                if (block.min(axis=0) < least).any() or (block.max(axis=0) >= bound).any():
                    raise self.wrong(name, "contains an id that is out of range")

        self._waiting.append(check)
        return rows

    def rising(self, name: str, array: Any, bound: int) -> int:
        """Check that keys are below a bound and rise; returns the number of keys."""
        count = self.ids(name, array, (None,), bound)

        def check() -> None:
            if any((block[1:] <= block[:-1]).any() for block in _blocks(array, overlap=1)):
                raise self.wrong(name, "is not sorted")

        self._waiting.append(check)
        return count

    def offsets(self, name: str, array: Any, rows: int | None, end: int) -> int:
        """Check where rows start; returns the number of rows."""
        count = self.shape(name, array, (None if rows is None else rows + 1,))
        error = self.wrong(name, f"does not divide {end:,} elements into rows")
        if not count or array[0] != 0 or array[-1] != end:
            raise error

        def check() -> None:
            if any((block[1:] < block[:-1]).any() for block in _blocks(array, overlap=1)):
                raise error

        self._waiting.append(check)
        return count - 1

    def strings(self, name: str, table: StringTable, count: int | None = None) -> int:
        """Check a table of strings."""
        import pyarrow as pa

        self.shape(f"{name}.text", table.text, (None,), "u")
        found = self.offsets(f"{name}.offsets", table.offsets, count, len(table.text))

        def check() -> None:
            try:
                table.arrow().validate(full=True)
            except pa.ArrowInvalid as error:
                raise self.wrong(f"{name}.text", "is not valid UTF-8") from error

        self._waiting.append(check)
        return found

    def vocabulary(self, name: str, table: Vocabulary) -> None:
        """Check a table of names and the order that finds them."""
        count = self.strings(name, table)
        self.ids(f"{name}.order", table.order, (count,), count)

        def check() -> None:
            found = np.zeros(count, bool)
            for block in _blocks(table.order):
                found[block] = True
            if not found.all():
                raise self.wrong(f"{name}.order", "contains an id twice")

        self._waiting.append(check)


def _blocks(array: Any, overlap: int = 0) -> Iterator[Any]:
    """The rows of an array in blocks; some of the last rows of a block are those that the next begins with."""
    for start in range(0, len(array) - overlap, ROWS_AT_ONCE):
        yield array[start : start + ROWS_AT_ONCE + overlap]
