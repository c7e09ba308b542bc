from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from hire.inference.model import TrainedModel
from hire.inference.relation import TaughtRelation
from hire.service import relations as relations_module
from hire.service import teaching as teaching_module
from hire.service.service import Service
from hire.service.store import Store
from tests.service.conftest import EXAMPLES, Desk, client_of, references


def ask(desk: Desk, **query: Any) -> list[Any]:
    found: list[Any] = desk.get("/answers", **({"head": "plant"} | query))["answers"]
    return found


def test_a_relation_is_taught_asked_about_and_explained(client: TestClient, model: TrainedModel) -> None:
    desk = Desk(client, predicate="P361")
    answers = ask(desk, k=5)
    expected = model.teach(EXAMPLES, name="kind").predict("plant", 5)
    assert [(answer["tail"]["id"], answer["score"]) for answer in answers] == [(a.tail, a.score) for a in expected]
    why = desk.get("/explanation", head="plant", tail=answers[0]["tail"]["id"])
    assert why["tail"] == answers[0]["tail"] and why["sentence"] and why["similar"]
    stored = desk.get("")
    assert [(pair["head"]["id"], pair["tail"]["id"]) for pair in stored["references"]] == EXAMPLES
    assert stored["predicate"] == "P361" and stored["by"] == "ana"
    assert client.get("/v1/relations").json()["relations"] == [stored]
    assert client.delete(desk.path).status_code == 204
    assert client.get("/v1/relations").json() == {"relations": [], "next": None}
    assert client.get(f"{desk.path}/answers?head=plant").status_code == 404


def test_what_was_learned_of_a_deleted_relation_is_given_up(client: TestClient, service: Service) -> None:
    desk = Desk(client)
    ask(desk)
    assert desk.relation in service.teaching._learned
    assert client.delete(desk.path).status_code == 204
    assert not service.teaching._learned


def test_what_is_learned_of_a_relation_while_it_is_deleted_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = service.relations.add(relations_module.Draft("kind", EXAMPLES))
    adapt = service.teaching._adapted

    def meanwhile(*arguments: Any) -> TaughtRelation:
        service.delete(relation.id)
        return adapt(*arguments)

    monkeypatch.setattr(service.teaching, "_adapted", meanwhile)
    assert service.teaching.taught(relation).predict("plant", 1)  # whoever asked before is answered
    assert not service.teaching._learned


def test_memory_is_given_back_now_and_then_if_there_was_work(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back, seconds, worked = [0], [100.0], [1.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0], process_time=lambda: worked[0])
    monkeypatch.setattr(teaching_module, "time", clock)
    monkeypatch.setattr(teaching_module, "give_back_memory", lambda: given_back.append(1))
    for passed, work, times in ((0.0, 0.0, 1), (6.0, 0.0, 1), (0.0, 0.5, 2), (1.0, 0.5, 2), (6.0, 0.0, 3)):
        seconds[0] += passed
        worked[0] += work
        service.jobs._learn_next()  # also if there is nothing to learn
        assert sum(given_back) == times


def test_references_are_added_later_and_the_last_one_stays(client: TestClient, model: TrainedModel) -> None:
    desk = Desk(client, references=references(EXAMPLES[:1]))
    last = {"head": "virus", "tail": "organism"}
    assert client.delete(f"{desk.path}/references", params=last).status_code == 409
    changed = desk.post(f"{desk.path}/references", {"references": references(EXAMPLES[1:])})
    assert changed["version"] == 2 and len(changed["references"]) == 3
    expected = model.teach(EXAMPLES, name="kind").predict("plant", 5)
    assert [answer["score"] for answer in ask(desk, k=5)] == [answer.score for answer in expected]
    assert len(client.delete(f"{desk.path}/references", params=last).json()["references"]) == 2


