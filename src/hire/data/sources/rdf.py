"""Triples from RDF files: N-Triples, N-Quads, Turtle, TriG and RDF/XML, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast
from xml.parsers import expat

from pyoxigraph import BlankNode, Literal, NamedNode, Quad, RdfFormat, parse

from hire import progress
from hire.data.iri import PREFIX, name_of
from hire.data.sources.columns import TripleTable
from hire.errors import HireError
from hire.util import files

FORMATS = {
    ".nt": "ntriples",
    ".nq": "nquads",
    ".ttl": "turtle",
    ".trig": "trig",
    ".rdf": "rdfxml",
    ".owl": "rdfxml",
    ".xml": "rdfxml",
}
PARSERS = {
    "ntriples": RdfFormat.N_TRIPLES,
    "nquads": RdfFormat.N_QUADS,
    "turtle": RdfFormat.TURTLE,
    "trig": RdfFormat.TRIG,
    "rdfxml": RdfFormat.RDF_XML,
}
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
MAX_OPEN_QUOTES = 1000
MAX_DEPTH = 1_000  # of XML elements within one another: the parser's time grows with its square
BYTES_AT_ONCE = 1 << 13  # that the parser is given: so coarsely is the depth counted
# What ends the runs of text that a parser keeps in memory, by format; in the others, it bounds them itself.
ENDS = {"ntriples": b"\n", "nquads": b"\n", "rdfxml": b"<"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ROWS_PER_BATCH = 1 << 12  # few enough that their names stay in the processor's cache: some 10% faster


def read_rdf(path: Path, format: str, source_number: int = 0, *, language: str = "en") -> TripleTable:
    """Read an RDF file; labels in `language` or without a language are kept, other literals are skipped."""
    if format not in PARSERS:
        raise HireError(f"unknown RDF format {format!r}", file=path, remedy=f"choose from {', '.join(PARSERS)}")
    parser_format = PARSERS[format]
    with files.explain_os_errors(path):
        total = None if files.compression_of(path) else path.stat().st_size
    table = TripleTable(str(path))
    with progress.track(f"Reading {path.name}", total, bytes_=True) as advance:
        text = _Text(path, files.read_blocks(path, advance), format)
        try:
            collect(_quads(text, parser_format), table, language, blank_prefix=f"_:b{source_number}.")
        except MemoryError as error:  # how the parser says that its buffer is full
            message = f"a text is longer than {files.MAX_LINE_BYTES >> 20} MiB"
            raise HireError(message, file=path, remedy="check that this is an RDF file") from error
        except SyntaxError as error:
            raise HireError(
                f"is not valid {parser_format.name}: {collapse(error.msg.removeprefix('Parser error at '))}",
                file=path,
                line=error.lineno,
                remedy=f"correct the file, or give its --format if it is not {parser_format.name}",
            ) from error
    if not (len(table.triples) or len(table.labels) or len(table.types)):
        raise HireError("contains no triples", file=path, remedy="check that this is the right file")
    return table


def collect(quads: Iterable[Quad], table: TripleTable, language: str, blank_prefix: str = "_:b") -> None:
    """Sort statements into the triples, labels and types of a table.

    Blank nodes are numbered as they appear. An IRI that encodes a name (see `hire.data.iri`) becomes that name.
    """
    skipped, add_label, add_type = table.skipped, table.labels.append, table.types.append
    language = language.lower()
    names: dict[str, str] = {}  # of blank nodes, whose labels in a file may be random
    heads: list[str] = []
    relations: list[str] = []
    tails: list[str] = []
    add_head, add_relation, add_tail = heads.append, relations.append, tails.append
    for quad in quads:
        subject, object_ = quad.subject, quad.object
        if type(subject) is NamedNode:
            head = subject.value
        elif type(subject) is BlankNode:
            head = names.setdefault(subject.value, f"{blank_prefix}{len(names)}")
        else:
            skipped["quoted triples"] += 1
            continue
        relation = quad.predicate.value
        if type(object_) is NamedNode:
            tail = object_.value
            if relation == TYPE:
                add_type(name_of(head), name_of(tail))
                continue
        elif type(object_) is BlankNode:
            tail = names.setdefault(object_.value, f"{blank_prefix}{len(names)}")
        elif type(object_) is not Literal:
            skipped["quoted triples"] += 1
            continue
        elif relation != LABEL:
            skipped["literal objects"] += 1
            continue
        # Tags are in lower case; the hyphen tells British English (en-gb) from Middle English (enm).
        elif not f"{object_.language or language}-".startswith(f"{language}-"):
            skipped["labels in other languages"] += 1
            continue
        elif label := collapse(object_.value):
            add_label(name_of(head), label)
            continue
        else:
            skipped["empty labels"] += 1
            continue
        add_head(head)
        add_relation(relation)
        add_tail(tail)
        if len(heads) == ROWS_PER_BATCH:
            _move(table, heads, relations, tails)
    _move(table, heads, relations, tails)


def _move(table: TripleTable, *columns: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    arrays = [pa.array(column, pa.large_string()) for column in columns]
    for i, column in enumerate(columns):
        if pc.any(pc.starts_with(arrays[i], PREFIX)).as_py():
            arrays[i] = pa.array(map(name_of, column), pa.large_string())
        column.clear()
    table.triples.extend(arrays)


def collapse(text: str) -> str:
    """The text on one line, with single spaces instead of white space and control characters."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text).strip()


