"""Tab- or comma-separated tables of names; every problem is reported with its line."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.sources.columns import Columns, TripleTable
from hire.errors import HireError, Problem
from hire.progress import track
from hire.util.files import check_line_length, compression_of, read_blocks

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_BLANK_LINES = 10_000_000  # a kilobyte of compressed line feeds is a million of them
NEWLINE = ord("\n")
FORBIDDEN = {"\t": "a tab", "\n": "a line break", "\r": "a carriage return", "\0": "a NUL character"}

# First rows that are recognized as a header.
TRIPLE_HEADERS = (
    ("head", "relation", "tail"),
    ("subject", "predicate", "object"),
    ("source", "relation", "target"),
    ("h", "r", "t"),
    ("s", "p", "o"),
)
PAIR_HEADERS = (("entity", "label"), ("entity", "type"), ("id", "label"), ("id", "type"))
VERDICT_HEADERS = (("head", "tail", "verdict"), ("subject", "object", "verdict"), ("source", "target", "verdict"))
REFERENCE_HEADERS = (("head", "tail"), ("subject", "object"), ("source", "target"), ("h", "t"), ("s", "o"))


@dataclass(frozen=True)
class TableFormat:
    """The layout of a table; None is detected from the first row."""

    delimiter: str = "\t"
    columns: tuple[str, ...] | None = None  # names, or numbers from 1
    header: bool | None = None


def read_triples(path: Path, layout: TableFormat, problems: list[Problem] | None = None) -> TripleTable:
    """Read a table of triples; bad lines are an error or, if `problems` is given, collected there and skipped."""
    reader = _Reader(path, layout, TRIPLE_HEADERS, problems)
    table = TripleTable(str(path), triples=reader.read(), notes=reader.notes)
    table.lines = np.concatenate([np.zeros(0, np.int64), *reader.lines])
    if reader.blank_lines:
        table.skipped["blank lines"] = reader.blank_lines
    if reader.header:
        table.skipped["header rows"] = 1
    if not len(table.triples) and not problems:
        reader.wrong("contains no triples", None, "check that this is the right file")
    return table


def read_pairs(path: Path, layout: TableFormat) -> tuple[Columns, list[Problem]]:
    """Read a table of entities and their labels or types; returns what was corrected as well."""
    reader = _Reader(path, layout, PAIR_HEADERS, None)
    return reader.read(), reader.notes


def read_references(path: Path, layout: TableFormat) -> list[tuple[int, str, str]]:
    """Read a table of heads and tails; each pair comes with its line number."""
    reader = _Reader(path, layout, REFERENCE_HEADERS, None)
    heads, tails = (column.to_pylist() for column in reader.read().arrays())
    lines = np.concatenate([np.zeros(0, np.int64), *reader.lines]).tolist()
    if not lines:
        reader.wrong("contains no pairs", None, "check that this is the right file")
    return list(zip(lines, heads, tails, strict=True))


def read_judged_pairs(path: Path, layout: TableFormat) -> list[tuple[int, str, str, str]]:
    """Read a table of heads, tails and verdicts; without a third column, all pairs are accepted."""
    reader = _Reader(path, layout, VERDICT_HEADERS, None)
    try:
        columns = [column.to_pylist() for column in reader.read().arrays()]
    except HireError:
        if reader.width != len(REFERENCE_HEADERS[0]):
            raise
        return [(*row, "accept") for row in read_references(path, layout)]
    lines = np.concatenate([np.zeros(0, np.int64), *reader.lines]).tolist()
    return list(zip(lines, *columns, strict=True))


@dataclass
class _Reader:
    path: Path
    layout: TableFormat
    headers: Sequence[tuple[str, ...]]
    problems: list[Problem] | None
    notes: list[Problem] = field(default_factory=list)
    lines: list[NDArray[np.int64]] = field(default_factory=list)
    blank_lines: int = 0
    _blank_run: int = 0  # lines of blocks that are nothing else
    header: bool = False  # whether the first row is a header
    width: int = 0  # columns of the table
    chosen: list[int] = field(default_factory=list)  # the columns to keep, in order

    def wrong(self, message: str, line: int | None, remedy: str | None = None) -> None:
        """Raise a problem, or collect it if the caller wants all of them."""
        problem = Problem(message, str(self.path), line, remedy)
        if self.problems is None:
            raise HireError.of([problem])
        self.problems.append(problem)

    def read(self) -> Columns:
        columns = Columns(len(self.headers[0]))
        blocks = self._line_blocks()
        first_line = 1
        for block in blocks:
            if not self.width:
                skipped_lines = self._read_head(block)
                block = _without_lines(block, skipped_lines)
                first_line += skipped_lines
            if self.layout.delimiter != "\t" and b'"' in block:
                self._read_quoted(chain([block], blocks), first_line, columns)
                break
            if self.width:
                self._read_plain(block, first_line, columns)
            first_line += block.count(b"\n")
        if not self.width and not self.problems:
            self.wrong("is empty", None, "check that this is the right file")
        return columns

    def _line_blocks(self) -> Iterator[bytes]:
        """Blocks of complete lines: valid UTF-8 that ends with a line feed, without byte order mark or CRLF."""
        total = None if compression_of(self.path) or not self.path.exists() else self.path.stat().st_size
        with track(f"Reading {self.path.name}", total, bytes_=True) as advance:
            rest, first_line = b"", 1
            for block in chain(read_blocks(self.path, advance), [b""]):
                if block:
                    whole, newline, tail = block.rpartition(b"\n")
                    whole, rest = (rest + whole + newline, tail) if newline else (b"", rest + block)
                else:
                    whole, rest = rest + b"\n" if rest else b"", b""
                lines = whole.count(b"\n")
                check_line_length(self.path, first_line + lines, len(rest))
                if whole:
                    self._check_blank_lines(whole, lines)
                    yield self._cleaned(whole, first_line)
                    first_line += lines

    def _check_blank_lines(self, block: bytes, lines: int) -> None:
        """Blank lines are skipped, but nobody writes millions of them on purpose."""
        if lines < len(block):
            return
        self._blank_run += lines
        if self._blank_run > MAX_BLANK_LINES:
            raise HireError(
                f"has more than {MAX_BLANK_LINES:,} blank lines", file=self.path, remedy="check that it is a table"
            )

    def _cleaned(self, block: bytes, first_line: int) -> bytes:
        if first_line == 1 and block.startswith(BYTE_ORDER_MARK):
            block = block[len(BYTE_ORDER_MARK) :]
            self.notes.append(Problem("starts with a byte order mark, which was ignored", str(self.path), 1))
        try:
            block.decode()
        except UnicodeDecodeError:
            block = self._without_invalid_lines(block, first_line)
        if b"\r" in block:
            cleaned = block.replace(b"\r\n", b"\n")
            if len(cleaned) < len(block) and not any("CRLF" in note.message for note in self.notes):
                line = first_line + block[: block.index(b"\r\n")].count(b"\n")
                self.notes.append(Problem("has CRLF line endings", str(self.path), line))
            block = cleaned
        return block

    def _without_invalid_lines(self, block: bytes, first_line: int) -> bytes:
        kept = []
        for number, line in enumerate(block.split(b"\n"), first_line):
            try:
                line.decode()
                kept.append(line)
            except UnicodeDecodeError as error:
                self.wrong(
                    f"invalid UTF-8 at byte {error.start + 1} of the line", number, "save the file with UTF-8 encoding"
                )
                kept.append(b"")  # keeps the line numbers that follow
        return b"\n".join(kept)

    def _read_head(self, block: bytes) -> int:
        """Detect width, header and columns from the first row; returns the number of lines to skip."""
        if not block.strip(b"\n"):
            self.blank_lines += len(block)
            return len(block)
        text = block.decode()
        rows = self._csv_rows([text]) if self.layout.delimiter != "\t" else _tab_rows(text)
        for line, row in rows:
            if not any(row):
                continue
            self.width = len(row)
            self.header = self._choose_columns(row, line)
            return line if self.header else 0
        self.blank_lines += block.count(b"\n")
        return block.count(b"\n")

    def _choose_columns(self, row: list[str], line: int) -> bool:
        wanted, names = self.layout.columns, [name.strip().lower() for name in row]
        known = next((header for header in self.headers if set(header) <= set(names)), None)
        if wanted is not None and not all(column.isdecimal() for column in wanted):
            missing = [column for column in wanted if column not in row]
            if missing:
                raise HireError(
                    f"has no column named {missing[0]!r}; its first row is {', '.join(row)}"[:500],
                    file=self.path,
                    line=line,
                    remedy="use names from the first row, or column numbers, as in --columns 1,2,3",
                )
            self.chosen = [row.index(column) for column in wanted]
            return True
        if wanted is not None:
            self.chosen = [int(column) - 1 for column in wanted]
            outside = [column + 1 for column in self.chosen if not 0 <= column < self.width]
            if outside:
                raise HireError(
                    f"has {self.width} columns, but column {outside[0]} was requested",
                    file=self.path,
                    line=line,
                    remedy="columns are numbered from 1",
                )
        elif known is not None and self.layout.header is not False:
            self.chosen = [names.index(name) for name in known]
        elif self.width == len(self.headers[0]):
            self.chosen = list(range(self.width))
        else:
            raise HireError(
                f"expected {len(self.headers[0])} columns, found {self.width}: {row!r}"[:500],
                file=self.path,
                line=line,
                remedy=self._remedy(),
            )
        return known is not None if self.layout.header is None else self.layout.header

    def _remedy(self) -> str:
        """What to do about a table with another number of columns."""
        if self.headers is REFERENCE_HEADERS and self.width == len(TRIPLE_HEADERS[0]):
            return "references are pairs of head and tail: leave out the relation, or name the columns in line 1"
        remedy = "separate columns with tabs in .tsv files and commas in .csv files"
        return remedy + (", or choose columns, as in --columns 1,2,3" if self.headers is TRIPLE_HEADERS else "")

    def _read_plain(self, block: bytes, first_line: int, columns: Columns) -> None:
        """Split a block of unquoted lines with array operations."""
        import pyarrow as pa

        characters = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(characters == NEWLINE)
        delimiters = np.flatnonzero(characters == ord(self.layout.delimiter))
        counts = np.diff(np.searchsorted(delimiters, ends), prepend=0)  # delimiters of each line
        blank = np.diff(ends, prepend=-1) == 1
        bad = ~blank & (counts != self.width - 1)
        for line in np.flatnonzero(bad):
            self.wrong(
                f"expected {self.width} columns, found {counts[line] + 1}",
                first_line + int(line),
                "a name must not contain the column separator",
            )
        self.blank_lines += int(blank.sum())
        good = np.flatnonzero(~(blank | bad))
        if len(good) < len(ends):
            kept = block.split(b"\n")
            block = b"".join(kept[line] + b"\n" for line in good)
            characters = np.frombuffer(block, np.uint8)
        separators = (characters == NEWLINE) | (characters == ord(self.layout.delimiter))
        positions = np.flatnonzero(separators)
        offsets = np.zeros(len(positions) + 1, np.int64)
        offsets[1:] = positions - np.arange(len(positions))
        lines = first_line + good
        rows = np.flatnonzero(self._well_named(block, offsets, lines))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters[~separators])]
        fields = pa.Array.from_buffers(pa.large_string(), len(positions), buffers)
        columns.extend([fields.take(pa.array(rows * self.width + column)) for column in self.chosen])
        self.lines.append(lines[rows])

    def _well_named(self, block: bytes, offsets: NDArray[np.int64], lines: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have a valid name in every chosen column."""
        empty = (np.diff(offsets) == 0).reshape(-1, self.width)[:, self.chosen]
        good: NDArray[np.bool_] = ~empty.any(axis=1)
        for row in np.flatnonzero(~good):
            column = self.chosen[int(np.argmax(empty[row]))] + 1
            self.wrong(f"column {column} is empty", int(lines[row]), "every column must contain a name")
        if any(ord(character) in block for character in "\t\r\0" if character != self.layout.delimiter):
            for number, text in enumerate(block.decode().split("\n")[:-1]):
                fields = text.split(self.layout.delimiter)
                names = [fields[column] for column in self.chosen]
                good[number] &= self._names_are_allowed(names, int(lines[number]))
        return good

    def _names_are_allowed(self, names: list[str], line: int) -> bool:
        wrong = [(name, word) for name in names for character, word in FORBIDDEN.items() if character in name]
        for name, word in wrong:
            self.wrong(f"the name {name!r} contains {word}"[:300], line, "remove it: names are single lines of text")
        return not wrong

    def _read_quoted(self, blocks: Iterable[bytes], first_line: int, columns: Columns) -> None:
        """Read the rest of a table with quoted fields, which may span lines, row by row."""
        lines = []
        for line, row in self._csv_rows((block.decode() for block in blocks), first_line - 1):
            if not row:
                self.blank_lines += 1
            elif len(row) != self.width:
                self.wrong(f"expected {self.width} columns, found {len(row)}", line)
            else:
                names = [row[column] for column in self.chosen]
                if not all(names):
                    column = self.chosen[names.index("")] + 1
                    self.wrong(f"column {column} is empty", line, "every column must contain a name")
                elif self._names_are_allowed(names, line):
                    columns.append(*names)
                    lines.append(line)
        self.lines.append(np.array(lines, np.int64))

    def _csv_rows(self, texts: Iterable[str], lines_before: int = 0) -> Iterator[tuple[int, list[str]]]:
        physical = (line + "\n" for text in texts for line in text.split("\n")[:-1])
        reader = csv.reader(physical, delimiter=self.layout.delimiter, strict=True)
        while True:
            line = lines_before + reader.line_num + 1  # where the row begins
            try:
                row: Any = next(reader, None)
            except csv.Error as error:
                remedy = "double every quote inside a quoted name, and close every quote"
                self.wrong(f"is not valid CSV ({error})", line, remedy)
                return
            if row is None:
                return
            yield lines_before + reader.line_num, row


def _tab_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate(text.split("\n")[:-1], 1):
        yield line, row.split("\t")


def _without_lines(block: bytes, count: int) -> bytes:
    if count == len(block):  # nothing but line feeds
        return b""
    return block.split(b"\n", count)[count] if count else block
