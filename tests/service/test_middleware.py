from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from hire.inference.model import TrainedModel
from hire.service.middleware import HEADERS, Limits, is_loopback
from hire.service.relations import Draft
from hire.service.service import Service
from tests.service.conftest import client_of, references


def test_safe_headers_are_on_whatever_is_answered(client: TestClient) -> None:
    for path in ("/", "/health", "/nonsense", "/v1/entities", "/docs"):
        headers = client.get(path).headers
        assert all(headers[name] == value for name, value in HEADERS.items() if name != "cache-control")
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy


def test_names_that_are_not_this_machines_are_refused(service: Service) -> None:
    with client_of(service) as client:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "localhost@evil.example"):
            assert client.get("/health", headers={"host": host}).status_code == 421
        for host in ("localhost:9", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"):
            assert client.get("/health", headers={"host": host}).status_code == 200
    with client_of(service, host="0.0.0.0", token="secret") as client:
        assert client.get("/health", headers={"host": "graph.example"}).status_code == 200


def test_pages_of_other_sites_are_refused(client: TestClient) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "http://["):
        answer = client.post("/v1/relations", json={"references": references()}, headers={"origin": origin})
        assert answer.status_code == 403 and answer.json()["remedy"]
    own = {"origin": "http://127.0.0.1"}
    assert client.post("/v1/relations", json={"references": references()}, headers=own).status_code == 201
    plain = client.post("/v1/relations", content=b'{"references": []}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422


def test_a_token_guards_all_but_the_page(service: Service) -> None:
    with client_of(service, token="secret") as client:
        for path in ("/", "/page.js", "/page.css", "/health", "/docs"):
            assert client.get(path).status_code == 200
        for path in ("/v1/graph", "/v1/relations", "/metrics", "/docs/", "/health/", "/nonsense"):
            for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
                answer = client.get(path, headers=header)
                assert answer.status_code == 401 and answer.json()["remedy"]
                assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/graph", headers={"authorization": "bearer secret"}).status_code == 200
        assert client.get("/v1/graph", headers={b"authorization": b"Bearer \xff"}).status_code == 401


def test_large_bodies_are_refused_announced_or_not(service: Service) -> None:
    with client_of(service, limits=Limits(body_bytes=1_000)) as client:
        announced = client.post("/v1/relations", content=b" " * 1_001)
        chunks = client.post("/v1/relations", content=iter([b" " * 600] * 2))
        for answer in (announced, chunks):
            assert answer.status_code == 413 and "1,000 bytes" in answer.json()["detail"]
        odd = client.post("/v1/relations", content=b"", headers={"content-length": "-1"})
        assert odd.status_code == 413


def test_what_takes_too_long_is_given_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainedModel, "search", lambda *_: threading.Event().wait(0.4) or [])
    with client_of(service, limits=Limits(seconds=0.1)) as client:
        answer = client.get("/v1/entities?q=a")
        assert answer.status_code == 504 and "0.1 s" in answer.json()["detail"]
        assert client.get("/health").status_code == 200


def test_the_outcome_of_a_change_that_took_too_long_is_known_by_its_key(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun, go_on = service.teaching.check, threading.Event(), threading.Event()

    def slow(draft: Draft) -> None:
        begun.set()
        assert go_on.wait(60)
        real(draft)

    monkeypatch.setattr(service.teaching, "check", slow)
    body, key = {"name": "kind", "references": references()}, {"idempotency-key": "key"}
    with client_of(service, limits=Limits(seconds=2.0, threads=1)) as client:
        late = client.post("/v1/relations", json=body, headers=key)
        dropped = client.post("/v1/relations", json=body | {"name": "waiting"}, headers={"idempotency-key": "other"})
        assert (late.status_code, dropped.status_code) == (504, 504) and begun.is_set()
        go_on.set()
        deadline = time.monotonic() + 60
        while service.relations.count() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        again = client.post("/v1/relations", json=body, headers=key)
        assert again.status_code == 201 and again.headers["idempotency-replayed"] == "true"
        found = client.get("/v1/relations").json()["relations"]  # the one that never began is not carried out later
        assert [relation["name"] for relation in found] == ["kind"]


def test_more_than_can_be_done_is_refused_at_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(TrainedModel, "search", lambda *_: go.wait(60) and [])
    with client_of(service, limits=Limits(threads=1, waiting=1)) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.get, "/v1/entities?q=a") for _ in range(4)]
        deadline = time.monotonic() + 60
        while sum(each.done() for each in asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        go.set()
        answers = [each.result() for each in asked]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.headers["retry-after"] == "1" and "overloaded" in refused.json()["detail"]
        assert client.get("/v1/entities?q=a").status_code == 200  # the queue is free again
        assert "hire_model_calls 0" in client.get("/metrics").text


def test_requests_are_counted_for_prometheus(client: TestClient) -> None:
    client.get("/v1/relations/a")
    client.get("/v1/relations/b")
    client.get("/nonsense")
    client.request("BREW", "/health")
    text = client.get("/metrics").text
    assert 'hire_requests_total{method="GET",route="/v1/relations/{relation}",status="404"} 2' in text
    assert 'hire_requests_total{method="GET",route="other",status="404"} 1' in text
    assert 'method="other"' in text
    assert "hire_request_seconds_count 4" in text and 'le="+Inf"} 4' in text
    assert all(len(line.rsplit(" ", 1)) == 2 for line in text.splitlines())


def test_loopback_addresses_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.1", "example.org", "")))
