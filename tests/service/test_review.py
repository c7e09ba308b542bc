from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hire.inference.model import TrainedModel
from hire.service.service import Service
from hire.service.store import Store
from tests.service.conftest import Desk, client_of


def test_a_verdict_names_the_pair_that_was_shown(desk: Desk) -> None:
    card = desk.cards()[0]
    other = card["suggestions"][2]["tail"]["id"]
    said = desk.judge(card, "accept", tail=other)
    assert said["entry"]["tail"]["id"] == other and said["entry"]["head"] == card["head"]
    assert said["card"]["state"] == "accepted" and said["card"]["tail"]["id"] == other
    assert said["entry"]["confidence"] == card["suggestions"][2]["confidence"]
    assert said["entry"]["model"].startswith("path weights") and said["entry"]["by"] == "ana"


def test_a_rejected_pair_makes_room_for_the_next_tail(desk: Desk) -> None:
    card = desk.cards()[0]
    tails = [answer["tail"]["id"] for answer in card["suggestions"]]
    for tail, following in zip(tails, [*tails[1:], None], strict=True):
        card = desk.judge(card, "reject")["card"]
        assert {answer["tail"]["id"]: answer["verdict"] for answer in card["suggestions"]}[tail] == "reject"
        assert card["state"] == ("open" if following else "rejected")
        assert following is None or card["tail"]["id"] == following
    assert card["head"]["id"] not in [each["head"]["id"] for each in desk.cards(limit=200)]
    assert not set(tails) & {a["tail"]["id"] for a in desk.get("/answers", head=card["head"]["id"], k=200)["answers"]}


@pytest.mark.parametrize(("verdict", "state"), [("accept", "accepted"), ("unsure", "unsure"), ("no_tail", "no_tail")])
def test_verdicts_close_a_card_and_undo_opens_it_again(desk: Desk, verdict: str, state: str) -> None:
    before = desk.cards()[0]
    said = desk.judge(before, verdict)
    assert said["card"]["state"] == state and said["card"]["version"] == said["entry"]["entry"]
    undone = desk.post(f"{desk.path}/undo", {"entry": said["entry"]["entry"], "by": "ana"})
    assert undone["entry"]["undoes"] == said["entry"]["entry"]
    assert undone["card"] | {"version": 0, "last": None} == before
    again = desk.client.post(f"{desk.path}/undo", json={"entry": said["entry"]["entry"]})
    assert again.status_code == 409 and again.json()["code"] == "conflict"
    assert desk.client.post(f"{desk.path}/undo", json={"entry": undone["entry"]["entry"]}).status_code == 404


def test_thirty_verdicts_are_undone_one_by_one(desk: Desk) -> None:
    before = desk.get("/facets", state="any")
    queue = [card["head"]["id"] for card in desk.cards(order="head", limit=200)]
    made = [
        desk.judge(card, ("accept", "reject", "unsure")[i % 3])["entry"]["entry"]
        for i, card in enumerate(desk.cards(order="head", limit=30))
    ]
    counts = desk.get("")["counts"]
    assert counts["accepted"] == 10 and counts.keys() == {"open", "accepted", "rejected", "unsure", "no_tail", "empty"}
    for entry in reversed(made):
        desk.post(f"{desk.path}/undo", {"entry": entry})
    assert [card["head"]["id"] for card in desk.cards(order="head", limit=200)] == queue
    until = time.monotonic() + 30  # on a slow machine, verdicts may have been learned from before they were undone
    while desk.get("/facets", state="any") != before and time.monotonic() < until:
        time.sleep(0.2)
    assert desk.get("/facets", state="any") == before
    assert desk.get("/history")["total"] == 60


def test_that_no_tail_exists_and_an_accepted_tail_overrule_each_other(desk: Desk) -> None:
    card = desk.cards()[0]
    desk.judge(card, "accept")
    assert desk.judge(card, "no_tail")["card"]["state"] == "no_tail"
    assert desk.get("")["facts"] == 0
    assert desk.judge(card, "accept")["card"]["state"] == "accepted"
    assert desk.get("")["facts"] == 1


def test_others_are_not_overruled_unawares(desk: Desk) -> None:
    card = desk.cards()[0]
    first = desk.judge(card, "accept", version=card["version"], by="ana", client="one")
    refused = desk.judge(card, "reject", 409, version=card["version"], by="bob", client="two")
    assert refused["code"] == "conflict" and refused["conflict"] == first["entry"] and "ana" in refused["detail"]
    same = desk.judge(card, "accept", version=card["version"], by="bob", client="two")
    assert same["entry"] == first["entry"]  # they agree
    forced = desk.judge(card, "reject", version=card["version"], by="bob", client="two", force=True)
    assert forced["entry"]["verdict"] == "reject" and forced["card"]["state"] == "open"
    # The same tab never contradicts itself, however fast it is.
    other = desk.cards(order="head")[1]
    desk.judge(other, "accept", version=0, client="one")
    desk.judge(other, "reject", version=0, client="one")


