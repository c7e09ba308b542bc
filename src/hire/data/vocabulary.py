"""Names and ids: tables of strings that open by memory map, to look up a name by its id and an id by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError
from hire.util.arrays import IntArray
from hire.util.files import open_array, save_array

STRINGS_AT_ONCE = 1 << 16
MOST_IDS = 1 << 31  # of one kind: arrays have them in 32 bits
NAMES_TO_SEARCH_ONE_BY_ONE = 1_000  # for more, one hash table of all names is faster


class StringTable(Sequence[str]):
    """Strings by id, as one array of UTF-8 bytes and one of offsets, without a Python object per string."""

    def __init__(self, text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.text = text  # [bytes]
        self.offsets = offsets  # [strings + 1]

    @classmethod
    def of(cls, strings: Iterable[str] | Any) -> StringTable:
        """A table of strings from an iterable or a pyarrow array, in order of their ids."""
        import pyarrow as pa

        if not isinstance(strings, pa.Array):
            strings = pa.array(strings, pa.large_string())
        array = strings.cast(pa.large_string())
        if len(array) == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        _, offsets_buffer, text_buffer = array.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
        text = np.frombuffer(text_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
        return cls(text, offsets - offsets[0])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def bytes_of(self, string_id: int) -> bytes:
        """The string with an id, as UTF-8."""
        return self.text[self.offsets[string_id] : self.offsets[string_id + 1]].tobytes()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.bytes_of(int(index) % len(self)).decode()

    def __iter__(self) -> Iterator[str]:
        strings = self.arrow()
        for start in range(0, len(self), STRINGS_AT_ONCE):
            yield from strings[start : start + STRINGS_AT_ONCE].to_pylist()

    def arrow(self) -> Any:
        """The strings as a pyarrow array that shares their memory."""
        import pyarrow as pa

        buffers = [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(self.text)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    def extended(self, strings: Sequence[str]) -> StringTable:
        """The table with more strings appended."""
        more = StringTable.of(strings)
        offsets = np.concatenate([self.offsets, self.offsets[-1] + more.offsets[1:]])
        return StringTable(np.concatenate([self.text, more.text]), offsets)

    def save(self, directory: Path, name: str) -> None:
        """Write the table as `NAME.text.npy` and `NAME.offsets.npy`."""
        save_array(directory / f"{name}.text.npy", self.text)
        save_array(directory / f"{name}.offsets.npy", self.offsets)

    @classmethod
    def open(cls, directory: Path, name: str) -> StringTable:
        """Map a table written by `save`."""
        return cls(*(_mapped(directory / f"{name}.{part}.npy") for part in ("text", "offsets")))


class Vocabulary(StringTable):
    """A table of distinct names that finds the id of a name by binary search."""

    def __init__(
        self, text: NDArray[np.uint8], offsets: NDArray[np.int64], order: IntArray, kind: str = "name"
    ) -> None:
        super().__init__(text, offsets)
        if len(self) > MOST_IDS:
            raise too_many_ids(len(self), kind)
        self.order = order  # [names]: ids, sorted by the bytes of their names
        self.kind = kind  # what a name stands for, in error messages: "entity", "relation"

    @classmethod
    def of(cls, strings: Iterable[str] | Any, kind: str = "name") -> Vocabulary:
        """A vocabulary of distinct names, in order of their ids."""
        import pyarrow.compute as pc

        table = StringTable.of(strings)
        order = pc.sort_indices(table.arrow()).to_numpy(zero_copy_only=False).astype(np.int32)
        return cls(table.text, table.offsets, order, kind)

    def extended(self, strings: Sequence[str]) -> Vocabulary:
        """The vocabulary with new, distinct names appended; the others are not sorted again."""
        table = super().extended(strings)
        encoded = sorted(
            (name.encode("utf-8", "surrogatepass"), name_id) for name_id, name in enumerate(strings, len(self))
        )
        positions = [self._position(name) for name, _ in encoded]
        order = np.insert(self.order, positions, [name_id for _, name_id in encoded])
        return Vocabulary(table.text, table.offsets, order, self.kind)

    def _position(self, name: bytes) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.bytes_of(int(self.order[middle])) < name:
                low = middle + 1
            else:
                high = middle
        return low

    def index(self, name: str, *_range: int) -> int:
        """The id of a name, as `Sequence.index`."""
        return self.id(name)

    def find(self, name: str) -> int | None:
        """The id of a name, or None if it is unknown."""
        wanted = name.encode("utf-8", "surrogatepass")
        position = self._position(wanted)
        if position < len(self) and self.bytes_of(int(self.order[position])) == wanted:
            return int(self.order[position])
        return None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def id(self, name: str) -> int:
        """The id of a name; an error that suggests similar names if it is unknown."""
        found = self.find(name)
        if found is None:
            near = self.suggest(name)
            remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else None
            raise HireError(f"unknown {self.kind} {name!r}", remedy=remedy)
        return found

    def ids(self, names: Any) -> NDArray[np.int64]:
        """The ids of many names (an iterable or a pyarrow array), -1 where a name is unknown."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not isinstance(names, pa.Array | pa.ChunkedArray):
            names = list(names)
            if len(names) < NAMES_TO_SEARCH_ONE_BY_ONE:
                one_by_one = (self.find(name) for name in names)
                return np.array([-1 if name_id is None else name_id for name_id in one_by_one], np.int64)
            names = pa.array(names, pa.large_string())
        found = pc.index_in(names.cast(pa.large_string()), value_set=self.arrow())
        return np.asarray(pc.fill_null(found, -1).to_numpy()).astype(np.int64)

    def suggest(self, name: str, limit: int = 3) -> list[str]:
        """Known names similar to an unknown one, among those that sort near it."""
        from difflib import get_close_matches

        position = self._position(name.encode("utf-8", "surrogatepass"))
        nearby = range(max(0, position - 200), min(len(self), position + 200))
        return get_close_matches(name, [self[int(self.order[i])] for i in nearby], limit)

    def save(self, directory: Path, name: str) -> None:
        """Write the vocabulary: its table and `NAME.order.npy`."""
        super().save(directory, name)
        save_array(directory / f"{name}.order.npy", self.order)

    @classmethod
    def open(cls, directory: Path, name: str, kind: str = "name") -> Vocabulary:
        """Map a vocabulary written by `save`."""
        table = StringTable.open(directory, name)
        return cls(table.text, table.offsets, _mapped(directory / f"{name}.order.npy"), kind)


def too_many_ids(count: int, kind: str) -> HireError:
    """The error of more names of a kind, or edge types, than ids of 32 bits can tell apart."""
    return HireError(
        f"{count:,} ids of the kind {kind!r} are too many: they have 32 bits, so that there can be {MOST_IDS:,}",
        remedy="remove relations or entities that are not needed",
    )


def _mapped(path: Path) -> NDArray[Any]:
    """A mapped array as a plain one: looking up a single string in numpy's memmap class is several times slower."""
    return np.asarray(open_array(path))