class _Text:
    """The file that the parser reads, guarded against input that crashes the parser or that it fails to reject."""

    def __init__(self, path: Path, blocks: Iterator[bytes], format: str) -> None:
        self.path = path
        self._end = ENDS.get(format)
        self._run = self._depth = 0  # bytes since the last end, and elements that are open
        xml = format == "rdfxml"
        self.open_quotes = 0
        self._blocks = blocks
        self._block = next(blocks, b"").removeprefix(BYTE_ORDER_MARK)
        self._position = 0
        self._check_blank()
        # The parser accepts a truncated RDF/XML document, and reports no line numbers.
        self._xml = expat.ParserCreate("utf-8") if xml and self._block else None
        self._check_xml()

    def read(self, size: int) -> bytes:
        if self._position >= len(self._block):
            self._block, self._position = next(self._blocks, b""), 0
            self._check_blank()
            self._check_xml()
        start, self._position = self._position, self._position + min(size, BYTES_AT_ONCE)
        # Quoted triples nested ten thousand levels deep overflow the stack of the parser.
        self.open_quotes += self._block.count(b"<<(", max(0, start - 2), self._position)
        if self.open_quotes > MAX_OPEN_QUOTES:
            raise HireError(
                f"quoted triples are nested more than {MAX_OPEN_QUOTES} levels deep",
                file=self.path,
                remedy="remove these statements from the file",
            )
        part = self._block[start : self._position]
        self._check_run(part)
        return part

    def _check_blank(self) -> None:
        """Raise if a whole block is blank: a parser takes its time for each character, however well it compresses."""
        if len(self._block) == files.BLOCK_BYTES and self._block.isspace():
            message = f"has more than {files.BLOCK_BYTES >> 20} MiB of blank lines"
            raise HireError(message, file=self.path, remedy="check that this is an RDF file")

    def _check_run(self, part: bytes) -> None:
        if self._end is None:
            return
        last = part.rfind(self._end)
        self._run = self._run + len(part) if last < 0 else len(part) - last
        if self._run > files.MAX_LINE_BYTES:
            what = "a text" if self._xml is not None else "a line"
            message = f"{what} is longer than {files.MAX_LINE_BYTES >> 20} MiB"
            raise HireError(message, file=self.path, remedy="check that this is an RDF file")
        if self._xml is not None:
            opened = part.count(b"<") - part.count(b"<!") - part.count(b"<?")
            self._depth = max(0, self._depth + opened - 2 * part.count(b"</") - part.count(b"/>"))
            if self._depth > MAX_DEPTH:
                message = f"elements are nested more than {MAX_DEPTH:,} levels deep"
                raise HireError(message, file=self.path, remedy="write the file with fewer elements in one another")

    def _check_xml(self) -> None:
        if self._xml is None:
            return
        try:
            self._xml.Parse(self._block, not self._block)
        except expat.ExpatError as error:
            raise HireError(
                f"is not well-formed XML in UTF-8: {expat.ErrorString(error.code)}",
                file=self.path,
                line=error.lineno,
                remedy="correct the file, or download it again if it is truncated",
            ) from error


def _quads(text: _Text, format: RdfFormat) -> Iterator[Quad]:
    for quad in parse(cast(IO[bytes], text), format):
        text.open_quotes = 0
        yield quad
