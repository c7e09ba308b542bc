import gzip
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import urllib3
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, QueryResultsFormat, QuerySolutions, Store

from hire import __version__
from hire.data.sources import sparql
from hire.data.sources.columns import Columns, TripleTable
from hire.data.sources.sparql import read_sparql
from hire.errors import HireError

E = "http://e/"
TYPE = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
LABEL = NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
KNOWS = NamedNode(f"{E}knows")

Fault = Callable[["Handler", bytes], None]


class Endpoint(ThreadingHTTPServer):
    """A SPARQL endpoint with a real engine, which fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/sparql"
        self.store = Store()
        self.asked: list[int] = []  # the offsets, in order
        self.requests: list[dict[str, str]] = []  # headers
        self.faults: dict[int, list[Fault]] = {}  # offset -> what happens instead of an answer, once each
        self.max_rows = 1_000_000
        self.over = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone is what some tests are about


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet: no waiting for its acknowledgement
    server: Endpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        query = form["query"][0]
        limit, offset = (int(number) for number in re.findall(r"(?:LIMIT|OFFSET) (\d+)", query))
        self.server.asked.append(offset)
        self.server.requests.append(dict(self.headers))
        result = self.server.store.query(query.replace(f"LIMIT {limit}", f"LIMIT {min(limit, self.server.max_rows)}"))
        assert isinstance(result, QuerySolutions)
        body = result.serialize(format=QueryResultsFormat.JSON)
        assert body is not None
        faults = self.server.faults.get(offset, [])
        (faults.pop(0) if faults else answer)(self, body)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(handler: Handler, body: bytes) -> None:
    handler.send(200, body)


def busy(handler: Handler, _body: bytes) -> None:
    handler.send(503, b"too busy")


def drop(handler: Handler, body: bytes) -> None:
    handler.send(200, body[: len(body) // 2], Content_Length=str(len(body)))
    handler.close_connection = True


def truncate(handler: Handler, body: bytes) -> None:
    handler.send(200, body[:-2])


def stall(handler: Handler, _body: bytes) -> None:
    handler.server.over.wait(10)
    handler.close_connection = True


def vanish(handler: Handler, _body: bytes) -> None:
    handler.close_connection = True


def babble(handler: Handler, _body: bytes) -> None:
    handler.wfile.write(b"\xff\x00 no HTTP\r\n\r\n")
    handler.close_connection = True


def reply(status: int, body: bytes, **headers: str) -> Fault:
    return lambda handler, _body: handler.send(status, body, **headers)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with sparql_endpoint() as server:
        for i in range(7):
            server.store.add(Quad(NamedNode(f"{E}{i}"), KNOWS, NamedNode(f"{E}{i + 1}")))
        yield server


@contextmanager
def sparql_endpoint() -> Iterator[Endpoint]:
    """An endpoint without facts."""
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def rows(columns: Columns) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in columns.arrays()), strict=True))


CHAIN = [(f"{E}{i}", f"{E}knows", f"{E}{i + 1}") for i in range(7)]


def read(endpoint: Endpoint, work: Path, **options: Any) -> TripleTable:
    return read_sparql(endpoint.url, work, **{"page_size": 2, "backoff_seconds": 0.001, **options})


def refusal(endpoint: Endpoint, work: Path, **options: Any) -> HireError:
    with pytest.raises(HireError) as caught:
        read(endpoint, work, **options)
    assert caught.value.problems[0].remedy
    return caught.value


def test_pages_are_read_in_order_and_kept(endpoint: Endpoint, tmp_path: Path) -> None:
    table = read(endpoint, tmp_path / "work")
    assert rows(table.triples) == CHAIN
    assert table.source == endpoint.url
    assert endpoint.asked == [0, 2, 4, 6, 7]
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == [
        *(f"page-{number:06d}.srj" for number in range(1, 6)),
        "state.json",
    ]
    assert endpoint.requests[0]["User-Agent"] == f"hire/{__version__}"
    assert endpoint.requests[0]["Accept"] == "application/sparql-results+json"
    assert endpoint.requests[0]["Content-Type"] == "application/x-www-form-urlencoded"


def test_an_endpoint_that_gives_less_than_a_page_at_once_is_read_to_its_end(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.max_rows = 3
    assert rows(read(endpoint, tmp_path, page_size=5).triples) == CHAIN


def test_the_rules_of_rdf_files_hold(endpoint: Endpoint, tmp_path: Path) -> None:
    zero = NamedNode(f"{E}0")
    facts: list[tuple[NamedNode, NamedNode | BlankNode | Literal]] = [
        (TYPE, NamedNode(f"{E}Number")),
        (LABEL, Literal("zero \n 0", language="en-GB")),
        (LABEL, Literal("null", language="de")),
        (NamedNode(f"{E}value"), Literal(0)),
        (KNOWS, BlankNode("x")),
    ]
    for relation, object_ in facts:
        endpoint.store.add(Quad(zero, relation, object_))
    table = read(endpoint, tmp_path / "default")
    assert rows(table.triples) == CHAIN
    assert rows(table.types) == [(f"{E}0", f"{E}Number")]
    assert rows(table.labels) == [(f"{E}0", "zero 0")]
    assert table.skipped == {"labels in other languages": 1, "blank nodes": 1}  # the default query asks for no values
    table = read(endpoint, tmp_path / "all", query="SELECT ?s ?p ?o { ?s ?p ?o }", language="de")
    assert rows(table.labels) == [(f"{E}0", "null")]
    assert table.skipped == {"labels in other languages": 1, "blank nodes": 1, "literal objects": 1}


def test_rows_that_are_no_triples_are_counted(endpoint: Endpoint, tmp_path: Path) -> None:
    def row(**terms: Any) -> dict[str, Any]:
        uri = {"type": "uri", "value": f"{E}x"}
        return {"s": uri, "p": uri, "o": uri, **terms}

    odd = [
        row(),
        row(o={}),
        row(s={"type": "literal", "value": "x"}),
        row(o={"type": "triple", "value": {}}),
        row(s={"type": "uri", "value": "http://e/a b"}),
        row(o={"type": "uri", "value": "\ud800"}),
        row(o={"type": "uri"}),
        row(p={"type": "uri", "value": str(LABEL.value)}, o={"type": "literal", "value": "x", "xml:lang": "no tag"}),
    ]
    document = {"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": odd}, "meta": {"query-time-ms": 1}}
    endpoint.faults[0] = [reply(200, json.dumps(document).encode())]
    table = read(endpoint, tmp_path)
    assert len(table.triples) == 1
    assert table.skipped == {"rows that are not statements": 2, "quoted triples": 1, "malformed terms": 4}


def test_a_query_keeps_its_prefixes_and_comments(endpoint: Endpoint, tmp_path: Path) -> None:
    query = f"""# people
        prefix e: <{E}>
        BASE <{E}> PREFIX : <{E}#>  # all of them
        select $s ?p ?o where {{ $s ?p ?o FILTER(?s IN (e:1, <2>)) }} # the end"""
    assert rows(read(endpoint, tmp_path, query=query).triples) == CHAIN[1:3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("ASK { ?s ?p ?o }", "is not a SELECT"),
        ("", "is not a SELECT"),
        ("PREFIX s: <http://e/> CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }", "is not a SELECT"),
        ("SELECT ?s ?po { ?s e:p ?po }", r"does not mention \?p, \?o"),
    ],
)
def test_an_unusable_query_is_told_before_the_endpoint_is_asked(
    endpoint: Endpoint, tmp_path: Path, query: str, message: str
) -> None:
    assert re.search(message, str(refusal(endpoint, tmp_path, query=query)))
    assert not endpoint.asked


