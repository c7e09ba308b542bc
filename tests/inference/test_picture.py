from __future__ import annotations

import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from hire.inference.picture import MAX_ROWS, explanation_svg
from hire.util.svg import SIZES

SVG = "{http://www.w3.org/2000/svg}"
LONG = "concept:politicianorganization:the_very_long_name_of_an_organization_of_politicians_and_their_friends"
NASTY = ["x" * 400, "W" * 90, LONG, "a b " * 60, "北京大学人民医院" * 12, "<&>\x00\t\n", "", "Ann"]
Box = tuple[float, float, float, float, str]


def explanation(
    rules: list[dict[str, Any]], shared: list[dict[str, Any]], names: list[str] | None = None
) -> dict[str, Any]:
    names = names or ["Ann", "Bob", "Cid", "Dan"]
    return {
        **{"relation": names[2 % len(names)], "head": "a", "tail": "b", "confidence": 0.42, "score": 1.0},
        "rules": rules,
        "shared": shared,
        "similar": {"head": "c", "tail": "d", "head_similarity": 0.5, "tail_similarity": 1.0},
        "labels": dict(zip("abcd", names * 4, strict=False)),
    }


def rule(kinds: list[str], path: list[str], weight: float = 0.5, support: int = 1, paths: int = 1) -> dict[str, Any]:
    return {"kinds": kinds, "paths": [path] * paths, **metrics("linked as", weight, support)}


def fact(relation: str, entity: str, weight: float = 0.5, support: int = 1) -> dict[str, Any]:
    return {"relation": relation, "entity": entity, **metrics("shared with", weight, support)}


def metrics(words: str, weight: float, support: int) -> dict[str, Any]:
    against = "" if weight > 0 else "speaks against: "
    return {
        "words": f"{against}{words} {support} of 2 references",
        **{"for": weight > 0, "weight": weight, "support": support, "references": 2},
    }


def drawn(content: dict[str, Any]) -> tuple[list[str], list[str]]:
    """All texts, and the classes of all lines that stand for evidence."""
    root = ElementTree.fromstring(explanation_svg(content))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    return texts, [line.get("class", "") for line in root.iter(f"{SVG}polyline") if line.get("class") != "asked"]


def boxes(svg: str) -> tuple[list[Box], tuple[float, float]]:
    """About where each text is: left, top, right, bottom; and the size of the picture."""
    root = ElementTree.fromstring(svg)
    found = []
    for element in root.iter(f"{SVG}text"):
        words = element.text or ""
        size = SIZES.get((element.get("class") or "").split(" ")[0], 12)
        width = 0.6 * size * len(words)
        x, y = float(element.get("x", "")), float(element.get("y", ""))
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[element.get("text-anchor", "")]
        found.append((left, y - 0.8 * size, left + width, y + 0.2 * size, words))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    return found, (width, height)


def test_rules_and_shared_facts_are_drawn_each_in_its_row() -> None:
    rules = [
        rule(["plays_for", "led_by"], ["a", "x & y", "b"], paths=3),
        rule(["r", "s", "t⁻¹"], ["a", "u", "v", "b"]),
        rule(["knows"], ["a", "b"]),
    ]
    texts, classes = drawn(explanation(rules, [fact("works_at", "gym")]))
    assert {"Ann", "Bob", "Cid (42%)", "x & y", "u", "v", "t⁻¹", "knows", "works_at", "gym", "50% alike"} <= set(texts)
    assert "+0.50: linked as 1 of 2 references; 3 such paths" in texts
    assert classes == ["for"] * 4
    assert drawn(explanation([], []))[1] == []


def test_what_speaks_against_is_always_drawn_in_other_words_and_another_color() -> None:
    rules = [*(rule([f"r{i}"], ["a", "b"], 2 - i / 10) for i in range(9)), rule(["no"], ["a", "b"], -0.7, 0)]
    shared = [*(fact(f"s{i}", "e", 2 - i / 10) for i in range(9)), fact("never", "e", -0.5)]
    texts, classes = drawn(explanation(rules, shared))
    assert classes == 2 * [*["for"] * (MAX_ROWS - 1), "against"]
    assert {"no", "never", "-0.70: speaks against: linked as 0 of 2 references"} <= set(texts) and "r6" not in texts
    assert drawn(explanation([rule(["no"], ["a", "b"], -0.7)] * 9, []))[1] == ["against"] * MAX_ROWS


def test_what_no_reference_has_is_not_drawn_like_what_references_have() -> None:
    assert drawn(explanation([rule(["r"], ["a", "b"], support=0)], []))[1] == ["unsupported"]
    style = explanation_svg(explanation([], []))
    strokes = [re.search(rf"polyline\.{kind} {{(.*?)}}", style) for kind in ("for", "against", "unsupported")]
    dashes = ["stroke-dasharray" in found[1] for found in strokes if found]
    assert dashes == [False, True, True]


@pytest.mark.parametrize("name", NASTY)
def test_no_label_covers_another_or_leaves_the_picture(name: str) -> None:
    rules = [
        *(rule([name] * 3, ["a", name, f"{name}2", "b"], 1 - i / 20, i % 3, 9) for i in range(4)),
        *(rule([name] * 2, ["a", name, "b"], 0.5, i % 3) for i in range(4)),
        *(rule([name], ["a", "b"], -0.5) for _ in range(4)),
    ]
    shared = [fact(name, f"{name}{i}", 1 - i / 5) for i in range(12)]
    svg = explanation_svg(explanation(rules, shared, [name, f"{name} 2", name, LONG]))
    found, (width, height) = boxes(svg)
    assert len(found) > 30
    for left, top, right, bottom, words in found:
        assert left >= 0 and top >= 0 and right <= width and bottom <= height, words
    for one, other in combinations(found, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)
