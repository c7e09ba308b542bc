from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyoxigraph import NamedNode, RdfFormat, parse
from pyoxigraph import Store as Triples

from hire.data.iri import PREFIX, iri_of
from hire.inference.answers import Answer
from hire.inference.bulk import Question, writer
from hire.inference.model import TrainedModel
from hire.service.service import Service
from hire.service.store import Store
from tests.service.conftest import EXAMPLES, Desk, client_of

PROV = "http://www.w3.org/ns/prov#"


def test_a_batch_is_accepted_audited_and_reverted(desk: Desk) -> None:
    first = desk.cards(order="confident")[0]
    desk.judge(first, "no_tail", by="bob")
    told = desk.get("/estimate", threshold=0.5)["facts"]
    early = desk.client.post(f"{desk.path}/batches", json={"threshold": 0.5, "expected": told + 1})
    assert early.status_code == 409
    batch = desk.post(f"{desk.path}/batches", {"threshold": 0.5, "expected": told, "by": "ana"})
    assert batch["entries"] == told > 0 and batch["kind"] == "accept" and not batch["reverted"]
    assert desk.get("")["facts"] == told and desk.get("/estimate", threshold=0.5)["facts"] == 0
    entries = desk.get("/history", batch=batch["id"], limit=1000)["entries"]
    assert len(entries) == told and all(entry["confidence"] >= 0.5 for entry in entries)
    assert first["head"]["id"] not in {entry["head"]["id"] for entry in entries}  # a person has closed it
    audit = desk.cards(order="audit", min_confidence=0.5, limit=200)
    assert {card["state"] for card in audit} == {"accepted"}
    desk.judge(audit[0], "reject", by="bob")  # the audit finds a mistake
    desk.judge(audit[1], "accept", by="bob")  # and confirms another
    left = {(card["head"]["id"], card["tail"]["id"]) for card in desk.cards(order="audit", limit=200)}
    assert not left & {(card["head"]["id"], card["tail"]["id"]) for card in audit[:2]}
    reverted = desk.post(f"/v1/batches/{batch['id']}/revert", {"by": "ana"})
    assert reverted["kind"] == "revert" and reverted["entries"] == told - 2
    assert desk.get("")["facts"] == 1 and desk.get(f"/v1/batches/{batch['id']}")["reverted"]
    assert desk.client.post(f"/v1/batches/{batch['id']}/revert", json={}).status_code == 409
    assert desk.client.post(f"/v1/batches/{reverted['id']}/revert", json={}).status_code == 422
    assert [each["id"] for each in desk.get("/batches")["batches"]] == [reverted["id"], batch["id"]]