def test_a_change_that_is_based_on_an_older_version_is_refused(client: TestClient) -> None:
    desk = Desk(client)
    etag = client.get(desk.path).headers["etag"]
    renamed = client.patch(desk.path, json={"name": "sort"}, headers={"if-match": etag})
    assert renamed.status_code == 200 and renamed.json()["name"] == "sort" and renamed.headers["etag"] != etag
    stale = client.patch(desk.path, json={"name": "other"}, headers={"if-match": etag})
    assert stale.status_code == 412 and stale.json()["code"] == "version-mismatch"
    assert client.delete(desk.path, headers={"if-match": etag}).status_code == 412
    more = {"references": [{"head": "plant", "tail": "organism"}]}
    assert client.post(f"{desk.path}/references", json=more, headers={"if-match": etag}).status_code == 412
    assert client.delete(desk.path, headers={"if-match": renamed.headers["etag"]}).status_code == 204


def test_a_repeated_request_is_carried_out_once(client: TestClient) -> None:
    body = {"name": "kind", "references": references()}
    first, again = (client.post("/v1/relations", json=body, headers={"idempotency-key": "key"}) for _ in range(2))
    assert first.json() == again.json() and first.headers["location"] == again.headers["location"]
    assert again.headers["idempotency-replayed"] == "true" and "idempotency-replayed" not in first.headers
    assert len(client.get("/v1/relations").json()["relations"]) == 1
    other = client.post("/v1/relations", json=body | {"name": "other"}, headers={"idempotency-key": "key"})
    assert other.status_code == 422 and other.json()["code"] == "key-reused"


def test_a_refused_request_may_be_repeated_with_the_same_key(client: TestClient) -> None:
    body = {"references": [{"head": "virsu", "tail": "organism"}]}
    headers = {"idempotency-key": "key"}
    assert client.post("/v1/relations", json=body, headers=headers).status_code == 422
    assert client.post("/v1/relations", json={"references": references()}, headers=headers).status_code == 201


def test_a_restart_changes_nothing(path_model: TrainedModel, tmp_path: Path) -> None:
    answers, infos = [], []
    desk = None
    for _ in range(2):
        store = Store(tmp_path / "state")
        service = Service(path_model, store)
        with client_of(service) as client:
            if desk is None:
                desk = Desk(client)
                for tail, verdict in (("animal", "accept"), ("cell", "reject")):
                    said = {"head": "plant", "tail": tail, "verdict": verdict}
                    desk.post(f"{desk.path}/verdicts", said)
                service.teaching.learn(service.relations.get(desk.relation))
            desk.client = client
            answers.append(ask(desk, k=50))
            infos.append(desk.get(""))
        store.close()
    assert answers[0] == answers[1] and infos[0] == infos[1]


def test_what_the_dataset_has_is_marked_or_left_out(client: TestClient) -> None:
    examples = client.get("/v1/examples").json()["examples"]
    assert {example["split"] for example in examples} == {"dev", "test"}
    pairs = [{side: pair[side]["id"] for side in ("head", "tail")} for pair in examples[0]["references"]]
    desk = Desk(client, name=examples[0]["name"], references=pairs)
    head = examples[0]["heads"][0]["id"]
    new, all_ = ({a["tail"]["id"]: a for a in ask(desk, head=head, known=known, k=200)} for known in (False, True))
    assert not any(answer["known"] for answer in new.values())
    assert all_.keys() - new.keys() == {tail for tail, a in all_.items() if a["known"]} != set()


def test_relations_and_references_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations_module, "MAX_RELATIONS", 1)
    monkeypatch.setattr(relations_module, "MAX_PAIRS", 3)
    desk = Desk(client)
    more = client.post("/v1/relations", json={"references": references()})
    assert more.status_code == 422 and "delete some" in more.json()["remedy"]
    pair = {"references": [{"head": "plant", "tail": "cell"}]}
    assert client.post(f"{desk.path}/references", json=pair).status_code == 422
    assert len(desk.get("")["references"]) == 3


def test_relations_beyond_those_kept_ready_are_learned_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching_module, "MAX_ADAPTED", 1)
    first = Desk(client)
    before = ask(first)
    ask(Desk(client))
    assert ask(first) == before