def test_a_page_without_rows_is_refused(endpoint: Endpoint, tmp_path: Path) -> None:
    assert "page size is 0" in str(refusal(endpoint, tmp_path, page_size=0))


def test_an_endpoint_without_triples_is_an_error(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.store.clear()
    assert "no triples" in str(refusal(endpoint, tmp_path))


@pytest.mark.parametrize(
    "fault", [busy, drop, truncate, vanish, babble, reply(200, b"[1]"), reply(200, b"[" * 100_000)]
)
def test_passing_faults_are_survived(endpoint: Endpoint, tmp_path: Path, fault: Fault) -> None:
    endpoint.faults = {0: [fault], 2: [fault, fault]}
    assert rows(read(endpoint, tmp_path).triples) == CHAIN
    assert endpoint.asked == [0, 0, 2, 2, 2, 4, 6, 7]


def test_a_stall_is_cut_short_and_asked_again(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.faults[2] = [stall]
    start = time.monotonic()
    assert rows(read(endpoint, tmp_path, timeout_seconds=0.3).triples) == CHAIN
    assert endpoint.asked == [0, 2, 2, 4, 6, 7]
    assert time.monotonic() - start < 9  # the stall lasts 10


def test_waits_grow_and_follow_the_endpoint(endpoint: Endpoint, tmp_path: Path, sleeps: list[float]) -> None:
    endpoint.faults[0] = [busy, busy, busy, reply(429, b"", Retry_After="0"), reply(429, b"", Retry_After="3600")]
    endpoint.faults[2] = [reply(503, b"", Retry_After="7"), reply(429, b"", Retry_After="soon"), busy]
    read(endpoint, tmp_path, backoff_seconds=0.5)
    assert sleeps == [0.5, 1, 2, 0, 60, 7, 1, 2]


def test_a_wrong_request_is_told_at_once(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.faults[2] = [reply(400, b"Parse error:\n unknown prefix" + b" x" * 500)]
    message = str(refusal(endpoint, tmp_path))
    assert f"{endpoint.url}: the endpoint answered 400: Parse error: unknown prefix x x" in message
    assert 200 < len(message) < 300
    assert endpoint.asked == [0, 2]


def test_a_mistake_that_brought_no_page_can_be_mended(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.faults[0] = [reply(404, b"")]
    assert "answered 404: Not Found" in str(refusal(endpoint, tmp_path, page_size=3))
    assert rows(read(endpoint, tmp_path).triples) == CHAIN


def test_a_lasting_failure_names_the_page_and_the_next_run_resumes_there(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.faults[4] = [busy] * 3
    error = refusal(endpoint, tmp_path, retries=2)
    assert f"{endpoint.url}: cannot fetch page 3: the endpoint answered 503: too busy (3 attempts)" in str(error)
    assert "same command again" in str(error.problems[0].remedy)
    assert endpoint.asked == [0, 2, 4, 4, 4]
    endpoint.asked.clear()
    assert rows(read(endpoint, tmp_path).triples) == CHAIN
    assert endpoint.asked == [4, 6, 7]
    endpoint.asked.clear()
    assert rows(read(endpoint, tmp_path).triples) == CHAIN
    assert not endpoint.asked


def test_no_endpoint_at_all_is_a_lasting_failure(tmp_path: Path, sleeps: list[float]) -> None:
    with Endpoint() as server:
        pass
    assert "cannot fetch page 1" in str(refusal(server, tmp_path, retries=1))
    assert len(sleeps) == 1


def test_an_interruption_leaves_whole_pages_only(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    endpoint.faults[2] = [drop]
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            read(endpoint, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page-000001.srj", "state.json"]
    (tmp_path / "page-000002.srj").touch()  # as a power cut may leave it
    endpoint.asked.clear()
    assert rows(read(endpoint, tmp_path).triples) == CHAIN
    assert endpoint.asked == [2, 4, 6, 7]


@pytest.mark.parametrize(
    ("changed", "name"), [({"page_size": 3}, "page size"), ({"query": "SELECT ?s ?p ?o { ?s ?p ?o }"}, "query")]
)
def test_pages_of_another_download_are_not_mixed_in(
    endpoint: Endpoint, tmp_path: Path, changed: dict[str, Any], name: str
) -> None:
    read(endpoint, tmp_path)
    endpoint.asked.clear()
    error = refusal(endpoint, tmp_path, **changed)
    assert f"{tmp_path}: contains pages of another download (different {name})" in str(error)
    assert "delete the directory" in str(error.problems[0].remedy)
    with pytest.raises(HireError, match=r"another download \(different endpoint\)"):
        read_sparql(f"{endpoint.url}2", tmp_path, page_size=2)
    assert not endpoint.asked


@pytest.mark.parametrize("state", [None, b"", b"[]", b"\xff"])
def test_pages_of_an_unknown_download_are_not_mixed_in(endpoint: Endpoint, tmp_path: Path, state: bytes | None) -> None:
    read(endpoint, tmp_path)
    (tmp_path / "state.json").unlink()
    if state is not None:
        (tmp_path / "state.json").write_bytes(state)
    assert "another download" in str(refusal(endpoint, tmp_path))


def test_redirects_are_followed_within_http(endpoint: Endpoint, tmp_path: Path) -> None:
    for status, location in [(307, f"{endpoint.url}/elsewhere"), (301, "/relative")]:
        endpoint.faults[0] = [reply(status, b"", Location=location)]
        assert rows(read(endpoint, tmp_path / str(status)).triples) == CHAIN
    endpoint.faults[0] = [reply(302, b"", Location="file:///etc/passwd")]
    assert "redirects to file:///etc/passwd" in str(refusal(endpoint, tmp_path / "file"))
    endpoint.faults[0] = [reply(302, b"", Location="/again")] * 50
    endpoint.asked.clear()
    assert "redirects" in str(refusal(endpoint, tmp_path / "loop"))
    assert len(endpoint.asked) < 20


def test_a_redirect_to_an_unencrypted_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def redirect(*_request: Any, **_options: Any) -> urllib3.HTTPResponse:
        return urllib3.HTTPResponse(io.BytesIO(), {"Location": "http://e/sparql"}, 301, preload_content=False)

    monkeypatch.setattr(urllib3.PoolManager, "request", redirect)
    with pytest.raises(HireError, match="redirects to http://e/sparql"):
        read_sparql("https://e/sparql", tmp_path)


@pytest.mark.parametrize("url", ["", "example.org/sparql", "ftp://e/", "http://", "http://[e/", "http://e:99999/"])
def test_an_unusable_address_is_told_at_once(tmp_path: Path, sleeps: list[float], url: str) -> None:
    with pytest.raises(HireError, match="URL"):
        read_sparql(url, tmp_path)
    assert not sleeps


def test_compressed_answers_are_read(endpoint: Endpoint, tmp_path: Path) -> None:
    def zip(handler: Handler, body: bytes) -> None:
        assert "gzip" in handler.headers["Accept-Encoding"]
        handler.send(200, gzip.compress(body), Content_Encoding="gzip")

    endpoint.faults[0] = [zip]
    assert rows(read(endpoint, tmp_path, retries=0).triples) == CHAIN


def test_an_endless_answer_is_refused(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparql, "MAX_PAGE_BYTES", 1 << 21)
    endpoint.faults[0] = [reply(200, gzip.compress(b" " * (1 << 25)), Content_Encoding="gzip")]
    error = refusal(endpoint, tmp_path)
    assert "larger than 2,097,152 bytes" in str(error)
    assert "--page-size" in str(error.problems[0].remedy)
    assert endpoint.asked == [0]


def test_a_work_directory_that_cannot_be_made_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HireError, match="file/work"):
        read(endpoint, tmp_path / "file" / "work")
