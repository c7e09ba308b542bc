from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import RdfFormat, parse
from starlette.testclient import TestClient

from hire.data.iri import PREFIX
from hire.inference.bulk import Question, writer
from hire.inference.model import TrainedModel
from hire.inference.relation import Answer
from hire.service import relations as relations_module
from hire.service.relations import RelationService
from hire.service.store import RelationStore
from tests.service.conftest import EXAMPLES, client_of, references


def teach(client: TestClient, name: str = "kind", pairs: list[tuple[str, str]] = EXAMPLES) -> Any:
    answer = client.post("/api/relations", json={"name": name, "references": references(pairs)})
    assert answer.status_code == 201, answer.text
    return answer.json()


def ask(client: TestClient, relation: str, **query: Any) -> list[Any]:
    answer = client.get(f"/api/relations/{relation}/answers", params={"head": "plant", **query})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["answers"]
    return found


def test_a_relation_is_taught_asked_about_and_explained(client: TestClient, model: TrainedModel) -> None:
    relation = teach(client)
    assert [(pair["head"], pair["tail"]) for pair in relation["references"]] == EXAMPLES
    answers = ask(client, relation["id"], k=5)
    expected = model.teach(EXAMPLES, name="kind").predict("plant", 5)
    assert [(answer["tail"], answer["score"]) for answer in answers] == [(a.tail, a.score) for a in expected]
    why = client.get(
        f"/api/relations/{relation['id']}/explanation", params={"head": "plant", "tail": answers[0]["tail"]}
    ).json()
    assert why["tail"] == answers[0]["tail"] and why["sentence"] and {"rules", "shared", "similar"} <= why.keys()
    assert client.get("/api/relations").json() == [relation]
    assert client.get(f"/api/relations/{relation['id']}").json() == relation
    assert client.delete(f"/api/relations/{relation['id']}").status_code == 204
    assert client.get("/api/relations").json() == []
    assert client.get(f"/api/relations/{relation['id']}/answers?head=plant").status_code == 404


def test_verdicts_change_the_answers_and_can_be_taken_back(client: TestClient) -> None:
    relation = teach(client)["id"]
    before = ask(client, relation, k=200)
    best, second = before[0]["tail"], before[1]["tail"]
    address = f"/api/relations/{relation}/verdicts"
    said = client.post(address, json={"head": "plant", "tail": best, "verdict": "accepted"}).json()
    assert [pair["tail"] for pair in said["accepted"]] == [best]
    client.post(address, json={"head": "plant", "tail": second, "verdict": "rejected"})
    after = ask(client, relation, k=200)
    assert {best, second}.isdisjoint(answer["tail"] for answer in after)
    assert [a["score"] for a in after[:5]] != [a["score"] for a in before[:5]]
    for tail in (best, second):
        assert client.delete(address, params={"head": "plant", "tail": tail}).status_code == 200
    assert ask(client, relation, k=200) == before


def test_the_last_example_stays(client: TestClient) -> None:
    relation = teach(client, pairs=EXAMPLES[:1])["id"]
    rejected = {"head": "virus", "tail": "organism", "verdict": "rejected"}
    answer = client.post(f"/api/relations/{relation}/verdicts", json=rejected)
    assert answer.status_code == 422 and "no references left" in answer.json()["error"]
    accepted = client.post(f"/api/relations/{relation}/verdicts", json=rejected | {"verdict": "accepted"}).json()
    assert len(accepted["references"]) == 1 and not accepted["accepted"]


def test_a_restart_changes_nothing(model: TrainedModel, tmp_path: Path) -> None:
    answers, infos = [], []
    relation = None
    for _ in range(2):
        store = RelationStore(tmp_path / "state")
        with client_of(RelationService(model, store)) as client:
            if relation is None:
                relation = teach(client)["id"]
                for tail, verdict in (("animal", "accepted"), ("cell", "rejected")):
                    said = {"head": "plant", "tail": tail, "verdict": verdict}
                    assert client.post(f"/api/relations/{relation}/verdicts", json=said).status_code == 200
            answers.append(ask(client, relation, k=50))
            infos.append(client.get("/api/relations").json())
        store.close()
    assert answers[0] == answers[1] and infos[0] == infos[1]


def test_what_the_dataset_has_is_marked_or_left_out(client: TestClient, model: TrainedModel) -> None:
    example = client.get("/api/examples").json()[0]
    pairs = [(pair["head"], pair["tail"]) for pair in example["references"]]
    relation = teach(client, example["name"], pairs)["id"]
    head = example["heads"][0]["entity"]
    new, all_ = (ask(client, relation, head=head, known=known, k=200) for known in (False, True))
    assert not any(answer["known"] for answer in new)
    assert {a["tail"] for a in all_} - {a["tail"] for a in new} == {a["tail"] for a in all_ if a["known"]} != set()
    assert {example["split"] for example in client.get("/api/examples").json()} == {"dev", "test"}


def test_entities_are_found_as_one_types(client: TestClient) -> None:
    found = client.get("/api/entities", params={"q": "organ", "k": 5}).json()
    assert len(found) == 5 and all("organ" in match["entity"] for match in found)
    assert client.get("/api/entities", params={"q": ""}).json() == []


def test_accepted_facts_are_exported(client: TestClient) -> None:
    relation = teach(client, "a kind")["id"]
    client.post(f"/api/relations/{relation}/verdicts", json={"head": "plant", "tail": "cell", "verdict": "accepted"})
    tsv = client.get(f"/api/relations/{relation}/facts")
    assert tsv.text == "plant\ta kind\tcell\n" and tsv.headers["content-type"].startswith("text/tab-separated-values")
    (triple,) = parse(client.get(f"/api/relations/{relation}/facts?format=ntriples").content, RdfFormat.N_TRIPLES)
    assert triple.predicate.value == "urn:hire:a%20kind"


