"""Charts of comparisons as SVG text: dots with whiskers for systems, lines for what a setting does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hire.comparison.published import Figures, of_system
from hire.util.svg import WIDTH, line, picture, text

if TYPE_CHECKING:
    from hire.comparison.table import Comparison

COLORS = ("#0969da", "#bc4c00", "#2da44e", "#8250df", "#bf8700", "#57606a")
ROW, DOT = 26, 10  # the least height of a row, and what each of its dots needs
LEFT, GAP, TOP, BOTTOM = 200, 36, 86, 44
LINES_HEIGHT = 340
PAPER = "HiRe's paper"  # the series of what it reports


@dataclass(frozen=True)
class Mark:
    """A value with an interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


Panel = Mapping[str, Mapping[str, Mark]]  # by row, then by series


def comparison_svg(comparison: Comparison) -> str:
    """MRR of every system: a panel for each number of references, a sort of dot for each recipe and for the paper."""
    series = list(dict.fromkeys(line.row.recipe for line in comparison.lines))
    reported = _reported(comparison)
    panels: dict[str, dict[str, dict[str, Mark]]] = {}
    for shots in comparison.shots:
        panel = panels.setdefault(f"{shots}-shot", {})
        for each in comparison.lines:
            cell = each.cells.get((shots, "mrr"))
            if cell is not None:
                panel.setdefault(each.row.name, {})[each.row.recipe] = Mark(cell.mean, *cell.interval)
        for name in panel.keys() & {name for name, of in reported.items() if shots in of}:
            panel[name][PAPER] = Mark(reported[name][shots]["mrr"])
    named = f"{comparison.about.get('dataset', '')}: MRR, and 95% of resamples of relations and queries"
    drawn = any(PAPER in marks for panel in panels.values() for marks in panel.values())
    return dots_svg(named, panels, [*series, *[PAPER] * drawn])


def _reported(comparison: Comparison) -> dict[str, Figures]:
    """What the paper has for the rows, where they were measured in its way."""
    about = comparison.about
    if about.get("split") != "test" or about.get("candidates") != "task" or comparison.redrawn:
        return {}
    return {line.row.name: of_system(line.row.name, about.get("published")) for line in comparison.lines}


def dots_svg(title: str, panels: Mapping[str, Panel], series: Sequence[str]) -> str:
    """Rows of dots over a shared axis, the best row first; series differ in color and shape."""
    rows = _sorted_rows(panels)
    step = max(ROW, 8 + DOT * max((len(marks) for panel in panels.values() for marks in panel.values()), default=0))
    height = TOP + step * max(1, len(rows)) + BOTTOM
    most = _nice(max((mark.high or mark.value for mark in _marks(panels)), default=1.0))
    width = (WIDTH - LEFT - 20 - GAP * (len(panels) - 1)) / max(1, len(panels))
    parts = [text(20, 24, title, "end", "start", 140), *_legend(series)]
    centers = {row: TOP + step * (place + 0.5) for place, row in enumerate(rows)}
    parts += [text(LEFT - 12, y + 4, row, "", "end", 30) for row, y in centers.items()]
    for number, (name, panel) in enumerate(panels.items()):
        left = LEFT + number * (width + GAP)
        edges = [TOP + step * place for place in range(len(rows) + 1)]
        parts += [line("edge", left, y, left + width, y) for y in edges]
        parts += _axis(left, width, TOP, height - BOTTOM, most, name)
        for row, marks in panel.items():
            shown = [each for each in series if each in marks]
            for offset, each in enumerate(shown):
                at = centers[row] + (offset - (len(shown) - 1) / 2) * DOT
                parts += _dot(left, width / most, at, marks[each], series.index(each), f"{row}, {each}, {name}")
    return picture(height, parts, title)


