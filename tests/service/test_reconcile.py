"""Requests exactly as OpenRefine sends them: forms by POST from its server, GETs from its page at 127.0.0.1:3333."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from hire.inference.open import open_model
from hire.service.service import Service
from hire.service.store import Store
from tests.service.conftest import Desk, client_of

OPENREFINE = "http://127.0.0.1:3333"
FORM = {"content-type": "application/x-www-form-urlencoded; charset=UTF-8", "user-agent": "OpenRefine/3.8.2"}


def send(client: TestClient, **fields: Any) -> Any:
    content = urlencode({name: json.dumps(value) for name, value in fields.items()})
    answer = client.post("/v1/reconcile", content=content, headers=FORM)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_manifest_says_what_there_is(client: TestClient) -> None:
    answer = client.get("/v1/reconcile", headers={"origin": OPENREFINE})
    manifest = answer.json()
    assert manifest["versions"] == ["0.2"] and "umls-one" in manifest["name"]
    assert {"identifierSpace", "schemaSpace", "view", "preview", "suggest", "extend"} <= manifest.keys()
    assert answer.headers["access-control-allow-origin"] == OPENREFINE and answer.headers["vary"] == "origin"
    for service in (*manifest["suggest"].values(), manifest["extend"]["propose_properties"]):
        found = client.get(f"{service['service_url']}{service['service_path']}", params={"prefix": "a"})
        assert found.status_code == 200
    assert client.get(manifest["preview"]["url"].replace("{{id}}", "tissue")).status_code == 200


def test_names_are_matched(client: TestClient) -> None:
    found = send(
        client,
        queries={
            "q0": {"query": "tissue", "type": "entity", "type_strict": "should"},
            "q1": {"query": "virsu", "limit": 3},
            "q2": {"query": "organ", "limit": 2, "properties": [{"pid": "isa", "v": "plant"}]},
        },
    )
    best = found["q0"]["result"][0]
    assert (best["id"], best["score"], best["match"]) == ("tissue", 100, True)
    assert [each["match"] for each in found["q0"]["result"][1:]].count(True) == 0
    assert found["q1"]["result"][0]["id"] == "virus" and not found["q1"]["result"][0]["match"]
    assert len(found["q2"]["result"]) == 2
    assert all({"id", "name", "type", "score", "match"} <= each.keys() for each in found["q2"]["result"])
    scores = [each["score"] for each in found["q0"]["result"]]
    assert scores == sorted(scores, reverse=True)
    by_get = client.get("/v1/reconcile", params={"queries": json.dumps({"q0": {"query": "tissue"}})}).json()
    assert by_get["q0"]["result"][0]["id"] == "tissue"


def test_properties_and_types_choose_among_equal_names(tmp_path: Path) -> None:
    lines = ["rome_italy\tin\titaly", "rome_usa\tin\tusa", "paris\tin\tfrance"] + [f"c{i}\tin\tx" for i in range(9)]
    (tmp_path / "graph.tsv").write_text("\n".join(lines) + "\n")
    store = Store(tmp_path / "state")
    with client_of(Service(open_model(tmp_path / "graph.tsv"), store)) as client:
        for country in ("italy", "usa"):
            value = [{"id": country, "name": country}] if country == "usa" else country
            query = {"query": "rome", "properties": [{"pid": "in", "v": value}]}
            assert send(client, queries={"q0": query})["q0"]["result"][0]["id"] == f"rome_{country}"
    store.close()


def test_suggestions_while_one_types(client: TestClient) -> None:
    entities = client.get("/v1/reconcile/suggest/entity", params={"prefix": "tis"}).json()["result"]
    assert entities[0]["id"] == "tissue" and entities[0]["name"] == "tissue"
    properties = client.get("/v1/reconcile/suggest/property", params={"prefix": "ISA"}).json()["result"]
    assert properties[0] == {"id": "isa", "name": "isa"}
    assert client.get("/v1/reconcile/suggest/type", params={"prefix": ""}).json()["result"]


def test_entities_are_extended_by_facts_and_by_taught_relations(desk: Desk) -> None:
    card = desk.cards(order="confident")[0]
    desk.judge(card, "accept")
    head, tail = card["head"]["id"], card["tail"]["id"]
    taught = f"taught:{desk.relation}"
    proposed = desk.client.get("/v1/reconcile/properties", params={"type": "entity", "limit": 3}).json()
    assert proposed["properties"][0]["id"] == taught and len(proposed["properties"]) == 3
    extend = {
        "ids": ["tissue", head, "no such id"],
        "properties": [{"id": "isa"}, {"id": taught, "settings": {"limit": "2", "threshold": "0.1"}}],
    }
    found = send(desk.client, extend=extend)
    assert [each["id"] for each in found["meta"]] == ["isa", taught]
    graph = desk.client.app.state.service.teaching.model.dataset  # type: ignore[attr-defined]
    expected = graph.facts.tails(graph.graph.entities.id("tissue"), graph.graph.relations.id("isa"))
    assert [each["id"] for each in found["rows"]["tissue"]["isa"]] == [graph.graph.entities[int(e)] for e in expected][
        :5
    ]
    assert tail in [each["id"] for each in found["rows"][head][taught]]
    assert all(len(row.get(taught, [])) <= 2 for row in found["rows"].values())
    assert found["rows"]["no such id"]["isa"] == []


def test_the_preview_may_be_framed_on_this_machine_only(client: TestClient) -> None:
    answer = client.get("/v1/reconcile/preview", params={"id": "tissue"})
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'self' http://127.0.0.1:* http://localhost:*" in policy and "default-src 'none'" in policy
    assert "<h1>tissue</h1>" in answer.text and "<script" not in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1.evil.example", "null", "http://["])
def test_pages_elsewhere_are_refused(client: TestClient, origin: str) -> None:
    assert client.get("/v1/reconcile", headers={"origin": origin}).status_code == 403


def test_pages_of_this_machine_reach_nothing_else(client: TestClient) -> None:
    assert client.get("/v1/relations", headers={"origin": OPENREFINE}).status_code == 403


@pytest.mark.parametrize(
    "content",
    ["", "queries=nonsense", "queries=%5B%5D", "extend=%7B%7D", "queries=%7B%22q%22%3A%7B%22limit%22%3A0%7D%7D"],
)
def test_what_cannot_be_read_is_told(client: TestClient, content: str) -> None:
    answer = client.post("/v1/reconcile", content=content, headers=FORM)
    assert answer.status_code == 422 and answer.json()["remedy"]
