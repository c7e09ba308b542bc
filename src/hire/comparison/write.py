"""A comparison as files: Markdown, CSV, JSON, LaTeX and a chart, each complete or not at all."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hire.comparison.charts import comparison_svg
from hire.comparison.plan import DEFAULT
from hire.comparison.statistics import CONFIDENCE
from hire.comparison.table import METRIC_TITLES, METRICS, Cell, Comparison, Line
from hire.util.files import atomic_file

NAME = "comparison"
MINUS = "−"
TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_comparison(folder: Path, comparison: Comparison) -> list[Path]:
    """Write a comparison in every form into a folder; returns the files."""
    contents = {
        "md": to_markdown(comparison),
        "csv": to_csv(comparison),
        "json": json.dumps(to_plain(comparison), indent=1, ensure_ascii=False) + "\n",
        "tex": to_latex(comparison),
        "svg": comparison_svg(comparison),
    }
    found = []
    for suffix, content in contents.items():
        path = folder / f"{file_name(comparison)}.{suffix}"
        with atomic_file(path) as partial:
            partial.write_text(content, "utf-8")
        found.append(path)
    return found


def file_name(comparison: Comparison) -> str:
    """How the files of a comparison begin, so that one folder may have several of the same runs, ranked differently."""
    about = comparison.about
    of_split = "" if about["split"] == "test" else f"-{about['split']}"
    among_all = "-all" if about["candidates"] == "all" else ""
    drawn = f"-{about['draws']}-draws" if comparison.redrawn else ""
    return f"{NAME}{of_split}{among_all}{drawn}"


def number(value: float, signed: bool = False) -> str:
    """A metric in three digits without the leading zero, as the tables of the field have it."""
    digits = f"{abs(value):.3f}".removeprefix("0")
    sign = MINUS if value < 0 and float(digits) else "+" if signed and float(digits) else ""
    return sign + digits


def spread(cell: Cell) -> str:
    """The mean of a cell, and its spread if it has one."""
    return number(cell.mean) + ("" if cell.deviation is None else f" ± {number(cell.deviation)}")


def minutes(line: Line, shots: int | None = None) -> str:
    """How long a run was trained, in the mean, or one of those with so many references."""
    seconds = line.seconds(shots)
    return "" if seconds is None else f"{seconds / 60:.1f}"


def marked_rows(comparison: Comparison) -> Iterator[tuple[Line, str]]:
    """The lines, and the marks of their footnotes."""
    number_of_note = 0
    for line in comparison.lines:
        marks = []
        for _ in line.notes:
            number_of_note += 1
            marks.append(f"[{number_of_note}]")
        yield line, " ".join(marks)


def legend(comparison: Comparison) -> list[str]:
    """What the marks of a table mean, and its footnotes."""
    about, lines = comparison.about, comparison.lines
    over = "seeds and draws of the references" if comparison.redrawn else "seeds"
    found = [f"± is the standard deviation over {over}."]
    if len(lines) > 1:
        found.append(
            f"* is significantly below the best of its column ({CONFIDENCE:.0%}, paired bootstrap over relations and "
            "queries, corrected for the number of rows); what has no mark may be as good as the best."
        )
    if any(line.row.recipe == DEFAULT for line in lines):
        found.append("default: the system has no such recipe, and has its default settings.")
    if about.get("budget") is not None:
        found.append(f"A run was trained for at most {about['budget']:g} minutes, without embeddings.")
    commits = {outcome.commit for line in lines for outcome in line.evaluated()}
    if len(commits) > 1:
        found.append(f"The runs were begun at {len(commits)} commits, which {file_name(comparison)}.json names.")
    notes = [(line.row.key, note) for line in lines for note in line.notes]
    return found + [f"[{place}] {key}: {note}." for place, (key, note) in enumerate(notes, 1)]


def title(comparison: Comparison) -> str:
    """What is compared."""
    about = comparison.about
    found = f"{about['dataset']}, {about['split']}"
    found += ", among all entities" if about["candidates"] == "all" else ""
    return found + (f", references drawn {about['draws']} times" if comparison.redrawn else "")


def to_markdown(comparison: Comparison) -> str:
    """A table for each number of references, the differences in MRR, and how it was made."""
    parts = [f"# {title(comparison)}\n", f"![All systems]({file_name(comparison)}.svg)\n"]
    for shots in comparison.shots:
        head = ["system", "recipe", "runs", *METRIC_TITLES.values(), "95% of MRR", "minutes"]
        rows = [_markdown_cells(line, mark, shots) for line, mark in marked_rows(comparison)]
        parts += [f"## {shots}-shot\n", markdown_table(head, rows)]
    parts.append("".join(f"- {note}\n" for note in legend(comparison)).replace("*", r"\*"))
    for shots in comparison.shots:
        matrix = _markdown_differences(comparison, shots)
        if matrix:
            parts += [
                f"## Differences in MRR, {shots}-shot\n",
                "Row minus column; bold where 95% leave out zero.\n",
                matrix,
            ]
    parts.append(f"## Made with\n\n```json\n{json.dumps(comparison.about, indent=1, ensure_ascii=False)}\n```\n")
    return "\n".join(parts)


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _markdown_cells(line: Line, mark: str, shots: int) -> list[str]:
    cells = [line.cells.get((shots, metric)) for metric in METRICS]
    first = cells[0]
    between = "" if first is None else "–".join(map(number, first.interval))
    row = [f"{line.row.name} {mark}".strip(), line.row.recipe, f"{len(line.evaluated(shots))}"]
    return [*row, *map(_markdown_cell, cells), between, minutes(line, shots)]


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return (
        f"**{number(cell.mean)}**{spread(cell)[len(number(cell.mean)) :]}" if cell.best else spread(cell) + star(cell)
    )


def star(cell: Cell) -> str:
    """The mark of what is significantly below the best."""
    return "\\*" if cell.worse else ""


def _markdown_differences(comparison: Comparison, shots: int) -> str:
    found = {}
    for each in comparison.differences:
        if each.shots == shots and each.metric == "mrr":
            apart = each.interval[0] > 0 or each.interval[1] < 0
            for pair, value in (
                ((each.first, each.second), each.difference),
                ((each.second, each.first), -each.difference),
            ):
                found[pair] = f"**{number(value, True)}**" if apart else number(value, True)
    keys = [line.row.key for line in comparison.lines if any(line.row.key in pair for pair in found)]
    return (
        markdown_table(["", *keys], [[key, *(found.get((key, other), "") for other in keys)] for key in keys])
        if keys
        else ""
    )


def to_csv(comparison: Comparison) -> str:
    """A line for each row, number of references and metric."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["name", "system", "recipe", "shots", "metric", "mean", "deviation", "low", "high", "best", "worse"]
    writer.writerow([*head, "runs", "minutes", "notes"])
    for line in comparison.lines:
        for (shots, metric), cell in line.cells.items():
            figures = [cell.mean, cell.deviation, *cell.interval]
            writer.writerow(
                [line.row.name, line.row.settings.system, line.row.recipe, shots, metric]
                + ["" if value is None else f"{value:.6f}" for value in figures]
                + [int(cell.best), int(cell.worse), len(line.evaluated(shots)), minutes(line, shots)]
                + ["; ".join(line.notes)]
            )
    return stream.getvalue()


