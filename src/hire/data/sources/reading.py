"""Read any source: choose the reader by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hire.data.sources.columns import Columns, TripleTable
from hire.data.sources.delimited import (
    MAX_BLANK_LINES,
    TableFormat,
    read_judged_pairs,
    read_pairs,
    read_references,
    read_triples,
)
from hire.data.sources.rdf import FORMATS as RDF_SUFFIXES
from hire.data.sources.rdf import read_rdf
from hire.errors import HireError, Problem
from hire.util.files import check_line_length, compression_of, read_blocks

TABLE_DELIMITERS = {"tsv": "\t", "csv": ","}
FORMATS = (*TABLE_DELIMITERS, *dict.fromkeys(RDF_SUFFIXES.values()))


@dataclass(frozen=True)
class SourceOptions:
    """How to read sources; None is detected from file names and first rows."""

    format: str | None = None  # one of FORMATS
    columns: tuple[str, ...] | None = None
    header: bool | None = None
    language: str = "en"  # of labels
    query: str | None = None  # for SPARQL endpoints
    page_size: int = 10_000
    timeout_seconds: float = 60.0
    retries: int = 5


def read_sources(sources: Sequence[str], options: SourceOptions, work: Path) -> list[TripleTable]:
    """Read files and SPARQL endpoints; `work` keeps the pages of an endpoint until all of them have arrived."""
    return [_read_source(source, options, number, work) for number, source in enumerate(sources)]


def _read_source(source: str, options: SourceOptions, number: int, work: Path) -> TripleTable:
    if source.startswith(("http://", "https://")):
        from hire.data.sources.sparql import read_sparql

        return read_sparql(
            source,
            work / f"endpoint-{number}",
            query=options.query,
            page_size=options.page_size,
            timeout_seconds=options.timeout_seconds,
            retries=options.retries,
            language=options.language,
        )
    path = Path(source)
    form = options.format or format_of(path)
    if form in TABLE_DELIMITERS:
        return read_triples(path, TableFormat(TABLE_DELIMITERS[form], options.columns, options.header))
    return read_rdf(path, form, number, language=options.language)


def read_names(path: Path) -> tuple[Columns, list[Problem]]:
    """Read a .tsv or .csv table of entities and their labels or types; returns what was corrected as well."""
    return read_pairs(path, _two_columns(path))


def read_examples(path: Path) -> list[tuple[int, str, str]]:
    """Read a .tsv or .csv table of heads and tails: line number, head and tail of each pair."""
    return read_references(path, _two_columns(path))


def read_verdicts(path: Path) -> list[tuple[int, str, str, str]]:
    """Read a .tsv or .csv table of heads, tails and verdicts, each with its line number."""
    return read_judged_pairs(path, _two_columns(path))


def _two_columns(path: Path) -> TableFormat:
    form = format_of(path)
    if form not in TABLE_DELIMITERS:
        raise HireError("is not a table", file=path, remedy="use a .tsv or .csv file with two columns")
    return TableFormat(TABLE_DELIMITERS[form])


def read_lines(path: Path, shown: Path | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or compressed, with their numbers, as they are read; empty ones are left out.

    A line is exact but for its end, LF or CRLF. Errors name the path, or the one that is to be shown instead.
    """
    rest, before = b"", 0
    for block in chain(read_blocks(path), [b"\n"]):
        *lines, rest = (rest + block).split(b"\n")
        check_line_length(path, before + len(lines) + 1, len(rest))
        if not any(lines) and len(lines) > MAX_BLANK_LINES:
            raise HireError(f"has more than {MAX_BLANK_LINES:,} blank lines", file=path, remedy="remove them")
        for number, line in enumerate(lines, before + 1):
            try:
                text = line.removesuffix(b"\r").decode().removeprefix("\ufeff" if number == 1 else "")
            except UnicodeDecodeError as error:
                raise HireError(
                    "invalid UTF-8", file=shown or path, line=number, remedy="save the file with UTF-8 encoding"
                ) from error
            if text:
                yield number, text
        before += len(lines)


def format_of(path: Path) -> str:
    """The format that a file's suffix stands for, compression aside; without a suffix it is .tsv."""
    suffix = Path(path.stem if compression_of(path) else path.name).suffix.lower()
    known = {f".{name}": name for name in TABLE_DELIMITERS} | RDF_SUFFIXES | {"": "tsv", ".txt": "tsv"}
    if suffix not in known:
        raise HireError(
            f"unknown suffix {suffix!r}",
            file=path,
            remedy=f"rename it, or give --format: {', '.join(FORMATS)}",
        )
    return known[suffix]
