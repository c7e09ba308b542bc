from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hire.client.model import Client
from hire.service import store as store_module
from tests.service.conftest import Desk, references
from tests.support import SECONDS, request, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "state.sqlite"


def events(address: str, count: int, last: int | None = None, query: str = "") -> list[tuple[int, str, Any]]:
    """The first events of a stream; fails if they do not come in time."""
    headers = {} if last is None else {"last-event-id": str(last)}
    found: list[tuple[int, str, Any]] = []
    with urlopen(Request(f"{address}/v1/events{query}", headers=headers), timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        while len(found) < count:
            line = answer.readline().decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
                fields = {}
    return found


def test_changes_are_told_live_and_after_an_interruption(served: Path) -> None:
    with serving("umls-one", "--state", str(served)) as (process, address):
        ((start, kind, _),) = events(address, 1)
        assert kind == "ready"
        teach = {"name": "kind", "references": references(), "scope": {"kind": "list", "heads": ["plant", "tissue"]}}
        later = Timer(0.3, lambda: request(f"{address}/v1/relations", teach))
        later.start()
        ready, created = events(address, 2)
        later.join()
        assert ready[1] == "ready" and created[1] == "relation" and created[2]["change"] == "created"
        path = f"{address}/v1/relations/{created[2]['relation']}"
        said = request(f"{path}/verdicts", {"head": "plant", "tail": "organism", "verdict": "accept", "by": "ana"})
        missed = events(address, 2, last=start)
        assert [event[0] for event in missed] == [start + 1, start + 2]
        assert missed[1][1] == "verdict" and missed[1][2] == said["entry"] | {"state": "accepted"}
        assert events(address, 1, query=f"?last_event_id={start}&relation={created[2]['relation']}")[0] == missed[0]
        assert events(address, 1, last=10_000)[0][1] == "reset"
        # A stream that is open does not keep the service from ending.
        with urlopen(f"{address}/v1/events", timeout=20):
            began = time.monotonic()
            process.terminate()
            process.communicate(timeout=SECONDS)
        assert process.returncode == 0 and time.monotonic() - began < 10
    with serving("umls-one", "--state", str(served)) as (process, address):
        assert [event[0] for event in events(address, 2, last=start)] == [start + 1, start + 2]


def test_too_old_an_event_asks_for_a_reset(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    service = desk.client.app.state.service  # type: ignore[attr-defined]
    monkeypatch.setattr(store_module, "KEPT_EVENTS", 10)
    for _ in range(1_000):
        service.store.emit("job", desk.relation, {})
    first, newest = service.events._range()
    assert newest - first < 1_000 and first > 900


def test_a_restart_in_the_middle_of_a_review_loses_nothing(tmp_path: Path) -> None:
    """A job is killed, then goes on; verdicts that were acknowledged are there, a repeated one is given once."""
    state = str(tmp_path / "state.sqlite")
    scope = {"kind": "all"}
    with serving("umls-one", "--state", state) as (process, address):
        client = Client(address, by="ana")
        relation = client.teach([("virus", "organism"), ("bacterium", "organism")], "kind", scope=scope)
        relation.complete()
        made = [
            relation.judge(card["head"]["id"], card["tail"]["id"], "accept") for card in _first(relation.cards(), 5)
        ]
        body = {"head": "tissue", "tail": "cell", "verdict": "accept"}
        path = f"{address}/v1/relations/{relation.id}"
        first = _keyed(f"{path}/verdicts", body, "same-key")
        job = relation.complete(wait=False)
        process.kill()
        process.wait()
    with serving("umls-one", "--state", state) as (process, address):
        client = Client(address, by="ana")
        again = client.relation("kind")
        path = f"{address}/v1/relations/{again.id}"
        assert _keyed(f"{path}/verdicts", body, "same-key") == first
        log = list(again.history())
        assert [entry["entry"] for entry in log] == list(range(6, 0, -1))
        assert log[1:] == [said["entry"] for said in reversed(made)]
        end = time.monotonic() + SECONDS
        while client.connection.call("GET", f"/jobs/{job['id']}")["state"] != "done" and time.monotonic() < end:
            time.sleep(0.1)
        assert client.connection.call("GET", f"/jobs/{job['id']}")["state"] == "done"


def _first(cards: Iterator[Any], count: int) -> list[Any]:
    return [next(cards) for _ in range(count)]


def _keyed(address: str, body: Any, key: str) -> Any:
    headers = {"content-type": "application/json", "idempotency-key": key}
    with urlopen(Request(address, json.dumps(body).encode(), headers), timeout=SECONDS) as answer:
        return json.load(answer)