def test_another_accepted_tail_is_a_conflict_but_another_rejected_one_is_not(desk: Desk) -> None:
    one, two = desk.cards(order="confident")[:2]
    desk.judge(one, "reject", tail=one["suggestions"][1]["tail"]["id"], by="ana", client="one")
    desk.judge(one, "accept", version=0, by="bob", client="two")
    desk.judge(two, "accept", tail=two["suggestions"][1]["tail"]["id"], by="ana", client="one")
    desk.judge(two, "accept", 409, version=0, by="bob", client="two")


def test_no_verdict_of_many_at_once_is_lost(desk: Desk) -> None:
    cards = desk.cards(limit=60)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda card: desk.judge(card, "accept", client=card["head"]["id"]), cards))
    numbers = [said["entry"]["entry"] for said in made]
    assert len(set(numbers)) == 60 and desk.get("")["facts"] == 60
    log = desk.get("/history", limit=100)
    assert {entry["head"]["id"] for entry in log["entries"]} == {card["head"]["id"] for card in cards}


def test_a_verdict_with_the_same_key_is_given_once(desk: Desk) -> None:
    card = desk.cards()[0]
    body = {"head": card["head"]["id"], "tail": card["tail"]["id"], "verdict": "accept"}
    first, again = (desk.post(f"{desk.path}/verdicts", body, idempotency_key="k") for _ in range(2))
    assert first == again and desk.get("/history")["total"] == 1


def test_a_request_that_is_still_carried_out_is_not_begun_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    service: Service = desk.client.app.state.service  # type: ignore[attr-defined]
    real = service.review.confidence

    def slow(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return real(*given)

    monkeypatch.setattr(service.review, "confidence", slow)
    card = desk.cards()[0]
    body = {"head": card["head"]["id"], "tail": card["tail"]["id"], "verdict": "accept"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(desk.post, f"{desk.path}/verdicts", body, 201, idempotency_key="k")
        assert begun.wait(20)
        early = desk.client.post(f"{desk.path}/verdicts", json=body, headers={"idempotency-key": "k"})
        assert early.status_code == 409 and early.json()["code"] == "in-progress" and early.headers["retry-after"]
        go_on.set()
        done = first.result(20)
    assert desk.post(f"{desk.path}/verdicts", body, idempotency_key="k") == done
    assert desk.get("/history")["total"] == 1


def test_the_model_learns_from_verdicts_in_the_background(desk: Desk) -> None:
    service: Service = desk.client.app.state.service  # type: ignore[attr-defined]
    relation = service.relations.get(desk.relation)
    before = service.teaching.taught(relation)
    card = desk.cards()[0]
    entry = desk.judge(card, "accept")["entry"]["entry"]
    for _ in range(200):
        events = service.events._after(0, desk.relation)
        if events[-1]["kind"] == "relation":
            break
        threading.Event().wait(0.1)
    assert [event["kind"] for event in events[-2:]] == ["verdict", "relation"]
    assert json.loads(events[-1]["data"])["change"] == "learned"
    found = desk.get("")
    assert not found["learning"] and found["learned_entries"] == entry
    assert len(service.teaching.taught(relation).references) == len(before.references) + 1


def test_without_confidence_cards_are_still_shown(model: TrainedModel, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with client_of(Service(model, store)) as client:
        desk = Desk(client)
        desk.complete()
        for order in ("useful", "confident", "head", "audit"):
            assert desk.cards(order=order)[0]["confidence"] is None
        assert desk.get("/estimate", threshold=0.9)["facts"] == 0
        assert desk.judge(desk.cards()[0], "accept")["card"]["state"] == "accepted"
    store.close()


def test_a_head_outside_the_queue_can_be_judged_too(model: TrainedModel, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with client_of(Service(model, store)) as client:
        desk = Desk(client)
        said = desk.post(f"{desk.path}/verdicts", {"head": "plant", "tail": "organism", "verdict": "accept"})
        assert said["card"]["state"] == "accepted" and said["card"]["tail"]["id"] == "organism"
        wrong = {"head": "plant", "verdict": "accept"}
        assert client.post(f"{desk.path}/verdicts", json=wrong).status_code == 422
    store.close()