NASTY = [
    "concept:city:rome",
    "a name with spaces",
    "Zürich 東京 🦠",
    'x<>"{}|^`\\',
    'it\'s "quoted"',
    "100%",
    "already%20encoded%2Fname",
    "http://example.org/a b",
    "http://example.org/already%20encoded",
    "https://example.org/ü?q=1#top",
    "http://example.org/<b>",
    "http://",
    "urn:isbn:0451450523",
    "urn:hire:virus",
    "mailto:someone@example.org",
    "_:b0.1",
    "\u2028",
    "long " + "ü" * 990,
]


def test_the_command_line_and_the_service_export_the_same_bytes(model: TrainedModel, tmp_path: Path) -> None:
    with_nasty = model.with_entities({name: [("isa", "plant", "out")] for name in NASTY})
    relation = with_nasty.teach(EXAMPLES, name="a <kind>")
    store = RelationStore(tmp_path / "state")
    with client_of(RelationService(with_nasty, store)) as client:
        taught = teach(client, "a <kind>")["id"]
        for name in NASTY:
            said = {"head": name, "tail": NASTY[0], "verdict": "accepted"}
            assert client.post(f"/api/relations/{taught}/verdicts", json=said).status_code == 200
        for prefix in (PREFIX, "https://example.org/"):
            form = writer("nt", relation, Question(), prefix)
            written = "".join(form.lines(name, [Answer(NASTY[0], 0.0)]) for name in NASTY).encode()
            query = {"format": "ntriples", "prefix": prefix}
            assert client.get(f"/api/relations/{taught}/facts", params=query).content == written
        default = client.get(f"/api/relations/{taught}/facts", params={"format": "ntriples"}).content
        tsv = client.get(f"/api/relations/{taught}/facts").content.decode()
        refused = client.get(f"/api/relations/{taught}/facts", params=query | {"prefix": "no prefix"})
    store.close()
    assert b"<urn:hire:concept%3Acity%3Arome>" in default and b"<urn:isbn:0451450523>" in default
    assert tsv == "".join(f"{name}\ta <kind>\t{NASTY[0]}\n" for name in NASTY)
    assert refused.status_code == 422 and "prefix" in refused.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/nonsense", None, 404, "not found"),
        ("PUT", "/api/relations", None, 405, "not allowed"),
        ("GET", "/api/relations/nobody", None, 404, "no relation 'nobody'"),
        ("DELETE", "/api/relations/nobody", None, 404, "nobody"),
        ("POST", "/api/relations", {"references": []}, 422, "references"),
        ("POST", "/api/relations", {"references": [{"head": "virsu", "tail": "organism"}]}, 422, "virsu"),
        ("POST", "/api/relations", {"references": [{"head": "\ud800", "tail": "organism"}]}, 422, "head"),
        ("POST", "/api/relations", {"name": "x" * 300, "references": references()}, 422, "name"),
        ("GET", "/api/entities?q=a&k=0", None, 422, "k"),
        ("GET", "/../../../etc/passwd", None, 404, "not found"),
        ("GET", "/%2e%2e/%2e%2e/pyproject.toml", None, 404, "not found"),
    ],
)
def test_errors_are_json_with_a_remedy(
    client: TestClient, method: str, path: str, body: Any, status: int, words: str
) -> None:
    content = None if body is None else json.dumps(body)
    answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert words in answer.json()["error"].lower() and answer.json()["remedy"]


def test_a_fault_of_ours_is_told_without_details(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainedModel, "search", lambda *_: 1 / 0)
    answer = client.get("/api/entities?q=a")
    assert answer.status_code == 500 and "division" not in answer.text and "error" in answer.json()
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'route="/api/entities",status="500"} 1' in client.get("/metrics").text


def test_relations_and_pairs_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations_module, "MAX_RELATIONS", 1)
    monkeypatch.setattr(relations_module, "MAX_PAIRS", 3)
    relation = teach(client)["id"]
    more = client.post("/api/relations", json={"references": references()})
    assert more.status_code == 422 and "delete some" in more.json()["remedy"]
    said = {"head": "plant", "tail": "cell", "verdict": "accepted"}
    assert client.post(f"/api/relations/{relation}/verdicts", json=said).status_code == 422


def test_relations_beyond_those_kept_ready_are_learned_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations_module, "MAX_ADAPTED", 1)
    first = teach(client)["id"]
    before = ask(client, first)
    ask(client, teach(client)["id"])
    assert ask(client, first) == before


def test_a_relation_of_another_dataset_is_told_and_can_be_deleted(model: TrainedModel, tmp_path: Path) -> None:
    store = RelationStore(tmp_path / "state")
    relation = store.add("foreign", [("nobody", "nothing")]).id
    with client_of(RelationService(model, store)) as client:
        answer = client.get(f"/api/relations/{relation}/answers?head=plant")
        assert answer.status_code == 422 and "nobody" in answer.json()["error"]
        assert client.delete(f"/api/relations/{relation}").status_code == 204
    store.close()


def test_the_page_and_the_documentation_need_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js", "/docs"):
        answer = client.get(path)
        assert answer.status_code == 200
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text
        assert "<style" not in text and " style=" not in text and " onclick=" not in text
    assert "/api/relations/{relation}/answers" in client.get("/docs").text
    assert client.get("/openapi.json").json()["info"]["title"] == "HiRe"
    assert client.get("/favicon.ico").status_code == 204
