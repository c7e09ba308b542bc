"""Output of commands: tables and bars for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

option = partial(click.option, show_default=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(content: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(content, indent=1, ensure_ascii=False))


def console() -> Console:
    """Standard output, wide enough for tables when it is not a terminal."""
    import sys

    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 110)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under a title; numbers are right-aligned."""
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(header_style="dim", box=None)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[number], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(as_text(cell)) for cell in row))
    console().print(plain(title, "bold"), soft_wrap=True)
    console().print(table)
    click.echo()


def plain(text: str, style: str = "") -> Text:
    """Plain text: markup, emoji codes and control characters in a name have no effect."""
    from rich.text import Text

    return Text(CONTROL.sub("\ufffd", text), style=style)


def as_text(cell: Any) -> str:
    """A table cell as text."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def bar(value: float, largest: float, width: int = 40) -> str:
    """A bar of proportional length; any value above zero is visible."""
    eighths = round(8 * width * value / largest) if largest else 0
    full, part = divmod(max(eighths, 1 if value else 0), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[part].strip()