def test_the_log_tells_everything_in_pages(desk: Desk) -> None:
    cards = desk.cards(limit=7)
    for card in cards:
        desk.judge(card, "accept", by="ana" if card is cards[0] else "bob")
    desk.post(f"{desk.path}/undo", {"entry": 7, "by": "bob"})
    found, cursor = [], None
    for _ in range(4):
        page = desk.get("/history", limit=3, **({"cursor": cursor} if cursor else {}))
        found += page["entries"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [entry["entry"] for entry in found] == list(range(8, 0, -1)) and page["total"] == 8
    assert found[1]["undone_by"] == 8 and found[0]["undoes"] == 7
    assert [entry["entry"] for entry in desk.get("/history", by="ana")["entries"]] == [1]
    assert [entry["verdict"] for entry in desk.get("/history", verdict="undo")["entries"]] == ["undo"]


def accepted(desk: Desk, count: int = 3) -> list[tuple[str, str]]:
    pairs = []
    for card in desk.cards(order="confident", limit=count):
        desk.judge(card, "accept")
        pairs.append((card["head"]["id"], card["tail"]["id"]))
    return pairs


def export(desk: Desk, form: str, **query: Any) -> bytes:
    answer = desk.client.get(f"{desk.path}/export", params={"format": form, **query})
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    return answer.content


def test_every_format_has_the_same_facts_and_iris(desk: Desk) -> None:
    pairs = accepted(desk)
    assert export(desk, "tsv").decode() == "".join(f"{head}\tkind\t{tail}\n" for head, tail in pairs)
    wanted = {tuple(NamedNode(iri_of(name)) for name in (head, "kind", tail)) for head, tail in pairs}
    ntriples = {(t.subject, t.predicate, t.object) for t in parse(export(desk, "ntriples"), RdfFormat.N_TRIPLES)}
    assert ntriples == wanted
    turtle = list(parse(export(desk, "turtle"), RdfFormat.TURTLE))
    assert wanted <= {(t.subject, t.predicate, t.object) for t in turtle}
    attributed = [t for t in turtle if t.predicate == NamedNode(f"{PROV}wasAttributedTo")]
    assert len(attributed) == 2 * len(pairs)  # a person and a model each
    times = [t.object.value for t in turtle if t.predicate == NamedNode(f"{PROV}generatedAtTime")]
    assert len(times) == len(pairs) and all(time.startswith("20") for time in times)
    triples = Triples()
    triples.update(export(desk, "sparql").decode())
    assert {(t.subject, t.predicate, t.object) for t in triples} == wanted
    log = [json.loads(line) for line in export(desk, "log").splitlines()]
    assert [(entry["head"], entry["tail"], entry["verdict"]) for entry in log] == [(*pair, "accept") for pair in pairs]
    preview = desk.get("/export/preview", format="ntriples")
    assert preview["facts"] == 3 and preview["text"].encode() == export(desk, "ntriples")
    assert preview["file_name"] == "kind.nt" and preview["problem"] is None


def test_a_predicate_is_the_one_that_was_given(desk: Desk) -> None:
    accepted(desk, 1)
    for predicate, iri in (
        ("http://example.org/kind", "http://example.org/kind"),
        ("P31", "http://www.wikidata.org/prop/direct/P31"),
    ):
        assert desk.client.patch(desk.path, json={"predicate": predicate}).status_code == 200
        (triple,) = parse(export(desk, "ntriples"), RdfFormat.N_TRIPLES)
        assert triple.predicate == NamedNode(iri)
    preview = desk.get("/export/preview", format="quickstatements")
    assert "has no id of Wikidata" in preview["problem"] and not preview["text"]
    assert desk.client.get(f"{desk.path}/export?format=quickstatements").status_code == 422


def test_facts_about_wikidata_are_exported_as_quickstatements(path_model: TrainedModel, tmp_path: Path) -> None:
    base = "http://www.wikidata.org/entity/"
    new = {f"{base}Q{i}": [("isa", "plant", "out")] for i in (5, 6)}
    store = Store(tmp_path / "state")
    with client_of(Service(path_model.with_entities(new), store)) as client:  # type: ignore[arg-type]
        desk = Desk(client, predicate="P361")
        desk.post(f"{desk.path}/verdicts", {"head": f"{base}Q5", "tail": f"{base}Q6", "verdict": "accept"})
        assert export(desk, "quickstatements") == b"Q5\tP361\tQ6\n"
    store.close()


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
    store = Store(tmp_path / "state")
    with client_of(Service(with_nasty, store)) as client:
        desk = Desk(client, name="a <kind>")
        for name in NASTY:
            desk.post(f"{desk.path}/verdicts", {"head": name, "tail": NASTY[0], "verdict": "accept", "by": 'o"\\\n'})
        for prefix in (PREFIX, "https://example.org/"):
            form = writer("nt", relation, Question(), prefix)
            written = "".join(form.lines(name, [Answer(NASTY[0], 0.0)]) for name in NASTY).encode()
            assert export(desk, "ntriples", prefix=prefix) == written
            triples = Triples()
            triples.update(export(desk, "sparql", prefix=prefix).decode())
            assert set(triples) == set(_loaded(written))
            turtle = {
                (t.subject, t.predicate, t.object)
                for t in parse(export(desk, "turtle", prefix=prefix), RdfFormat.TURTLE)
            }
            assert {(t.subject, t.predicate, t.object) for t in parse(written, RdfFormat.N_TRIPLES)} <= turtle
        assert export(desk, "tsv").decode() == "".join(f"{name}\ta <kind>\t{NASTY[0]}\n" for name in NASTY)
        refused = client.get(f"{desk.path}/export", params={"format": "ntriples", "prefix": "no prefix"})
        assert refused.status_code == 422 and "prefix" in refused.json()["detail"]
    store.close()


def _loaded(ntriples: bytes) -> Triples:
    found = Triples()
    found.load(ntriples, RdfFormat.N_TRIPLES)
    return found


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Triples, list[Any]]]:
    """A SPARQL 1.1 Update endpoint over a real store, on loopback."""
    triples, seen = Triples(), list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            seen.append(dict(self.headers))
            status = 204
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("location", "/update")
                self.end_headers()
                return
            if self.path != "/update":
                status = 403
            elif self.headers["content-type"] != "application/sparql-update":
                status = 415
            else:
                triples.update(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/update", triples, seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_facts_are_pushed_to_a_store(desk: Desk, endpoint: tuple[str, Triples, list[Any]]) -> None:
    url, triples, seen = endpoint
    pairs = accepted(desk)
    pushed = desk.post(f"{desk.path}/push", {"endpoint": url, "user": "ana", "password": "secret"})
    assert pushed == {"facts": 3, "requests": 1, "endpoint": url}
    assert {(t.subject.value, t.object.value) for t in triples} == {(iri_of(h), iri_of(t)) for h, t in pairs}
    assert seen[0]["authorization"].startswith("Basic ")
    desk.post(f"{desk.path}/push", {"endpoint": url})
    assert len(triples) == 3  # once more changes nothing
    desk.post(f"{desk.path}/push", {"endpoint": url, "target_graph": "http://example.org/graph"})
    assert {str(quad.graph_name) for quad in triples} == {"DEFAULT", "<http://example.org/graph>"}


@pytest.mark.parametrize(
    ("address", "status", "code", "words"),
    [
        ("/nowhere", 502, "endpoint", "403"),
        ("/moved", 502, "endpoint", "302"),
        ("file:///etc/passwd", 422, "invalid", "not a web address"),
        ("http://user:secret@127.0.0.1/update", 422, "invalid", "not a web address"),
        ("http://127.0.0.1:1/update", 502, "endpoint", "cannot be reached"),
    ],
)
def test_what_an_endpoint_refuses_is_told(
    desk: Desk, endpoint: tuple[str, Triples, list[Any]], address: str, status: int, code: str, words: str
) -> None:
    accepted(desk, 1)
    url = address if ":" in address else endpoint[0].replace("/update", address)
    answer = desk.client.post(f"{desk.path}/push", json={"endpoint": url})
    assert (answer.status_code, answer.json()["code"]) == (status, code) and words in answer.json()["detail"]


def test_a_service_for_others_pushes_only_where_it_was_told(
    path_model: TrainedModel, tmp_path: Path, endpoint: tuple[str, Triples, list[Any]]
) -> None:
    store = Store(tmp_path / "state")
    options = {"host": "0.0.0.0", "push_to": [endpoint[0]]}
    with client_of(Service(path_model, store), **options) as client:
        desk = Desk(client)
        desk.post(f"{desk.path}/verdicts", {"head": "plant", "tail": "organism", "verdict": "accept"})
        refused = client.post(f"{desk.path}/push", json={"endpoint": "http://127.0.0.1:1/update"})
        assert refused.status_code == 422 and "--push-to" in refused.json()["remedy"]
        assert desk.post(f"{desk.path}/push", {"endpoint": endpoint[0]})["facts"] == 1
    store.close()


def test_verdicts_are_imported_as_a_batch(desk: Desk) -> None:
    rows = "head\ttail\tverdict\ntissue\tcell\taccept\nvirus\tplant\treject\nplant\t-\tno_tail\n"
    batch = desk.post(f"{desk.path}/import", {"text": rows, "by": "ana"})
    assert batch["kind"] == "import" and batch["entries"] == 3
    assert desk.get("/cards/one", head="plant")["state"] == "no_tail" and desk.get("")["facts"] == 1
    assert desk.post(f"{desk.path}/import", {"text": rows})["entries"] == 0  # they hold already
    desk.post(f"{desk.path}/import", {"text": '"plant","organism"\n', "format": "csv"})
    assert desk.get("/cards/one", head="plant")["state"] == "accepted"
    log = export(desk, "log").decode()
    other = Desk(desk.client)
    assert other.post(f"{other.path}/import", {"text": log, "format": "log"})["entries"] == 4
    assert export(other, "tsv") == export(desk, "tsv")
    for text, words in (
        ("tissue\tcell\tperhaps\n", "line 1: unknown verdict"),
        ("x\n", "columns"),
        ("a\tb\n", "line 1"),
    ):
        wrong = desk.client.post(f"{desk.path}/import", json={"text": text})
        assert wrong.status_code == 422 and words in wrong.json()["detail"]
