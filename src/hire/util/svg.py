"""Pictures as SVG text, without a drawing library."""

from __future__ import annotations

import re
from html import escape

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ROW_HEIGHT = 34
WIDTH = 1200

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


def picture(height: float, parts: list[str], title: str = "") -> str:
    """A complete picture from its parts; all pictures have the same width."""
    named = f"<title>{escape(CONTROL.sub(' ', title))}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">{named}'
        f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A line of a CSS class."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def dot(kind: str, x: float, y: float, radius: float) -> str:
    """A filled circle of a CSS class."""
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'


def text(x: float, y: float, text: str, kind: str, anchor: str = "middle", longest: int = 44) -> str:
    """A text of a CSS class, truncated if it is too long."""
    text = CONTROL.sub("\ufffd", text)  # XML has no control characters
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(short)}</text>'


def spread(rows: int, height: float) -> list[float]:
    """Evenly spaced y coordinates of some rows, below the title."""
    return [2 * ROW_HEIGHT + (height - 2 * ROW_HEIGHT) * (i + 0.5) / rows for i in range(rows)]
