"""Results as one self-contained HTML page: tables and charts, without anything that is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from hire.util.files import atomic_file

STYLE = """
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1240px; padding: 0 1rem; }
  h1 { font-size: 1.6rem; } h2 { margin-top: 3rem; border-top: 1px solid #8886; padding-top: 1rem; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; font-size: 13px; }
  caption { text-align: left; font-weight: 600; padding: .3rem 0; }
  th, td { padding: .2rem .45rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8883; }
  th:first-child, td:first-child { text-align: left; }
  thead th { font-weight: 600; } th[colspan] { text-align: center; }
  td:nth-child(3n + 3) { border-left: 1px solid #8883; }
  ul.notes { color: #57606a; font-size: 14px; } svg { max-width: 100%; height: auto; }
  .warning { border-left: 4px solid #bf8700; padding: .4rem 1rem; background: #bf870018; }
  pre { overflow-x: auto; background: #8881; padding: .6rem 1rem; }
  @media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; } ul.notes { color: #9da7b3; } }
"""


class Shown(NamedTuple):
    """A cell of a table."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table with two lines of headings."""

    title: str
    groups: list[tuple[str, int]]  # the upper headings, and how many columns each spans
    head: list[str]
    rows: list[list[Shown]]


@dataclass(frozen=True)
class Section:
    """The results of an experiment."""

    name: str
    title: str
    about: str
    tables: list[PageTable]
    charts: list[str]  # SVG
    notes: list[str]
    data: Any  # all of it as plain data
    cut: list[str] = field(default_factory=list)  # which runs were cut


def write_page(
    path: Path, title: str, sections: Sequence[Section], about: dict[str, Any], open_: Sequence[str]
) -> None:
    """Write the page; `open_` says what is still missing."""
    with atomic_file(path) as partial:
        partial.write_text(page(title, sections, about, open_), "utf-8")


def page(title: str, sections: Sequence[Section], about: dict[str, Any], open_: Sequence[str] = ()) -> str:
    """The page as text."""
    links = " · ".join(f'<a href="#{escape(section.name)}">{escape(section.title)}</a>' for section in sections)
    missing = f'<p class="warning">Not done yet: {escape(", ".join(open_))}.</p>' if open_ else ""
    made = escape(json.dumps(about, indent=1, ensure_ascii=False))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n<p>{links}</p>\n{missing}\n"
        f"{''.join(map(_section, sections))}"
        f"<h2>Made with</h2>\n<pre>{made}</pre>\n</body></html>\n"
    )


def _section(section: Section) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in section.notes)
    warning = f'<p class="warning">Cut by the budget: {escape(" ".join(section.cut))}</p>' if section.cut else ""
    return (
        f'<h2 id="{escape(section.name)}">{escape(section.title)}</h2>\n<p>{escape(section.about)}</p>\n{warning}\n'
        f"{''.join(section.charts)}\n{''.join(map(_table, section.tables))}\n"
        f'<ul class="notes">{notes}</ul>\n'
    )


def _table(table: PageTable) -> str:
    groups = "".join(f'<th colspan="{width}">{escape(title)}</th>' for title, width in table.groups)
    head = "".join(f"<th>{escape(title)}</th>" for title in table.head)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption>\n'
        f"<thead><tr>{groups}</tr><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n"
    )


def _cell(shown: Shown) -> str:
    return f"<td><strong>{escape(shown.text)}</strong></td>" if shown.strong else f"<td>{escape(shown.text)}</td>"
