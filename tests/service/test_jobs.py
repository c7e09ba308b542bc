from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hire.inference.model import TrainedModel
from hire.service import jobs as jobs_module
from hire.service.service import Service
from hire.service.store import Store
from hire.service.teaching import Teaching
from tests.service.conftest import EXAMPLES, Desk, client_of


class Gate:
    """Lets a job answer so many heads, then holds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, heads: int) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        real = Teaching.answers_to_many

        def gated(*given: Any, **more: Any) -> Iterator[Any]:
            nonlocal heads
            heads -= jobs_module.HEADS_AT_ONCE
            if heads < 0:
                self.reached.set()
                assert self.opened.wait(20)
            return real(*given, **more)

        monkeypatch.setattr(Teaching, "answers_to_many", gated)


def test_a_job_stores_what_the_model_answers(desk: Desk, path_model: TrainedModel) -> None:
    relation = path_model.teach(EXAMPLES, name="kind")
    cards = desk.cards(limit=200)
    assert len(cards) == 135
    for card, (head, answers) in zip(
        cards, relation.predict_many([card["head"]["id"] for card in cards], 10), strict=True
    ):
        found = [(each["tail"]["id"], each["confidence"]) for each in card["suggestions"]]
        assert card["head"]["id"] == head
        assert [tail for tail, _ in found] == [answer.tail for answer in answers]
        assert [confidence for _, confidence in found] == pytest.approx([a.confidence for a in answers], abs=1e-6)
    (job,) = desk.get("/v1/jobs")["jobs"]
    assert (job["state"], job["heads"], job["done"]) == ("done", 135, 135) and job["seconds"] > 0


def test_a_second_job_at_the_same_time_is_refused(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, 0)
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        desk = Desk(client)
        job = desk.post(f"{desk.path}/jobs", {})["id"]
        assert desk.client.post(f"{desk.path}/jobs", json={}).status_code == 409
        assert gate.reached.wait(20)
        gate.opened.set()
        desk.wait(job, "done")
    store.close()


def test_a_cancelled_job_keeps_what_it_found_and_can_be_resumed(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "HEADS_AT_ONCE", 10)
    gate = Gate(monkeypatch, 30)
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        desk = Desk(client)
        job = desk.post(f"{desk.path}/jobs", {})["id"]
        assert gate.reached.wait(20)
        running = desk.get(f"/v1/jobs/{job}")
        assert running["done"] == 30 and running["seconds_left"] > 0
        cancelled = desk.post(f"/v1/jobs/{job}/cancel", {})
        assert cancelled["state"] == "cancelled" and cancelled["ended"]
        gate.opened.set()
        assert desk.client.post(f"/v1/jobs/{job}/cancel").status_code == 409
        assert len(desk.cards(limit=200)) == 30
        assert desk.post(f"/v1/jobs/{job}/resume", {})["state"] == "queued"
        assert desk.wait(job, "done")["done"] == 135
        assert len(desk.cards(limit=200)) == 135
    store.close()


def test_a_job_goes_on_after_a_restart(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "HEADS_AT_ONCE", 10)
    gate = Gate(monkeypatch, 30)
    store = Store(tmp_path / "state")
    service = Service(path_model, store)
    with client_of(service) as client:
        desk = Desk(client)
        job = desk.post(f"{desk.path}/jobs", {})["id"]
        assert gate.reached.wait(20)
        service.jobs._stopping.set()
        gate.opened.set()
    store.close()
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        desk.client = client
        assert desk.wait(job, "done")["done"] == 135
        whole = desk.cards(limit=200, order="head")
        other = Desk(client)
        other.complete()
        again = other.cards(limit=200, order="head")
    store.close()
    assert [card["suggestions"] for card in whole] == [card["suggestions"] for card in again]


def test_a_new_job_refreshes_what_is_open_and_keeps_what_was_decided(desk: Desk) -> None:
    card = desk.cards(order="confident")[0]
    desk.judge(card, "accept")
    job = desk.complete()
    assert job["heads"] == 134
    assert desk.get("/cards/one", head=card["head"]["id"])["state"] == "accepted"
    narrowed = desk.client.patch(desk.path, json={"scope": {"kind": "list", "heads": ["tissue", "cell"]}})
    assert narrowed.status_code == 200 and desk.get("/scope") == {"heads": 2}
    desk.complete()
    assert {card["head"]["id"] for card in desk.cards(state="any")} == {"tissue", "cell", card["head"]["id"]}


def test_a_job_that_fails_tells_why(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        desk = Desk(client)
        with monkeypatch.context() as patch:
            patch.setattr(Teaching, "answers_to_many", lambda *_, **__: 1 / 0)
            job = desk.wait(desk.post(f"{desk.path}/jobs", {})["id"], "failed")
            assert "internal error" in job["problem"] and "division" not in job["problem"]
        desk.post(f"/v1/jobs/{job['id']}/resume", {})
        assert desk.wait(job["id"], "done")["problem"] is None
    store.close()
    assert "division by zero" in caplog.text


def test_deleting_a_relation_ends_its_job(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, 0)
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        desk = Desk(client)
        job = desk.post(f"{desk.path}/jobs", {})["id"]
        assert gate.reached.wait(20)
        assert client.delete(desk.path).status_code == 204
        gate.opened.set()
        assert desk.get(f"/v1/jobs/{job}")["state"] == "cancelled"
        other = Desk(client)
        assert other.complete()["state"] == "done"
    with store.reading() as connection:
        assert (
            connection.execute("SELECT count(*) FROM suggestions WHERE relation = ?", (desk.relation,)).fetchone()[0]
            == 0
        )
    store.close()
