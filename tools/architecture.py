"""Draws docs/images/architecture.svg: the layers of the import rules, and which of them import which in fact."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grimp

from hire.util.svg import WIDTH, dot, line, picture, text

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hire"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

ROW = 46  # height
TOP, LEFT = 36, 160  # where the cells begin


@dataclass(frozen=True)
class Layer:
    """Packages or modules of hire that are side by side: none imports another."""

    names: tuple[str, ...]

    @property
    def summary(self) -> str:
        """How its first package describes itself, up to the first full stop or semicolon."""
        package = SOURCE / self.names[0] / "__init__.py"
        file = package if package.exists() else SOURCE / f"{self.names[0]}.py"
        described = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        return re.split(r"[.;]\s|\.$", described, maxsplit=1)[0].replace("`", "")


def layers() -> list[Layer]:
    """The layers of the import rules in pyproject.toml, highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    rule = next(contract for contract in contracts if contract["type"] == "layers")
    named = [tuple(re.findall(r"\w+", row)) for row in rule["layers"]]
    return [Layer(names) for names in named if names != ("__main__",)]


def imports(rows: list[Layer]) -> set[tuple[int, int]]:
    """Which layer imports which, by their places in the list."""
    places = {f"hire.{name}": place for place, row in enumerate(rows) for name in row.names}
    graph = grimp.build_graph("hire", cache_dir=None)
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = [".".join(name.split(".")[:2]) for name in (module, imported)]
            if all(name in places for name in pair):
                found.add((places[pair[0]], places[pair[1]]))
    return {(above, below) for above, below in found if above != below}


def draw() -> str:
    """The picture: a row and a column for each layer, a dot where the layer of the row imports that of the column."""
    rows = layers()
    edges = imports(rows)
    cell = partial(_cell, columns=len(rows))
    parts = [text(WIDTH - 20, TOP, "from a layer to the right, then down: a dot is an import", "relation", "end", 60)]
    for place, layer in enumerate(rows):
        x, y = cell(place, place)
        right = max((below for above, below in edges if above == place), default=place)
        top = min((above for above, below in edges if below == place), default=place)
        parts += [line("edge", x, y, *cell(place, right)), line("edge", *cell(top, place), x, y)]
        parts += [text(x - 18, y - 2, ", ".join(layer.names), "end", "end")]
        parts += [text(x - 18, y + 14, layer.summary, "relation", "end", longest=120)]
    parts += [dot("pole", *cell(place, place), 9) for place in range(len(rows))]
    parts += [dot("shared", *cell(above, below), 5) for above, below in sorted(edges)]
    return picture(TOP + ROW * (len(rows) + 0.5), parts, "The layers of hire, and which of them import which")


def _cell(row: int, column: int, columns: int) -> tuple[float, float]:
    """The middle of a cell."""
    return LEFT + (WIDTH - LEFT) * (column + 0.5) / columns, TOP + ROW * (row + 0.5)


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
