"""Tables that people paste or import: read as the command line reads them, each name looked up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hire.data.sources.reading import TABLE_DELIMITERS, read_examples, read_lines, read_verdicts
from hire.errors import HireError
from hire.inference.search import UnknownEntityError
from hire.service.log import NO_TAIL
from hire.service.relations import Pair
from hire.service.schemas import PairRow, PairRows, Resolved
from hire.service.teaching import Teaching

SUGGESTIONS = 5
VERDICTS = ("accept", "reject", "unsure", "no_tail")


def resolve(teaching: Teaching, name: str, graph: str | None = None) -> Resolved:
    """The entity that a name stands for or, if it is unknown, entities that resemble it."""
    try:
        entity = teaching.ref(teaching.resolved(name, graph), graph)
        return Resolved(given=name, entity=entity, suggestions=[], problem=None)
    except HireError as error:
        near = teaching.search(name, SUGGESTIONS, graph)
        return Resolved(given=name, entity=None, suggestions=near, problem=error.problems[0].message)


def read_pairs(
    teaching: Teaching, text: str, form: str | None = None, name: str | None = None, graph: str | None = None
) -> PairRows:
    """The pairs of a table, each name with what it stands for."""
    with _file(text, form or _form(text, name)) as path:
        pairs = read_examples(path)
    looked_up: dict[str, Resolved] = {}
    for _, *names in pairs:
        for each in names:
            if each not in looked_up:
                looked_up[each] = resolve(teaching, each, graph)
    rows = [PairRow(line=line, head=looked_up[head], tail=looked_up[tail]) for line, head, tail in pairs]
    unknown = sum(row.head.entity is None or row.tail.entity is None for row in rows)
    return PairRows(rows=rows, unknown=unknown)


def _form(text: str, name: str | None) -> str:
    """The format of a table: by the name of its file or, if that does not say it, by its first line."""
    suffix = Path(name).suffix.lower().removeprefix(".") if name else ""
    if suffix in TABLE_DELIMITERS:
        return suffix
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "csv" if "\t" not in first and "," in first else "tsv"


@contextmanager
def _file(text: str, form: str) -> Iterator[Path]:
    """A text as a file, which is what the readers read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{form}"
        path.write_text(text, "utf-8", newline="")
        yield path


def read_judged(
    teaching: Teaching, text: str, form: Literal["tsv", "csv", "log"], graph: str | None = None
) -> list[tuple[Pair, str]]:
    """Verdicts from a table of heads, tails and verdicts, or from an exported log, as text."""
    with _file(text, form) as path:
        return read_judged_file(teaching, path, log=form == "log", graph=graph)


def read_judged_file(
    teaching: Teaching, path: Path, *, log: bool = False, graph: str | None = None
) -> list[tuple[Pair, str]]:
    """Verdicts from a file: a table of heads, tails and verdicts, or an exported log."""
    found: list[tuple[Pair, str]] = []
    for line, head, tail, verdict in _read_log(path) if log else read_verdicts(path):
        if verdict not in VERDICTS:
            remedy = f"the verdicts are {', '.join(VERDICTS)}"
            raise HireError(f"unknown verdict {verdict!r}", file=path, line=line, remedy=remedy)
        try:
            pair = teaching.resolved(head, graph), NO_TAIL if verdict == "no_tail" else teaching.resolved(tail, graph)
        except UnknownEntityError as error:
            problem = error.problems[0]
            raise HireError(problem.message, file=path, line=line, remedy=problem.remedy) from error
        found.append((pair, verdict))
    return found


def _read_log(path: Path) -> list[tuple[int, str, str, str]]:
    """The verdicts of an exported log that were not undone."""
    rows: dict[int, tuple[int, str, str, str]] = {}
    for line, content in read_lines(path):
        try:
            entry = json.loads(content)
            number, head, tail, verdict = (entry[name] for name in ("entry", "head", "tail", "verdict"))
            undoes = entry.get("undoes")
            if not isinstance(head, str) or not isinstance(tail, str | None):
                raise TypeError("head and tail are not names")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HireError(
                f"is not an entry of a log ({error})", file=path, line=line, remedy="import an exported log"
            ) from error
        if verdict == "undo":
            rows.pop(undoes, None)
        else:
            rows[number] = line, head, tail or "", verdict
    return list(rows.values())
