"""Connections, load and limits of the service: what must not lock others out, fill a log or take memory without end."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from hire.data.dataset import FewShotDataset
from hire.inference.model import TrainedModel
from hire.service.middleware import Limits
from hire.service.relations import Draft
from hire.service.server import SparingFilter, connection_cap
from hire.service.service import Service
from hire.service.store import Store
from tests.faults.client import Client, answer_on, is_error
from tests.faults.running import running, running_service
from tests.faults.support import how_many
from tests.support import SECONDS, random_model, serving

FILES = 200  # file descriptors of the service
INTRUDERS = 290  # connections that say nothing, or half a request
QUICK = Limits(connections=20, head_seconds=0.5, stall_seconds=0.5)


@pytest.fixture(scope="module")
def model(umls: FewShotDataset) -> TrainedModel:
    return random_model(umls)


@pytest.fixture(scope="module")
def client(model: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(model, tmp_path_factory.mktemp("state") / "relations.sqlite", QUICK) as found:
        yield found


@pytest.mark.parametrize("first", [b"", b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: b\r\n"])
def test_connections_that_say_nothing_lock_nobody_out(tmp_path: Path, first: bytes) -> None:
    state = str(tmp_path / "state.sqlite")
    with serving("umls-one", "--state", state, limits=f"ulimit -n {FILES}") as (process, address):
        client, intruders = Client(address), []
        try:
            for _ in range(INTRUDERS):
                intruders.append(client.connected())
                intruders[-1].sendall(first)
            start = time.monotonic()
            for _ in range(20):
                assert client.health() == {"status": "ok"}
            assert time.monotonic() - start < 5
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < FILES
        finally:
            for each in intruders:
                each.close()
        process.terminate()
        output = process.stdout.read() if process.stdout else ""
    assert len(output) < 5_000


def test_the_number_of_connections_follows_the_limit_on_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, cap in ((200, 136), (10, 8), (1 << 20, 512)):
        monkeypatch.setattr("resource.getrlimit", lambda _kind, files=files: (files, files))
        assert connection_cap(Limits()) == cap


def test_the_longest_idle_connection_makes_room(client: Client) -> None:
    with client.connected() as first:
        others = [client.connected() for _ in range(QUICK.connections)]
        assert answer_on(first) == (0, {}, b"")  # closed without a word, before its time
        assert client.health()
        for each in others:
            each.close()


def test_if_all_connections_are_at_work_a_new_one_is_refused() -> None:
    go, begun = asyncio.Event(), []

    async def waiting(scope: dict[str, object], _receive: object, send: object) -> None:
        if scope["type"] != "http":
            return
        begun.append(scope)
        while not go.is_set():
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    with running(waiting, Limits(connections=4)) as client:
        busy = [client.connected() for _ in range(4)]
        for each in busy:
            each.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        end = time.monotonic() + SECONDS
        while len(begun) < 4 and time.monotonic() < end:
            time.sleep(0.01)
        with client.connected() as late:
            status, headers, body = answer_on(late)
        assert status == 503 and is_error(status, body) and headers["retry-after"] == "1"
        go.set()
        assert [answer_on(each)[0] for each in busy] == [200] * 4
        for each in busy:
            each.close()


def test_a_request_that_does_not_come_is_not_waited_for(client: Client) -> None:
    with client.connected() as silent, client.connected() as half, client.connected() as slow:
        for each in (half, slow):
            each.sendall(b"GET /health HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            _trickle(slow)
        status, _, body = answer_on(half)
        assert status == 408 and is_error(status, body)
        assert answer_on(silent) == (0, {}, b"")


@pytest.mark.parametrize(
    "message",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /health HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x00\xff\x16\x03\x01\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_documented_error(client: Client, message: bytes) -> None:
    status, headers, body = client.said(message)
    assert 400 <= status < 500 and is_error(status, body)
    assert "json" in headers["content-type"] and headers["x-content-type-options"] == "nosniff"


def test_a_body_that_ends_being_http_breaks_nothing(client: Client) -> None:
    begun = b"POST /v1/relations HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
    status, _, body = client.said(begun + b"zz\r\n")
    assert status == 400 and is_error(status, body)
    assert client.health()


def test_an_upgrade_is_answered_as_a_plain_request(client: Client) -> None:
    asked = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n"
    assert client.said(asked)[0] == 200


def test_the_log_does_not_repeat_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("hire.service.server.time.monotonic", lambda: clock[0])
    passed, sparing = [], SparingFilter()
    for _ in range(1_000):
        for message in ("one %d", "two"):
            record = logging.LogRecord("hire", logging.WARNING, "", 0, message, (5,) if "%" in message else (), None)
            if sparing.filter(record):
                passed.append(record.getMessage())
        clock[0] += 0.1
    assert passed == [
        "one 5",
        "two",
        "one 5 (599 more like this were left out)",
        "two (599 more like this were left out)",
    ]


def _trickle(connection: socket.socket) -> None:
    """Send a header now and then, ten times as long as the head of a request may take."""
    for _ in range(100):
        time.sleep(QUICK.head_seconds / 10)
        connection.sendall(b"x-a: b\r\n")


def _ask_without_end(deaf: socket.socket) -> None:
    for _ in range(10_000):
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 10)
        time.sleep(0.001)


def test_a_client_that_reads_nothing_is_let_go(client: Client) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
        with client.connected() as other:
            deaf.connect(other.getpeername())
        deaf.settimeout(10)
        with pytest.raises(ConnectionError):
            _ask_without_end(deaf)
    assert client.health()


def test_listing_many_relations_holds_up_nobody(model: TrainedModel, tmp_path: Path) -> None:
    state = tmp_path / "relations.sqlite"
    store = Store(state)
    service = Service(model, store)
    names = list(model.dataset.graph.entities)
    pairs = [(names[i % len(names)], names[i // len(names)]) for i in range(1_000)]
    relations = how_many(60, 300)
    for number in range(relations):
        service.relations.add(Draft(f"relation {number}", pairs))
    service.stop()
    store.close()
    done, waits = threading.Event(), []
    with serving("umls-one", "--state", str(state), "--timeout", "60") as (_, address):
        client = Client(address)

        def ask() -> None:
            while not done.is_set():
                start = time.monotonic()
                client.health()
                waits.append(time.monotonic() - start)
                time.sleep(0.01)  # the time to answer counts, not the number of answers

        thread = threading.Thread(target=ask)
        thread.start()
        start = time.monotonic()
        with urlopen(f"{address}/v1/relations?limit=200") as answer:
            text = answer.read()  # parsed when nobody waits for this process any more
        seconds = time.monotonic() - start
        done.set()
        thread.join()
    found = json.loads(text)["relations"]
    assert len(found) == min(200, relations) and len(found[-1]["references"]) == 1_000
    assert max(waits) < max(1.0, seconds / 4)  # a busy machine is slow with both


def test_distinct_searches_take_bounded_memory(model: TrainedModel, tmp_path: Path) -> None:
    store = Store(tmp_path / "relations.sqlite")
    service = Service(model, store)
    for number in range(20_000):
        service.teaching.search(f"a{number}" + "x" * 400, 10)
    service.stop()
    store.close()
    assert service.teaching.search.bytes <= 32 << 20
