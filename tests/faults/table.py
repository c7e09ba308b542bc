"""What the fault tests did, as tables for the end of their output and for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

SLOWEST, PEAK = "seconds of the slowest", "peak MiB"  # columns whose total is the largest; the others are added up


class Row(NamedTuple):
    """What one test did."""

    table: str
    name: str
    cells: dict[str, int | float]


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of all tables, each with a row for everything in it."""
    for title in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == title]
        names = list(dict.fromkeys(name for row in own for name in row.cells))
        yield ""
        yield _line([title, *(name.replace("_", " ") for name in names)])
        yield _line(["---"] * (len(names) + 1))
        if len(own) > 1:
            own.append(Row(title, "all", {name: _total(name, own) for name in names}))
        for row in own:
            yield _line([row.name, *(_written(row.cells[name]) if name in row.cells else "" for name in names)])


def _total(name: str, rows: Sequence[Row]) -> int | float:
    found = [row.cells[name] for row in rows if name in row.cells]
    return max(found) if name.replace("_", " ") in (SLOWEST, PEAK) else sum(found)


def _written(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