def test_a_relation_of_another_dataset_is_told_and_can_be_deleted(service: Service) -> None:
    draft = relations_module.Draft("foreign", [("nobody", "nothing")])
    relation = service.relations.add(draft).id
    with client_of(service) as client:
        answer = client.get(f"/v1/relations/{relation}/answers?head=plant")
        assert answer.status_code == 422 and "nobody" in answer.json()["detail"]
        job = client.post(f"/v1/relations/{relation}/jobs", json={})
        assert job.status_code == 422
        assert client.delete(f"/v1/relations/{relation}").status_code == 204


def test_many_relations_come_in_pages(client: TestClient) -> None:
    taught = [Desk(client).relation for _ in range(5)]
    found, cursor = [], None
    for _ in range(3):
        page = client.get("/v1/relations", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        found += [relation["id"] for relation in page["relations"]]
        cursor = page["next"]
    assert found == taught[::-1] and cursor is None


def test_new_entities_have_answers_on_a_graph_of_their_own(path_model: TrainedModel, tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with client_of(Service(path_model, store)) as client:
        entities = {"moss": [["isa", "plant", "out"], ["affects", "cell_function", "in"]]}
        graph = client.post("/v1/graphs", json={"entities": entities}).json()["id"]
        desk = Desk(client, graph=graph)
        local = path_model.with_entities({"moss": [("isa", "plant", "out"), ("affects", "cell_function", "in")]})
        expected = local.teach(EXAMPLES, "kind").predict("moss", 3)
        assert [answer["tail"]["id"] for answer in ask(desk, head="moss", k=3)] == [a.tail for a in expected]
        assert client.get("/v1/entities", params={"q": "moss", "graph": graph}).json()["matches"][0]["id"] == "moss"
        assert client.get("/v1/entities", params={"q": "moss"}).json()["matches"] == []
        assert client.get("/v1/entities/detail", params={"id": "moss"}).status_code == 422
    store.close()


def test_a_graph_that_is_not_kept_ready_leaves_memory(
    path_model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching_module, "MAX_GRAPHS", 1)
    store = Store(tmp_path / "state")
    service = Service(path_model, store)
    gc.disable()  # which would find cycles, but only now and then
    try:
        desks, graphs, answers = [], [], []
        with client_of(service) as client:
            for name in ("moss", "fern"):
                body = {"entities": {name: [["isa", "plant", "out"]]}}
                graphs.append(client.post("/v1/graphs", json=body).json()["id"])
                desks.append(Desk(client, graph=graphs[-1]))
                answers.append(ask(desks[-1], head=name))
                if name == "moss":
                    first = weakref.ref(service.teaching.of_graph(graphs[0]))
            assert first() is None and list(service.teaching._learned) == [desks[1].relation]
            assert ask(desks[0], head="moss") == answers[0]
    finally:
        gc.enable()
    store.close()


def test_many_heads_come_as_a_stream(client: TestClient, service: Service) -> None:
    desk = Desk(client)
    body = {"heads": ["plant", "tissue"], "k": 2, "explain": True}
    answer = client.post(f"{desk.path}/predictions", json=body)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    *lines, end = (json.loads(line) for line in answer.text.splitlines())
    assert [line["head"]["id"] for line in lines] == ["plant", "tissue"] and end == {"end": True, "heads": 2}
    assert lines[0]["answers"][0]["explanation"]["sentence"]
    whole = client.post(f"{desk.path}/predictions", json={"k": 1}).text.splitlines()
    assert json.loads(whole[-1])["heads"] == 135
    streams = client.app.state.streams  # type: ignore[attr-defined]
    while streams.acquire(blocking=False):
        pass
    busy = client.post(f"{desk.path}/predictions", json=body)
    assert busy.status_code == 503 and busy.json()["code"] == "busy" and busy.headers["retry-after"]
    streams.release()
    assert client.post(f"{desk.path}/predictions", json=body).status_code == 200
