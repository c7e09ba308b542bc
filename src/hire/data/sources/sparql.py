"""Triples from a SPARQL endpoint, page by page, so that an interrupted download can be resumed."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pyoxigraph import Literal, NamedNode, Quad

from hire import __version__
from hire.data.sources.columns import TripleTable
from hire.data.sources.http import request
from hire.data.sources.rdf import LABEL, collapse, collect
from hire.errors import HireError
from hire.progress import track
from hire.util.files import atomic_file, explain_os_errors

if TYPE_CHECKING:
    import urllib3

DEFAULT_QUERY = f"SELECT ?s ?p ?o WHERE {{ ?s ?p ?o FILTER(isIRI(?o) || isBlank(?o) || ?p = <{LABEL}>) }}"
MAX_PAGE_BYTES = 256 << 20
MAX_WAIT_SECONDS = 60.0
BLOCK_BYTES = 1 << 20

Row = dict[str, dict[str, Any]]  # variable -> term, as in the SPARQL 1.1 JSON results


def read_sparql(
    endpoint: str,
    work: Path,
    *,
    query: str | None = None,
    page_size: int = 10_000,
    timeout_seconds: float = 60.0,
    retries: int = 5,
    backoff_seconds: float = 0.5,
    language: str = "en",
) -> TripleTable:
    """Read the results of a SELECT ?s ?p ?o query; pages are stored in `work`, from which the same call resumes."""
    query = DEFAULT_QUERY if query is None else query
    prologue, select = _split(query)
    if page_size < 1:
        raise HireError(f"the page size is {page_size}", remedy="use 1 or more")
    _claim(work, {"endpoint": endpoint, "query": query, "page_size": page_size})
    client = _Client(endpoint, timeout_seconds, retries, backoff_seconds)
    pages: list[Path] = []
    offset = 0
    with track(f"Reading {endpoint}") as advance, closing(client):
        # Only an empty page is the end: the endpoint may have a limit below the page size.
        while True:
            page = work / f"page-{len(pages) + 1:06d}.srj"
            rows = _stored_rows(page)
            if rows is None:
                # The line breaks keep a comment at the end of the query from hiding what follows.
                asked = f"{prologue}\nSELECT ?s ?p ?o WHERE {{ {{\n{select}\n}} }}\nORDER BY ?s ?p ?o"
                body, rows = client.fetch(f"{asked} LIMIT {page_size} OFFSET {offset}", page=len(pages) + 1)
                with atomic_file(page) as partial:
                    partial.write_bytes(body)
            if not rows:
                break
            pages.append(page)
            offset += len(rows)
            advance(len(rows))
    table = TripleTable(endpoint)
    collect(_quads(pages, table.skipped), table, language)
    if not (len(table.triples) or len(table.labels) or len(table.types)):
        raise HireError("the query returned no triples", file=endpoint, remedy=f"check the query, then delete {work}")
    return table


def _split(query: str) -> tuple[str, str]:
    """The PREFIX and BASE declarations of a query, which a subquery must not have, and the rest."""
    prologue = re.match(r"(?:\s|#[^\n]*|PREFIX\s+[^\s:]*:\s*<[^>]*>|BASE\s*<[^>]*>)*", query, re.IGNORECASE)
    end = prologue.end() if prologue else 0
    is_select = re.match(r"SELECT\b", query[end:], re.IGNORECASE)
    missing = [f"?{name}" for name in "spo" if not re.search(rf"[?$]{name}\b", query[end:])]
    if not is_select or missing:
        wrong = f"does not mention {', '.join(missing)}" if is_select else "is not a SELECT query"
        raise HireError(f"the query {wrong}", remedy="write it as SELECT ?s ?p ?o WHERE { ... }")
    return query[:end], query[end:]


def _claim(work: Path, state: dict[str, Any]) -> None:
    """Make sure that the pages in `work` belong to the same download."""
    path = work / "state.json"
    found: Any = None
    with explain_os_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        if not any(work.glob("page-*")):
            with atomic_file(path) as partial:
                partial.write_text(json.dumps(state, indent=1), encoding="utf-8")
            return
        with suppress(FileNotFoundError, ValueError, RecursionError):
            found = json.loads(path.read_bytes())
    if found != state:
        different = [
            key.replace("_", " ") for key in state if not isinstance(found, dict) or found.get(key) != state[key]
        ]
        raise HireError(
            f"contains pages of another download (different {', '.join(different)})",
            file=work,
            remedy="delete the directory, or run the command that started that download",
        )


def _stored_rows(page: Path) -> list[Row] | None:
    with explain_os_errors(page):
        try:
            return _rows(page.read_bytes())
        except (FileNotFoundError, ValueError):  # a page emptied by a power failure is requested again
            return None


def _rows(body: bytes) -> list[Row]:
    """The rows of a page; a ValueError if it is malformed."""
    try:
        rows = json.loads(body)["results"]["bindings"]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError("not a SPARQL result table") from error
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and all(isinstance(term, dict) for term in row.values()) for row in rows
    ):
        raise ValueError("not a SPARQL result table")
    return rows


def _quads(pages: list[Path], skipped: Counter[str]) -> Iterator[Quad]:
    for page in pages:
        rows = _stored_rows(page)
        if rows is None:
            raise HireError(
                "disappeared while it was in use", file=page, remedy="run only one build at a time, and try again"
            )
        for row in rows:
            terms = [row.get(name, {}) for name in "spo"]
            kinds = [term.get("type") for term in terms]
            if "bnode" in kinds:  # its label means nothing on another page
                skipped["blank nodes"] += 1
            elif "triple" in kinds:
                skipped["quoted triples"] += 1
            elif kinds[:2] != ["uri", "uri"] or kinds[2] is None:
                skipped["rows that are not statements"] += 1
            else:
                try:
                    subject, relation = (NamedNode(term["value"]) for term in terms[:2])
                    text, language = terms[2]["value"], terms[2].get("xml:lang")
                    object_ = NamedNode(text) if kinds[2] == "uri" else Literal(text, language=language)
                except (KeyError, TypeError, ValueError):
                    skipped["malformed terms"] += 1
                else:
                    yield Quad(subject, relation, object_)


class _Client:
    """Requests pages from an endpoint, with retries."""

    def __init__(self, endpoint: str, timeout_seconds: float, retries: int, backoff_seconds: float) -> None:
        import urllib3

        self.endpoint = endpoint
        self.retries = max(0, retries)
        self.backoff_seconds = backoff_seconds
        self._pool = urllib3.PoolManager(timeout=timeout_seconds)

    def close(self) -> None:
        self._pool.clear()

    def fetch(self, query: str, page: int) -> tuple[bytes, list[Row]]:
        """A page as sent by the endpoint, and its rows."""
        from urllib3 import Retry
        from urllib3.exceptions import HTTPError, LocationValueError

        for failures in range(self.retries + 1):
            wait_seconds = self.backoff_seconds * 2**failures
            try:
                with closing(self._post(query)) as response:
                    if response.status == 200:
                        body = self._body(response)
                        return body, _rows(body)
                    answer = collapse(response.read(4096).decode("utf-8", "replace"))[:200]
                    reason = f"the endpoint answered {response.status}: {answer or response.reason}"
                    if response.status != 429 and response.status < 500:
                        raise self._error(reason, "check the URL and the query")
                    asked_seconds = Retry().get_retry_after(response)
                    wait_seconds = wait_seconds if asked_seconds is None else asked_seconds
            except LocationValueError as error:
                raise self._error(f"is not a valid URL ({error})", "check the spelling") from error
            except HTTPError as error:
                reason = str(error)
            except ValueError as error:
                reason = f"the response is truncated or malformed ({error})"
            if failures < self.retries:
                time.sleep(min(wait_seconds, MAX_WAIT_SECONDS))
        raise self._error(
            f"cannot fetch page {page}: {reason} ({self.retries + 1} attempts)",
            "check the connection and run the same command again to continue",
        )

    def _post(self, query: str) -> urllib3.BaseHTTPResponse:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/sparql-results+json",
            "Accept-Encoding": "gzip",
            "User-Agent": f"hire/{__version__}",
        }
        return request(self._pool, "POST", self.endpoint, body=urlencode({"query": query}), headers=headers)

    def _body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body = bytearray()
        for block in response.stream(BLOCK_BYTES):
            body += block
            if len(body) > MAX_PAGE_BYTES:
                raise self._error(f"a page is larger than {MAX_PAGE_BYTES:,} bytes", "use a smaller --page-size")
        return bytes(body)

    def _error(self, message: str, remedy: str) -> HireError:
        return HireError(message, file=self.endpoint, remedy=remedy)
