from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from starlette.testclient import TestClient

from hire.inference.model import TrainedModel
from hire.service.service import Service
from tests.service.conftest import Desk, client_of, references

PROBLEM = {"type", "title", "status", "code", "detail", "remedy", "field", "conflict"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "words"),
    [
        ("GET", "/nonsense", None, 404, "not-found", "not found"),
        ("PUT", "/v1/relations", None, 405, "method-not-allowed", "not allowed"),
        ("GET", "/v1/relations/nobody", None, 404, "not-found", "no relation 'nobody'"),
        ("DELETE", "/v1/relations/nobody", None, 404, "not-found", "nobody"),
        ("GET", "/v1/jobs/nobody", None, 404, "not-found", "nobody"),
        ("POST", "/v1/batches/nobody/revert", {}, 404, "not-found", "nobody"),
        ("POST", "/v1/relations", {"references": []}, 422, "invalid", "references"),
        ("POST", "/v1/relations", {"references": [{"head": "virsu", "tail": "cell"}]}, 422, "unknown-entity", "virsu"),
        ("POST", "/v1/relations", {"references": [{"head": "\ud800", "tail": "organism"}]}, 422, "invalid", "head"),
        ("POST", "/v1/relations", {"name": "x" * 300, "references": references()}, 422, "invalid", "name"),
        ("POST", "/v1/relations", {"predicate": "no iri", "references": references()}, 422, "invalid", "predicate"),
        ("POST", "/v1/relations", {"scope": {"kind": "types"}, "references": references()}, 422, "invalid", "types"),
        ("POST", "/v1/relations", {"graph": "nobody", "references": references()}, 404, "not-found", "no graph"),
        ("GET", "/v1/entities?q=a&k=0", None, 422, "invalid", "k"),
        ("GET", "/v1/relations?cursor=nonsense", None, 422, "invalid", "cursor"),
        ("POST", "/v1/graphs", {"entities": {"virus": [["isa", "plant", "out"]]}}, 422, "invalid", "already exists"),
        ("GET", "/../../../etc/passwd", None, 404, "not-found", "not found"),
        ("GET", "/%2e%2e/%2e%2e/pyproject.toml", None, 404, "not-found", "not found"),
    ],
)
def test_errors_are_problems_with_a_code_and_a_remedy(
    client: TestClient, method: str, path: str, body: Any, status: int, code: str, words: str
) -> None:
    content = None if body is None else json.dumps(body)
    answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found.keys() == PROBLEM and (found["status"], found["code"]) == (status, code)
    assert words in found["detail"].lower() and found["remedy"]


def test_a_fault_of_ours_is_told_without_details(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainedModel, "search", lambda *_: 1 / 0)
    answer = client.get("/v1/entities?q=a fault")
    assert answer.status_code == 500 and "division" not in answer.text and answer.json()["code"] == "internal"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'route="/v1/entities",status="500"} 1' in client.get("/metrics").text


@pytest.mark.parametrize(("full", "status", "code"), [(True, 507, "storage-full"), (False, 503, "storage")])
def test_trouble_with_the_disk_is_told_without_paths(
    service: Service, monkeypatch: pytest.MonkeyPatch, full: bool, status: int, code: str
) -> None:
    with client_of(service) as client:
        relation = Desk(client).relation
        error = sqlite3.OperationalError(f"disk I/O error in {service.store.path}")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(service.review.log, "append", fail)
        said = {"head": "plant", "tail": "cell", "verdict": "accept"}
        answer = client.post(f"/v1/relations/{relation}/verdicts", json=said)
        assert answer.status_code == status and answer.json()["code"] == code and answer.headers["retry-after"]
        assert str(service.store.path) not in answer.text and "sqlite" not in answer.text
        monkeypatch.undo()
        assert client.get(f"/v1/relations/{relation}/history").json()["total"] == 0


def test_the_page_and_the_documentation_need_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js", "/docs"):
        answer = client.get(path)
        assert answer.status_code == 200
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "<style" not in text and " style=" not in text and " onclick=" not in text and "//cdn" not in text
    assert "/v1/relations/{relation}/answers" in client.get("/docs").text
    assert client.get("/favicon.ico").status_code == 204


def test_the_api_is_described_for_programs(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    operations = [about for path in schema["paths"].values() for about in path.values()]
    names = [about["operationId"] for about in operations]
    assert len(set(names)) == len(names) and all(name.isalpha() for name in names)
    assert {"teachRelation", "predictMany", "judge", "acceptBatch", "streamEvents", "reconcile"} <= set(names)
    scheme = schema["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert all(
        about["security"] for path, of in schema["paths"].items() if path.startswith("/v1") for about in of.values()
    )
    reasons = schema["components"]["schemas"]["Explanation"]["properties"]["reasons"]["items"]
    assert len(reasons["oneOf"]) == 2
    assert schema["components"]["schemas"]["VerdictRequest"]["examples"]