def to_plain(comparison: Comparison) -> dict[str, Any]:
    """Everything as plain data, the settings of each run's row included."""
    return {
        **comparison.about,
        "shots": list(comparison.shots),
        "rows": [_plain_line(line) for line in comparison.lines],
        "differences": [{**vars(each), "interval": list(each.interval)} for each in comparison.differences],
    }


def _plain_line(line: Line) -> dict[str, Any]:
    metrics: dict[str, dict[str, Any]] = {}
    for (shots, metric), cell in line.cells.items():
        metrics.setdefault(f"{shots}-shot", {})[metric] = {**vars(cell), "interval": list(cell.interval)}
    runs = [
        {
            "folder": outcome.job.name,
            "seed": outcome.job.seed,
            "shots": list(outcome.job.shots),
            "commit": outcome.commit,
            "cut": outcome.cut,
            **{name: value for name, value in vars(outcome.training).items() if name != "started"},
        }
        for outcome in line.outcomes
    ]
    row = {"name": line.row.name, "recipe": line.row.recipe, **line.row.settings.to_plain()}
    return {**row, "notes": line.notes, "metrics": metrics, "runs": runs}


def to_latex(comparison: Comparison) -> str:
    """A table for booktabs: all numbers of references side by side."""
    shots, names = comparison.shots, list(METRIC_TITLES.values())
    groups = " & ".join(rf"\multicolumn{{{len(names)}}}{{c}}{{{k}-shot}}" for k in shots)
    rules = " ".join(rf"\cmidrule(lr){{{3 + i * len(names)}-{2 + (i + 1) * len(names)}}}" for i in range(len(shots)))
    lines = [
        rf"\begin{{tabular}}{{ll{'c' * len(names) * len(shots)}}}",
        r"\toprule",
        rf" & & {groups} \\ {rules}",
        " & ".join(["System", "Recipe", *names * len(shots)]) + r" \\",
        r"\midrule",
    ]
    for line, mark in marked_rows(comparison):
        label = latex(line.row.name) + (rf"\textsuperscript{{{mark}}}" if mark else "")
        cells = [_latex_cell(line.cells.get((k, metric))) for k in shots for metric in METRICS]
        lines.append(" & ".join([label, latex(line.row.recipe), *cells]) + r" \\")
    notes = [f"% {note}" for note in [title(comparison), *legend(comparison)]]
    return "\n".join([*notes, *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """Text with the special characters of LaTeX escaped."""
    return re.sub(r"[&%$#_{}~^\\]", lambda found: TEX[found[0]], text)


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    mean = (
        rf"\textbf{{{number(cell.mean)}}}"
        if cell.best
        else number(cell.mean) + (r"\textsuperscript{*}" if cell.worse else "")
    )
    return mean + ("" if cell.deviation is None else rf" {{\tiny $\pm$ {number(cell.deviation)}}}")
