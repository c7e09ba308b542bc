"""Pictures as SVG text: no library, no browser needed to make them, any browser to see them."""

from __future__ import annotations

import re
from html import escape
from typing import Any

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ROW_HEIGHT = 34
WIDTH = 1200
POLES = {"head": 440, "tail": 760}  # where head and tail stand
OUTER = {"head": (300, -10, "end"), "tail": (900, 10, "start")}  # their own neighbours: dot, text beside it, anchor
MOST_ROWS = 14

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; stroke: #fff; stroke-width: 4px; paint-order: stroke; }
  .end { font-weight: 700; font-size: 14px; }
  .edge { stroke: #c4ccd5; } .shared-edge { stroke: #2da44e; stroke-width: 1.6; }
  .target { stroke: #d1242f; stroke-width: 2.2; stroke-dasharray: 6 4; }
  .dot { fill: #57606a; } .shared { fill: #2da44e; } .pole { fill: #0969da; }
  .relation { fill: #6e7781; font-size: 11px; }
  .paper { fill: #fff; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } text { fill: #e6edf3; stroke: #0d1117; } .relation { fill: #9da7b3; }
    .edge { stroke: #3d444d; }
  }
"""


def context_svg(context: dict[str, Any]) -> str:
    """Draw a triplet's context: its head on the left, its tail on the right, what they share between them."""
    shared = set(context["shared"])
    between: dict[int, dict[str, str]] = {}
    outer: dict[str, list[dict[str, Any]]] = {"head": [], "tail": []}
    for side in ("head", "tail"):
        for found in context["neighbors"][side]:
            if found["number"] in shared:
                between.setdefault(found["number"], {"entity": found["entity"]}).setdefault(side, found["relation"])
            else:
                outer[side].append(found)
    rows = max(2, min(MOST_ROWS, max(len(outer["head"]), len(outer["tail"]), 2 * len(between))))
    height = (rows + 2) * ROW_HEIGHT
    middle = height / 2 + ROW_HEIGHT / 2
    lines = [_line("target", POLES["head"], middle, POLES["tail"], middle)]
    marks = []
    for side, (x, gap, anchor) in OUTER.items():
        shown = outer[side]
        if len(shown) > MOST_ROWS:
            rest = {"relation": "", "entity": f"… {len(shown) - MOST_ROWS + 1} more"}
            shown = [*shown[: MOST_ROWS - 1], rest]
        for found, y in zip(shown, _spread(len(shown), height), strict=True):
            lines.append(_line("edge", POLES[side], middle, x, y))
            marks += [
                _dot("dot", x, y, 3),
                _text(x + gap, y - 1, found["entity"], "", anchor),
                _text(x + gap, y + 12, found["relation"], "relation", anchor),
            ]
    places = _spread(min(len(between), MOST_ROWS // 2), height)
    for relations, y in zip(between.values(), places, strict=False):
        lines += [_line("shared-edge", x, middle, WIDTH / 2, y) for x in POLES.values()]
        words = " · ".join(dict.fromkeys(relations[side] for side in ("head", "tail") if side in relations))
        marks += [
            _dot("shared", WIDTH / 2, y, 5),
            _text(WIDTH / 2, y - 9, relations["entity"], ""),
            _text(WIDTH / 2, y + 18, words, "relation"),
        ]
    for side, x in POLES.items():
        marks += [_dot("pole", x, middle, 8), _text(x, middle + 26, context[side], "end", longest=26)]
    title = f"{context['head']} — {context['relation']} → {context['tail']}"
    marks.append(_text(WIDTH / 2, 24, title, "end", longest=120))
    return _picture(height + ROW_HEIGHT, lines + marks, title)


def explanation_svg(explanation: dict[str, Any]) -> str:
    """Draw the reasons for an answer: paths from head to tail, what the tail shares, and the reference it resembles."""

    def label(entity: str) -> str:
        return str(explanation["labels"].get(entity, entity))

    paths = [(rule, path) for rule in explanation["rules"] for path in rule["paths"][:2]][: MOST_ROWS // 2]
    direct = [rule for rule, path in paths if len(path) == 2]
    paths = [(rule, path) for rule, path in paths if len(path) > 2]
    shared = explanation["shared"][: MOST_ROWS // 2]
    height = (2 * max(2, len(paths), len(shared)) + 2) * ROW_HEIGHT
    middle = height / 2 + ROW_HEIGHT
    left, right = POLES["head"] - 280, POLES["tail"]
    lines = [_line("target", left, middle, right, middle)]
    marks = []
    rows = _spread(len(paths) + len(paths) % 2, height)  # an even number of them: the middle is the answer's own
    for (rule, path), y in zip(paths, rows, strict=False):
        step = (right - left) / (len(path) - 1)
        places = [(left + step * i, middle if i in (0, len(path) - 1) else y) for i in range(len(path))]
        for (x1, y1), (x2, y2), kind in zip(places, places[1:], rule["kinds"], strict=False):
            lines.append(_line("shared-edge", x1, y1, x2, y2))
            marks.append(_text((x1 + x2) / 2, (y1 + 2 * y2) / 3 if y2 == y else (2 * y1 + y2) / 3, kind, "relation"))
        for (x, _), entity in zip(places[1:-1], path[1:-1], strict=True):
            marks += [_dot("shared", x, y, 5), _text(x, y - 9, label(entity), "", longest=30)]
        support = f"{rule['support']} of {rule['references']} references"
        marks.append(_text((left + right) / 2, y + 18, support, "relation"))
    words = [f"{rule['kinds'][0]} ({rule['support']} of {rule['references']} references)" for rule in direct]
    marks += [_text((left + right) / 2, middle - 6 - 14 * i, text, "relation") for i, text in enumerate(words)]
    x, gap, anchor = OUTER["tail"]
    for found, y in zip(shared, _spread(len(shared), height), strict=True):
        lines.append(_line("edge", right, middle, x, y))
        support = f"{found['relation']}, as with {found['support']} of {found['references']} references"
        marks += [
            _dot("dot", x, y, 3),
            _text(x + gap, y - 1, label(found["entity"]), "", anchor),
            _text(x + gap, y + 12, support, "relation", anchor),
        ]
    similar, below = explanation["similar"], height + 2 * ROW_HEIGHT
    lines.append(_line("edge", left, below, right, below))
    marks.append(_text((left + right) / 2, below - 8, "the most similar reference", "relation"))
    for side, at in (("head", left), ("tail", right)):
        marks += [_dot("pole", at, middle, 8), _text(at, middle + 26, label(explanation[side]), "end", longest=26)]
        likeness = f"{similar[f'{side}_similarity']:.0%} alike"
        marks += [
            _dot("dot", at, below, 6),
            _text(at, below + 22, label(similar[side]), "", longest=36),
            _text(at, below + 36, likeness, "relation"),
        ]
    title = f"{label(explanation['head'])} — {explanation['relation']} → {label(explanation['tail'])}"
    if explanation["confidence"] is not None:
        title += f" ({explanation['confidence']:.0%})"
    marks.append(_text(WIDTH / 2, 24, title, "end", longest=120))
    return _picture(below + 2 * ROW_HEIGHT, lines + marks, title)


def _picture(height: float, parts: list[str], title: str = "") -> str:
    named = f"<title>{escape(CONTROL.sub(' ', title))}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">{named}'
        f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def _spread(rows: int, height: float) -> list[float]:
    """Evenly spaced places for some rows, below the title."""
    return [2 * ROW_HEIGHT + (height - 2 * ROW_HEIGHT) * (i + 0.5) / rows for i in range(rows)]


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _dot(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle", longest: int = 44) -> str:
    text = CONTROL.sub("\ufffd", text)  # XML has no control characters
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(short)}</text>'


def curves_svg(history: list[dict[str, Any]]) -> str:
    """Draw the course of a training: the loss, and MRR on dev, each over the steps."""
    width, height = WIDTH / 2, 360
    panels = [("loss", {"loss": [entry["loss"] for entry in history]})]
    names = [name for name in history[0]["dev"] if name != "mean"] if history else []
    panels.append(("MRR on dev", {name: [entry["dev"][name] for entry in history] for name in names}))
    steps = [entry["step"] for entry in history]
    parts = []
    for number, (title, curves) in enumerate(panels):
        left, right, top, bottom = number * width + 60, (number + 1) * width - 70, 50, height - 40
        highest = max((value for values in curves.values() for value in values), default=1.0) or 1.0
        parts += [
            _line("edge", left, bottom, right, bottom),
            _line("edge", left, top, left, bottom),
            _text((left + right) / 2, 24, title, "end"),
            _text(left - 6, top + 4, f"{highest:.3g}", "relation", "end"),
            _text(left - 6, bottom + 4, "0", "relation", "end"),
            _text(right, bottom + 18, f"step {steps[-1]:,}" if steps else "", "relation", "end"),
        ]
        for curve, (name, values) in enumerate(curves.items()):
            places = [
                (left + (right - left) * step / steps[-1], bottom - (bottom - top) * value / highest)
                for step, value in zip(steps, values, strict=True)
            ]
            color = ("#0969da", "#2da44e", "#d1242f", "#8250df", "#bf8700")[curve % 5]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
            if places:
                label = f"{name} {values[-1]:.3f}"
                parts.append(_text(places[-1][0] + 6, places[-1][1] + 4, label, "relation", "start"))
    return _picture(height, parts)
