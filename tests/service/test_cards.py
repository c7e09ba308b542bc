from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.service.conftest import Desk


def everything(desk: Desk, **query: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = desk.get("/cards", limit=17, **query, **({"cursor": cursor} if cursor else {}))
        found += page["cards"]
        cursor = page["next"]
        if cursor is None:
            assert len(found) == page["total"]
            return found


@pytest.mark.parametrize("order", ["useful", "confident", "head", "audit"])
def test_pages_hold_every_card_once(desk: Desk, order: str) -> None:
    heads = [card["head"]["id"] for card in everything(desk, order=order)]
    assert len(heads) == len(set(heads)) == 135


def test_orders(desk: Desk) -> None:
    confidences = [card["confidence"] for card in everything(desk, order="confident")]
    assert confidences == sorted(confidences, reverse=True)
    heads = [card["head"]["id"] for card in everything(desk, order="head")]
    assert heads == sorted(heads)
    assert [card["head"]["id"] for card in everything(desk, order="audit")] != heads
    useful = everything(desk, order="useful")
    doubt = [abs(card["confidence"] - 0.5) for card in useful]
    assert doubt[0] == min(doubt) and sum(doubt[:20]) < sum(doubt[-20:])


def test_useful_cards_are_of_many_kinds(desk: Desk) -> None:
    useful = everything(desk, order="useful")
    doubtful = sorted(useful, key=lambda card: abs(card["confidence"] - 0.5))
    most = [max(Counter(card["tail"]["id"] for card in some[:15]).values()) for some in (useful, doubtful)]
    assert most[0] <= most[1]
    assert len({card["tail"]["id"] for card in useful[:15]}) >= len({card["tail"]["id"] for card in doubtful[:15]})


def test_filters_and_facets_agree(desk: Desk) -> None:
    for card, verdict in zip(desk.cards(order="confident"), ("accept", "unsure", "no_tail"), strict=False):
        desk.judge(card, verdict)
    facets = desk.get("/facets", state="any")
    assert {each["value"]: each["count"] for each in facets["states"]} == {
        "open": 132,
        "accepted": 1,
        "unsure": 1,
        "no_tail": 1,
    }
    for each in facets["states"]:
        assert len(everything(desk, state=each["value"])) == each["count"]
    for each in facets["confidence"]:
        bounds = {"min_confidence": each["low"]} | ({} if each["high"] == 1 else {"max_confidence": each["high"]})
        some = everything(desk, state="any", **bounds)
        assert len(some) == each["count"]
    narrowed = desk.get("/facets", state="any", min_confidence=0.5)
    assert narrowed["confidence"] == facets["confidence"]  # a facet ignores its own filter
    assert narrowed["total"] == sum(each["count"] for each in facets["confidence"] if each["low"] >= 0.5)
    assert {card["head"]["id"] for card in everything(desk, q="TISS")} == {"organ_or_tissue_function", "tissue"}


def test_known_tails_are_told(desk: Desk) -> None:
    card = desk.get("/cards/one", head="virus")
    assert [each["id"] for each in card["known"]] == ["organism"]
    assert "organism" not in [each["tail"]["id"] for each in card["suggestions"]]
    assert desk.client.get(f"{desk.path}/cards/one", params={"head": "nobody"}).status_code == 422
