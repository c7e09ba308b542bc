"""Write accepted facts to a SPARQL endpoint."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import urlsplit

import urllib3

from hire.data.iri import PREFIX
from hire.errors import HireError
from hire.inference.export import Fact, sparql_updates

SECONDS = 20.0
SHOWN = 200  # characters of what an endpoint says


class EndpointError(HireError):
    """A SPARQL endpoint did not take the facts."""


def push(
    facts: Iterable[Fact],
    endpoint: str,
    *,
    graph: str | None = None,
    prefix: str = PREFIX,
    user: str | None = None,
    password: str | None = None,
) -> int:
    """Insert facts by SPARQL 1.1 Update; returns the number of requests. Known facts change nothing."""
    address = urlsplit(endpoint)
    if address.scheme not in ("http", "https") or not address.hostname or address.username is not None:
        raise HireError("the endpoint is not a web address", remedy="give one such as http://127.0.0.1:7878/update")
    headers = {"content-type": "application/sparql-update", "user-agent": "hire"}
    if user is not None:
        told = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
        headers["authorization"] = f"Basic {told}"
    count = 0
    with urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=SECONDS)) as pool:
        for update in sparql_updates(facts, graph, prefix):
            _send(pool, endpoint, update, headers)
            count += 1
    return count


def _send(pool: urllib3.PoolManager, endpoint: str, update: str, headers: dict[str, str]) -> None:
    try:
        answer = pool.request("POST", endpoint, body=update.encode(), headers=headers, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        raise EndpointError(
            f"the endpoint cannot be reached ({type(error).__name__})", remedy="check its address, then push again"
        ) from error
    if not 200 <= answer.status < 300:
        said = " ".join(answer.data[:SHOWN].decode("utf-8", "replace").split())
        raise EndpointError(
            f"the endpoint answered {answer.status}: {said}",
            remedy="check its address and your access, then push again",
        )
