"""Pictures as SVG text, without a drawing library."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import escape

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # what XML has not, and what is not seen
PARTS = re.compile(r"[^\s_/:;,.|-]*[\s_/:;,.|-]*")  # of a name, which may begin a new line
ROW_HEIGHT = 34
WIDTH = 1200
SIZES = {"end": 14, "relation": 11}  # font sizes of CSS classes; others have 12
LINE_HEIGHT = 1.3  # of font sizes
BOLD = 1.15  # how much wider bold type is
NARROWEST = 0.6  # of the widths that characters are taken to have, in font sizes
WIDE = "mw@%—→…"  # characters that are wider than most, as capitals are

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; stroke: #fff; stroke-width: 4px; paint-order: stroke; }
  .end { font-weight: 700; font-size: 14px; }
  .edge { stroke: #c4ccd5; } .shared-edge { stroke: #2da44e; stroke-width: 1.6; }
  .target { stroke: #d1242f; stroke-width: 2.2; stroke-dasharray: 6 4; }
  .dot { fill: #57606a; } .shared { fill: #2da44e; } .pole { fill: #0969da; }
  .relation { fill: #6e7781; font-size: 11px; }
  /* Evidence for and against, and such as no reference has: told apart by their strokes, too, not by color alone. */
  polyline { fill: none; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
  polyline.for { stroke: #2da44e; } circle.for { fill: #2da44e; }
  polyline.against { stroke: #bc4c00; stroke-dasharray: 7 5; } circle.against, text.against { fill: #bc4c00; }
  polyline.unsupported { stroke: #8c959f; stroke-dasharray: 0.1 5; } circle.unsupported { fill: #8c959f; }
  polyline.asked { stroke: #0969da; }
  .paper { fill: #fff; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } text { fill: #e6edf3; stroke: #0d1117; } .relation { fill: #9da7b3; }
    .edge { stroke: #3d444d; } text.against { fill: #f0883e; }
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


def polyline(kind: str, points: list[tuple[float, float]]) -> str:
    """A line of a CSS class through some points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'


@dataclass(frozen=True)
class Label:
    """A text of a CSS class in as many lines as it needs to fit a width; see `Label.of`."""

    text: str
    lines: tuple[str, ...]
    kind: str = ""

    @classmethod
    def of(cls, text: str, width: float, kind: str = "", most: int = 3) -> Label:
        """Wrap a text; where it would need too many lines, its middle is left out, and a tooltip has all of it."""
        text = CONTROL.sub("\ufffd", text)
        most_ems = width / _size(kind) / (BOLD if kind == "end" else 1)
        lines = _wrap(text, most_ems)
        kept = min(len(text), int(most * most_ems / NARROWEST) + 1)
        while len(lines) > most:
            kept -= 1
            lines = _wrap(f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}", most_ems)
        return cls(text, tuple(lines), kind)

    @property
    def height(self) -> float:
        """Of all lines together."""
        return LINE_HEIGHT * _size(self.kind) * len(self.lines)

    def draw(self, x: float, top: float, anchor: str = "middle") -> list[str]:
        """The lines below one another, the first one below a y coordinate."""
        size = _size(self.kind)
        complete = "".join("".join(self.lines).split()) == "".join(self.text.split())
        tooltip = "" if complete else f"<title>{escape(self.text)}</title>"
        return [
            f'<text class="{self.kind}" x="{x:g}" y="{top + size * (LINE_HEIGHT * i + 1):g}" text-anchor="{anchor}">'
            f"{escape(line)}{tooltip}</text>"
            for i, line in enumerate(self.lines)
        ]


def _size(kind: str) -> float:
    """The font size of a CSS class, as in STYLE."""
    return SIZES.get(kind.split()[0] if kind else "", 12)


def _wrap(text: str, most_ems: float) -> list[str]:
    """Lines of at most a width, broken behind spaces and punctuation if possible."""
    lines, line = [], ""
    for part in PARTS.findall(text):
        if _ems(line + part.rstrip()) > most_ems:
            lines.append(line)
            line = ""
        for character in part:
            if _ems(line + character) > most_ems and not character.isspace():
                lines.append(line)
                line = ""
            line += character
    return [line.strip() for line in (*lines, line) if line.strip()]


def _ems(text: str) -> float:
    """About how wide a text is, in font sizes; rather too much than too little."""
    return sum(map(_character_ems, text))


def _character_ems(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.8 if character in WIDE or character.isupper() else NARROWEST


def spread(rows: int, height: float) -> list[float]:
    """Evenly spaced y coordinates of some rows, below the title."""
    return [2 * ROW_HEIGHT + (height - 2 * ROW_HEIGHT) * (i + 0.5) / rows for i in range(rows)]
