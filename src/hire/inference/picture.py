"""The reasons for an answer as a picture."""

from __future__ import annotations

from typing import Any

from hire.sampling.picture import MOST_ROWS, OUTER, POLES
from hire.util.svg import ROW_HEIGHT, WIDTH, dot, line, picture, spread, text


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
    lines = [line("target", left, middle, right, middle)]
    marks = []
    rows = spread(len(paths) + len(paths) % 2, height)  # an even number of them: the middle is the answer's own
    for (rule, path), y in zip(paths, rows, strict=False):
        step = (right - left) / (len(path) - 1)
        places = [(left + step * i, middle if i in (0, len(path) - 1) else y) for i in range(len(path))]
        for (x1, y1), (x2, y2), kind in zip(places, places[1:], rule["kinds"], strict=False):
            lines.append(line("shared-edge", x1, y1, x2, y2))
            marks.append(text((x1 + x2) / 2, (y1 + 2 * y2) / 3 if y2 == y else (2 * y1 + y2) / 3, kind, "relation"))
        for (x, _), entity in zip(places[1:-1], path[1:-1], strict=True):
            marks += [dot("shared", x, y, 5), text(x, y - 9, label(entity), "", longest=30)]
        support = f"{rule['support']} of {rule['references']} references"
        marks.append(text((left + right) / 2, y + 18, support, "relation"))
    words = [f"{rule['kinds'][0]} ({rule['support']} of {rule['references']} references)" for rule in direct]
    marks += [text((left + right) / 2, middle - 6 - 14 * i, word, "relation") for i, word in enumerate(words)]
    x, gap, anchor = OUTER["tail"]
    for found, y in zip(shared, spread(len(shared), height), strict=True):
        lines.append(line("edge", right, middle, x, y))
        support = f"{found['relation']}, as with {found['support']} of {found['references']} references"
        marks += [
            dot("dot", x, y, 3),
            text(x + gap, y - 1, label(found["entity"]), "", anchor),
            text(x + gap, y + 12, support, "relation", anchor),
        ]
    similar, below = explanation["similar"], height + 2 * ROW_HEIGHT
    lines.append(line("edge", left, below, right, below))
    marks.append(text((left + right) / 2, below - 8, "the most similar reference", "relation"))
    for side, at in (("head", left), ("tail", right)):
        marks += [dot("pole", at, middle, 8), text(at, middle + 26, label(explanation[side]), "end", longest=26)]
        likeness = f"{similar[f'{side}_similarity']:.0%} alike"
        marks += [
            dot("dot", at, below, 6),
            text(at, below + 22, label(similar[side]), "", longest=36),
            text(at, below + 36, likeness, "relation"),
        ]
    title = f"{label(explanation['head'])} — {explanation['relation']} → {label(explanation['tail'])}"
    if explanation["confidence"] is not None:
        title += f" ({explanation['confidence']:.0%})"
    marks.append(text(WIDTH / 2, 24, title, "end", longest=120))
    return picture(below + 2 * ROW_HEIGHT, lines + marks, title)
