"""Pictures as SVG text: no library, no browser needed to make them, any browser to see them."""

from __future__ import annotations

from html import escape
from typing import Any

ROW_HEIGHT = 26
WIDTH = 1000
CENTRES = {"head": 330, "shared": 500, "tail": 670}
MOST_ROWS = 14

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .end { font-weight: 700; font-size: 14px; }
  .edge { stroke: #b6c2cf; fill: none; }
  .shared-edge { stroke: #2da44e; stroke-width: 1.6; fill: none; }
  .target { stroke: #d1242f; stroke-width: 2.2; stroke-dasharray: 6 4; }
  .dot { fill: #57606a; } .shared { fill: #2da44e; } .pole { fill: #0969da; }
  .relation { fill: #57606a; font-size: 11px; }
  .paper { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } text { fill: #e6edf3; } .relation { fill: #9da7b3; } .edge { stroke: #3d444d; }
  }
"""


def context_svg(context: dict[str, Any]) -> str:
    """Draw a triplet's context: its head on the left, its tail on the right, what they share between them."""
    shared = set(context["shared"])
    between: dict[str, dict[str, str]] = {}
    outer: dict[str, list[dict[str, str]]] = {"head": [], "tail": []}
    for side in ("head", "tail"):
        for found in context["neighbors"][side]:
            if found["entity"] in shared:
                between.setdefault(found["entity"], {}).setdefault(side, found["relation"])
            else:
                outer[side].append(found)
    rows = max(1, min(MOST_ROWS, max(len(outer["head"]), len(outer["tail"]), 2 * len(between))))
    height = (rows + 3) * ROW_HEIGHT
    middle = height // 2 + ROW_HEIGHT // 2
    poles = {"head": (CENTRES["head"], middle), "tail": (CENTRES["tail"], middle)}
    parts = [_line("target", *poles["head"], *poles["tail"])]
    for side, x in (("head", 150), ("tail", WIDTH - 150)):
        for (i, found), y in zip(enumerate(outer[side]), _spread(len(outer[side]), height), strict=False):
            if i == MOST_ROWS - 1 and len(outer[side]) > MOST_ROWS:
                found = {"relation": "", "entity": f"… {len(outer[side]) - i} more"}
            parts += [
                _line("edge", *poles[side], x, y),
                _dot("dot", x, y, 3),
                _text(x, y - 6, found["entity"], ""),
                _text(x, y + 12, found["relation"], "relation"),
            ]
    for (entity, relations), y in zip(between.items(), _spread(len(between), height, MOST_ROWS // 2), strict=False):
        parts += [_line("shared-edge", *poles[side], CENTRES["shared"], y) for side in ("head", "tail")]
        words = " · ".join(dict.fromkeys(relations[side] for side in ("head", "tail") if side in relations))
        parts += [
            _dot("shared", CENTRES["shared"], y, 5),
            _text(CENTRES["shared"], y - 8, entity, ""),
            _text(CENTRES["shared"], y + 16, words, "relation"),
        ]
    for side in ("head", "tail"):
        parts += [_dot("pole", *poles[side], 8), _text(poles[side][0], middle + 26, context[side], "end")]
    title = f"{context['head']} — {context['relation']} → {context['tail']}"
    parts.append(_text(WIDTH // 2, ROW_HEIGHT, title, "end", 120))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + ROW_HEIGHT}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect class="paper" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def _spread(count: int, height: int, most: int = MOST_ROWS) -> list[float]:
    """Evenly spaced places for some rows, below the title."""
    rows = min(count, most)
    return [2 * ROW_HEIGHT + (height - 2 * ROW_HEIGHT) * (i + 0.5) / rows for i in range(rows)]


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _dot(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'


def _text(x: float, y: float, text: str, kind: str, longest: int = 38) -> str:
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{escape(short)}</text>'
