"""What speaks for and against an answer as a picture."""

from __future__ import annotations

from typing import Any

from hire.util.svg import Label, dot, line, picture, polyline

LEFT, RIGHT, END = 160, 790, 1190  # x coordinates of the head, of the tail, and of the end of what the tail shares
BEND = 50  # width of the strips beside head and tail in which lines lead to their rows
GAP = 18  # between rows
MAX_ROWS = 7  # of rules, and of shared facts


def explanation_svg(explanation: dict[str, Any]) -> str:
    """Draw paths from head to tail, facts that the tail shares with reference tails, and the most similar reference.

    What speaks for the answer comes first. Every label has its own part of a row, so that none covers another.
    """
    drawing = _Drawing(explanation["labels"])
    poles = drawing.poles(explanation)
    below = poles + 2 * GAP
    ends = [below]
    for rule in shown(explanation["rules"], MAX_ROWS):
        ends.append(drawing.rule(rule, poles, ends[-1]))
    shared_end = below
    for fact in shown(explanation["shared"], MAX_ROWS):
        shared_end = drawing.shared(fact, poles, shared_end)
    bottom = drawing.similar(explanation["similar"], max(ends[-1], shared_end) + GAP)
    title = f"{drawing.label(explanation['head'])} — {explanation['relation']} → {drawing.label(explanation['tail'])}"
    return picture(bottom + GAP, drawing.lines + drawing.marks, title)


def shown(pieces: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The first pieces of evidence, the strongest one against the answer among them if there is any."""
    against = [piece for piece in pieces if not piece["for"]]
    first = [piece for piece in pieces if piece["for"]][: most - min(1, len(against))]
    return first + against[: most - len(first)]


def role(piece: dict[str, Any]) -> str:
    """The CSS class of a piece of evidence."""
    if not piece["for"]:
        return "against"
    return "for" if piece["support"] else "unsupported"


def _words(piece: dict[str, Any]) -> str:
    """Like `+0.50: linked as 2 of 3 references are`."""
    return f"{piece['weight']:+.2f}: {piece['words']}"


class _Drawing:
    """Lines, and marks that are drawn over them."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.lines: list[str] = []
        self.marks: list[str] = []

    def label(self, entity: str) -> str:
        """The name to show of an entity."""
        return str(self.labels.get(entity, entity))

    def poles(self, explanation: dict[str, Any]) -> float:
        """Head and tail, and what is asked between them; returns their y coordinate."""
        sure = "" if explanation["confidence"] is None else f" ({explanation['confidence']:.0%})"
        width = (RIGHT - LEFT) / 2 - 10
        labels = [
            Label.of(self.label(explanation["head"]), width, "end"),
            Label.of(f"{explanation['relation']}{sure}", width, "relation"),
            Label.of(self.label(explanation["tail"]), width, "end"),
        ]
        y = GAP + max(label.height for label in labels) + GAP
        for label, x in zip(labels, (LEFT, (LEFT + RIGHT) / 2, RIGHT), strict=True):
            self.marks += label.draw(x, y - GAP - label.height)
        self.lines.append(polyline("asked", [(LEFT, y), (RIGHT, y)]))
        self.marks += [dot("pole", x, y, 8) for x in (LEFT, RIGHT)]
        return y

    def rule(self, rule: dict[str, Any], poles: float, top: float) -> float:
        """The first path of a rule in a row of its own; returns where the row ends."""
        path, names = rule["paths"][0], rule["kinds"]
        start, step = LEFT + BEND, (RIGHT - LEFT - 2 * BEND) / len(names)
        over = [Label.of(name, step - 10, "relation") for name in names]
        under = [Label.of(self.label(entity), step - 10) for entity in path[1:-1]]
        y = top + max(label.height for label in over) + 4
        self.lines.append(polyline(role(rule), [(LEFT, poles), (start, y), (RIGHT - BEND, y), (RIGHT, poles)]))
        for i, label in enumerate(over):
            self.marks += label.draw(start + step * (i + 0.5), y - 4 - label.height)
        for i, label in enumerate(under, 1):
            self.marks += [dot(role(rule), start + step * i, y, 5), *label.draw(start + step * i, y + 8)]
        more = f"; {len(rule['paths'])} such paths" if len(rule["paths"]) > 1 else ""
        words = Label.of(f"{_words(rule)}{more}", RIGHT - LEFT - 2 * BEND, f"relation {role(rule)}")
        bottom = y + 8 + max((label.height for label in under), default=0)
        self.marks += words.draw((LEFT + RIGHT) / 2, bottom)
        return bottom + words.height + GAP

    def shared(self, fact: dict[str, Any], poles: float, top: float) -> float:
        """A fact that the tail shares with reference tails; returns where its row ends."""
        x = RIGHT + BEND
        width = END - x - 20
        labels = [
            Label.of(fact["relation"], width, "relation"),
            Label.of(self.label(fact["entity"]), width),
            Label.of(_words(fact), width, f"relation {role(fact)}"),
        ]
        y = top + labels[0].height + labels[1].height / 2
        self.lines.append(polyline(role(fact), [(RIGHT, poles), (x - 10, y), (x, y)]))
        self.marks.append(dot(role(fact), x, y, 4))
        for label in labels:
            self.marks += label.draw(x + 12, top, "start")
            top += label.height
        return top + GAP

    def similar(self, similar: dict[str, Any], top: float) -> float:
        """The most similar reference, below all else; returns where it ends."""
        middle = (LEFT + RIGHT) / 2
        width = (RIGHT - LEFT) / 2 - 10
        over = Label.of("the most similar reference", width, "relation")
        y = top + over.height + 4
        self.lines.append(line("edge", LEFT, y, RIGHT, y))
        self.marks += over.draw(middle, top)
        ends = []
        for side, x in (("head", LEFT), ("tail", RIGHT)):
            name = Label.of(self.label(similar[side]), width)
            alike = Label.of(f"{similar[f'{side}_similarity']:.0%} alike", width, "relation")
            self.marks += [dot("dot", x, y, 6), *name.draw(x, y + 10), *alike.draw(x, y + 10 + name.height)]
            ends.append(y + 10 + name.height + alike.height)
        return max(ends)
