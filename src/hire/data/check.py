"""Whether the arrays of a dataset fit together: their types and shapes, their offsets, and every id in them.

All of it is read once when a dataset is opened, 8 ms for NELL-One: an id out of range would otherwise end in a
traceback or, worse, in another entity's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError

if TYPE_CHECKING:
    from hire.data.dataset import FewShotDataset

ALL_ENTITIES = -1  # instead of the id of a candidate set


def check_arrays(dataset: FewShotDataset, directory: Path) -> None:
    """Raise if an array of an opened dataset is not what it should be; names its file."""
    graph, facts = dataset.graph, dataset.facts
    check = _Check(directory)
    check.vocabulary("graph/entities", graph.entities)
    check.vocabulary("graph/relations", graph.relations)
    entities, relations = len(graph.entities), len(graph.relations)
    triples = check.ids("graph/triples", graph.triples, (None, 3), entities)
    check.ids("graph/triples", graph.triples[:, 1], (None,), relations)
    check.offsets("graph/offsets", graph.offsets, entities, 2 * triples)
    check.shape("graph/neighbors", graph.neighbors, (2 * triples, 2))
    check.ids("graph/neighbors", graph.neighbors[:, :1], (2 * triples, 1), 2 * relations)
    check.ids("graph/neighbors", graph.neighbors[:, 1:], (2 * triples, 1), entities)
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
    check.ids("facts", facts.keys, (None,), entities**2 * relations)
    if (facts.keys[1:] <= facts.keys[:-1]).any():
        raise check.wrong("facts", "is not sorted")


class _Check:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

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

    def ids(self, name: str, array: Any, shape: tuple[int | None, ...], bound: int, least: int = 0) -> int:
        """Check that an array has ids below a bound; of triples, the columns of entities."""
        rows = self.shape(name, array, shape)
        for column in array.T[::2] if shape[1:] == (3,) else [array]:
            if column.size and not least <= int(column.min()) <= int(column.max()) < bound:
                raise self.wrong(name, "contains an id that is out of range")
        return rows

    def offsets(self, name: str, array: Any, rows: int | None, end: int) -> int:
        """Check where rows start; returns the number of rows."""
        count = self.shape(name, array, (None if rows is None else rows + 1,))
        if not count or array[0] != 0 or array[-1] != end or (array[1:] < array[:-1]).any():
            raise self.wrong(name, f"does not divide {end:,} elements into rows")
        return count - 1

    def strings(self, name: str, table: StringTable, count: int | None = None) -> int:
        """Check a table of strings."""
        import pyarrow as pa

        self.shape(f"{name}.text", table.text, (None,), "u")
        found = self.offsets(f"{name}.offsets", table.offsets, count, len(table.text))
        try:
            table.arrow().validate(full=True)
        except pa.ArrowInvalid as error:
            raise self.wrong(f"{name}.text", "is not valid UTF-8") from error
        return found

    def vocabulary(self, name: str, table: Vocabulary) -> None:
        """Check a table of names and the order that finds them."""
        count = self.strings(name, table)
        self.ids(f"{name}.order", table.order, (count,), count)
        if count and int(np.bincount(table.order, minlength=count).max()) > 1:
            raise self.wrong(f"{name}.order", "contains an id twice")
