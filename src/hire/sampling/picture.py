"""The context of a triplet as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from hire.data.dataset import FewShotDataset
from hire.sampling.contexts import HEAD, TAIL, ContextSampler
from hire.util.svg import ROW_HEIGHT, WIDTH, dot, line, picture, spread, text

POLES = {"head": 440, "tail": 760}  # x coordinates of head and tail
OUTER = {"head": (300, -10, "end"), "tail": (900, 10, "start")}  # neighbors of one side only: x, text offset, anchor
MAX_ROWS = 14


def describe_context(dataset: FewShotDataset, pair: Any, relation: Any) -> dict[str, Any]:
    """The context of one pair [1, 2] and relation [1], by name."""
    graph = dataset.graph
    context = ContextSampler(graph).true(pair, relation)
    parts = context.relations, context.entities
    tuples = {
        name: [
            {"relation": graph.relation_name(r), "entity": graph.label(e), "number": e}
            for r, e in zip(*(part[0, side][context.mask[0, side]].tolist() for part in parts), strict=True)
        ]
        for name, side in (("head", HEAD), ("tail", TAIL))
    }
    of_head, of_tail = (context.entities[0, side][context.mask[0, side]].numpy() for side in (HEAD, TAIL))
    return {
        "head": graph.label(int(pair[0, 0])),
        "relation": graph.relations[int(relation[0])],
        "tail": graph.label(int(pair[0, 1])),
        "neighbors": tuples,
        "shared": [int(entity) for entity in np.intersect1d(of_head, of_tail)],  # ids: labels may be the same
    }


def context_svg(context: dict[str, Any]) -> str:
    """Draw a triplet's context: its head on the left, its tail on the right, shared neighbors in between."""
    shared = set(context["shared"])
    between: dict[int, dict[str, str]] = {}
    outer: dict[str, list[dict[str, Any]]] = {"head": [], "tail": []}
    for side in ("head", "tail"):
        for found in context["neighbors"][side]:
            if found["number"] in shared:
                between.setdefault(found["number"], {"entity": found["entity"]}).setdefault(side, found["relation"])
            else:
                outer[side].append(found)
    rows = max(2, min(MAX_ROWS, max(len(outer["head"]), len(outer["tail"]), 2 * len(between))))
    height = (rows + 2) * ROW_HEIGHT
    middle = height / 2 + ROW_HEIGHT / 2
    lines = [line("target", POLES["head"], middle, POLES["tail"], middle)]
    marks = []
    for side, (x, gap, anchor) in OUTER.items():
        shown = outer[side]
        if len(shown) > MAX_ROWS:
            rest = {"relation": "", "entity": f"… {len(shown) - MAX_ROWS + 1} more"}
            shown = [*shown[: MAX_ROWS - 1], rest]
        for found, y in zip(shown, spread(len(shown), height), strict=True):
            lines.append(line("edge", POLES[side], middle, x, y))
            marks += [
                dot("dot", x, y, 3),
                text(x + gap, y - 1, found["entity"], "", anchor),
                text(x + gap, y + 12, found["relation"], "relation", anchor),
            ]
    heights = spread(min(len(between), MAX_ROWS // 2), height)
    for relations, y in zip(between.values(), heights, strict=False):
        lines += [line("shared-edge", x, middle, WIDTH / 2, y) for x in POLES.values()]
        words = " · ".join(dict.fromkeys(relations[side] for side in ("head", "tail") if side in relations))
        marks += [
            dot("shared", WIDTH / 2, y, 5),
            text(WIDTH / 2, y - 9, relations["entity"], ""),
            text(WIDTH / 2, y + 18, words, "relation"),
        ]
    for side, x in POLES.items():
        marks += [dot("pole", x, middle, 8), text(x, middle + 26, context[side], "end", longest=26)]
    title = f"{context['head']} — {context['relation']} → {context['tail']}"
    marks.append(text(WIDTH / 2, 24, title, "end", longest=120))
    return picture(height + ROW_HEIGHT, lines + marks, title)