def lines_svg(title: str, xs: Sequence[str], curves: Mapping[str, Sequence[Mark | None]], x_title: str) -> str:
    """Curves over evenly spaced places of the x axis; None leaves a gap."""
    left, right, top, bottom = 70.0, WIDTH - 40.0, 70.0, LINES_HEIGHT - 60.0
    marks = [mark for curve in curves.values() for mark in curve if mark is not None]
    most = _nice(max((mark.high or mark.value for mark in marks), default=1.0))
    step = (right - left) / max(1, len(xs) - 1)
    parts = [text(20, 24, title, "end", "start", 140), *_legend(list(curves))]
    parts.append(text((left + right) / 2, bottom + 44, x_title, "relation"))
    ticks = _ticks(most)
    for tick in range(ticks + 1):
        y = bottom - (bottom - top) * tick / ticks
        parts += [
            line("edge", left, y, right, y),
            text(left - 8, y + 4, f"{most * tick / ticks:.3g}", "relation", "end"),
        ]
    parts += [text(left + step * place, bottom + 20, x, "relation") for place, x in enumerate(xs)]
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        places = [
            (left + step * place, bottom - (bottom - top) * mark.value / most, mark)
            for place, mark in enumerate(curve)
            if mark is not None
        ]
        points = " ".join(f"{x:g},{y:g}" for x, y, _ in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        for x, y, mark in places:
            if mark.low is not None and mark.high is not None:
                low, high = (bottom - (bottom - top) * value / most for value in (mark.low, mark.high))
                parts.append(f'<line stroke="{color}" opacity="0.4" x1="{x:g}" y1="{low:g}" x2="{x:g}" y2="{high:g}"/>')
            parts.append(_shape(x, y, number, f"{name}: {mark.value:.3f}"))
    return picture(LINES_HEIGHT, parts, title)


def _sorted_rows(panels: Mapping[str, Panel]) -> list[str]:
    """By what was measured, if anything was: a value that is only reported has no interval."""
    best: dict[str, list[float]] = {}
    for panel in panels.values():
        for row, marks in panel.items():
            measured = [mark.value for mark in marks.values() if mark.low is not None]
            best.setdefault(row, []).append(max(measured or [mark.value for mark in marks.values()], default=0.0))
    return sorted(best, key=lambda row: -sum(best[row]) / len(best[row]))


def _marks(panels: Mapping[str, Panel]) -> list[Mark]:
    return [mark for panel in panels.values() for marks in panel.values() for mark in marks.values()]


def _nice(value: float) -> float:
    """The end of an axis that reaches a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10) if factor * power >= value * 0.999
    )


def _ticks(most: float) -> int:
    """Into how many parts to divide an axis, so that their ends are round numbers."""
    return 5 if f"{most:e}"[0] in "15" and f"{most:.1e}"[2] == "0" else 4


def _axis(left: float, width: float, top: float, bottom: float, most: float, name: str) -> list[str]:
    parts = [text(left + width / 2, top - 14, name, "end")]
    ticks = _ticks(most)
    for tick in range(ticks + 1):
        x = left + width * tick / ticks
        parts += [line("edge", x, top, x, bottom), text(x, bottom + 18, f"{most * tick / ticks:.3g}", "relation")]
    return parts


def _dot(left: float, scale: float, y: float, mark: Mark, number: int, name: str) -> list[str]:
    parts, color = [], COLORS[number % len(COLORS)]
    if mark.low is not None and mark.high is not None:
        low, high = left + scale * mark.low, left + scale * mark.high
        parts.append(
            f'<line stroke="{color}" opacity="0.5" stroke-width="2" x1="{low:g}" y1="{y:g}" x2="{high:g}" y2="{y:g}"/>'
        )
    return [*parts, _shape(left + scale * mark.value, y, number, f"{name}: {mark.value:.3f}")]


def _shape(x: float, y: float, number: int, tooltip: str) -> str:
    """A filled or hollow circle, a square or a diamond: series are told apart without color, too."""
    color = COLORS[number % len(COLORS)]
    hollow = number % 2
    paint = f'class="paper" stroke="{color}" stroke-width="2.4"' if hollow else f'fill="{color}"'
    if number % 4 < 2:
        shape = f'<circle {paint} cx="{x:g}" cy="{y:g}" r="5">'
        return f"{shape}<title>{escape(tooltip)}</title></circle>"
    turned = f' transform="rotate(45 {x:g} {y:g})"' if number % 4 == 3 else ""
    shape = f'<rect {paint} x="{x - 4.5:g}" y="{y - 4.5:g}" width="9" height="9"{turned}>'
    return f"{shape}<title>{escape(tooltip)}</title></rect>"


def _legend(series: Sequence[str]) -> list[str]:
    parts, x = [], 26.0
    for number, name in enumerate(series):
        parts += [_shape(x, 46, number, name), text(x + 12, 50, name, "", "start")]
        x += 40 + 7 * len(name)
    return parts
