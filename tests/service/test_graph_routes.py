from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from hire.data.sources.reading import read_examples
from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.service.service import Service
from hire.service.store import Store
from tests.service.conftest import client_of


def test_entities_are_found_as_one_types(client: TestClient) -> None:
    found = client.get("/v1/entities", params={"q": "organ", "k": 5}).json()["matches"]
    assert len(found) == 5 and all("organ" in match["id"] for match in found)
    assert client.get("/v1/entities", params={"q": ""}).json() == {"matches": []}


def test_an_entity_is_described_and_its_facts_come_in_pages(client: TestClient, model: TrainedModel) -> None:
    detail = client.get("/v1/entities/detail", params={"id": "tissue"}).json()
    graph = model.dataset.graph
    degree = int(graph.degrees[graph.entities.id("tissue")])
    assert detail["iri"] == "urn:hire:tissue" and detail["link"] is None and detail["degree"] == degree
    found, cursor = [], None
    while True:
        query = f"id=tissue&limit=7{f'&cursor={cursor}' if cursor else ''}"
        page = client.get(f"/v1/entities/neighbors?{query}").json()
        found += page["neighbors"]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(found) == page["total"] == degree
    kind, other = graph.neighbors_of(graph.entities.id("tissue"), 1)[0].tolist()
    assert found[0]["entity"]["id"] == graph.entities[other]
    assert (found[0]["direction"] == "in") == (kind >= len(graph.relations))


def test_pasted_pairs_are_read_as_the_command_line_reads_them(client: TestClient, tmp_path: Path) -> None:
    text = 'subject,object\n"tissue",cell\n\n"virus","organism"\n'
    (tmp_path / "pairs.csv").write_text(text)
    rows = client.post("/v1/pairs/read", json={"text": text}).json()
    read = [(row["line"], row["head"]["given"], row["tail"]["given"]) for row in rows["rows"]]
    assert read == read_examples(tmp_path / "pairs.csv") and rows["unknown"] == 0
    tabs = client.post("/v1/pairs/read", json={"text": "tissue\tcell\nvirsu\torganism\n"}).json()
    assert tabs["unknown"] == 1 and tabs["rows"][0]["head"]["entity"]["id"] == "tissue"
    wrong = tabs["rows"][1]["head"]
    assert wrong["entity"] is None and wrong["suggestions"][0]["id"] == "virus" and "virsu" in wrong["problem"]
    named = client.post("/v1/pairs/read", json={"text": "tissue\tcell\n", "name": "pairs.csv"})
    assert named.status_code == 422 and "line 1" in named.json()["detail"] and "/tmp" not in named.text


def test_names_are_resolved_with_suggestions(client: TestClient) -> None:
    names = client.post("/v1/entities/resolve", json={"names": ["virus", "virsu", ""]}).json()["names"]
    assert names[0]["entity"]["id"] == "virus" and not names[0]["suggestions"]
    assert names[1]["entity"] is None and names[1]["suggestions"][0]["id"] == "virus"
    assert names[2]["entity"] is None and not names[2]["suggestions"]


def test_a_missing_fact_is_shown_with_its_reasons(path_model: TrainedModel, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        about = client.get("/v1/graph").json()
        assert about["name"] == "umls-one" and about["calibrated"] and about["entities"] == 135
        found = client.get("/v1/examples/missing").json()
        dataset = path_model.dataset
        entities, relations = dataset.graph.entities, dataset.graph.relations
        head, tail = (entities.id(found[key]["id"]) for key in ("head",)), found["answer"]["tail"]["id"]
        known = dataset.facts.tails(next(head), relations.id(found["name"])).tolist()
        assert entities.id(tail) not in known and not found["answer"]["known"]
        assert found["answer"]["confidence"] > 0.5
        reasons = found["explanation"]["reasons"]
        assert any(reason["for"] for reason in reasons)
        signs = [reason["for"] for reason in reasons]
        assert signs == sorted(signs, reverse=True)
        assert client.get("/v1/examples/missing", params={"name": found["name"]}).json()["name"] == found["name"]
        assert client.get("/v1/examples/missing", params={"name": "nonsense"}).status_code == 404
    store.close()


def test_a_graph_without_tasks_has_examples_too(tmp_path: Path) -> None:
    lines = [f"city{i}\tin\tcountry{i % 4}\ncity{i}\tnear\tcity{(i + 4) % 24}" for i in range(24)]
    (tmp_path / "graph.tsv").write_text("\n".join(lines) + "\n")
    store = Store(tmp_path / "state")
    with client_of(Service(open_model(tmp_path / "graph.tsv"), store)) as client:
        examples = client.get("/v1/examples").json()["examples"]
        assert {example["name"] for example in examples} == {"in", "near"}
        assert client.get("/v1/examples/missing").json()["name"] in {"in", "near"}
        scope = {"scope": {"kind": "list", "heads": ["city1", "city2", "city1"]}}
        assert client.post("/v1/scope/count", json=scope).json() == {"heads": 2}
        assert client.get("/v1/types").json() == {"types": [], "total": 0}
    store.close()
