"""Tables that people paste or import: read as the command line reads them, each name looked up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hire.data.sources.reading import TABLE_DELIMITERS, read_examples, read_verdicts
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


def read_judged(teaching: Teaching, text: str, form: Literal["tsv", "csv", "log"]) -> list[tuple[Pair, str]]:
    """Verdicts from a table of heads, tails and verdicts, or from an exported log."""
    rows = _read_log(text) if form == "log" else _read_table(text, form)
    found: list[tuple[Pair, str]] = []
    for line, head, tail, verdict in rows:
        if verdict not in VERDICTS:
            raise HireError(f"unknown verdict {verdict!r}", line=line, remedy=f"the verdicts are {', '.join(VERDICTS)}")
        try:
            pair = teaching.resolved(head), NO_TAIL if verdict == "no_tail" else teaching.resolved(tail)
        except UnknownEntityError as error:
            problem = error.problems[0]
            raise HireError(problem.message, line=line, remedy=problem.remedy) from error
        found.append((pair, verdict))
    return found


def _read_table(text: str, form: str) -> Sequence[tuple[int, str, str, str]]:
    with _file(text, form) as path:
        return read_verdicts(path)


def _read_log(text: str) -> list[tuple[int, str, str, str]]:
    """The verdicts of an exported log that were not undone."""
    rows: dict[int, tuple[int, str, str, str]] = {}
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip():
            continue
        try:
            entry = json.loads(content)
            number, head, tail, verdict = (entry[name] for name in ("entry", "head", "tail", "verdict"))
            undoes = entry.get("undoes")
            if not isinstance(head, str) or not isinstance(tail, str | None):
                raise TypeError("head and tail are not names")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HireError(
                f"is not an entry of a log ({error})", line=line, remedy="import an exported log"
            ) from error
        if verdict == "undo":
            rows.pop(undoes, None)
        else:
            rows[number] = line, head, tail or "", verdict
    return list(rows.values())
