"""Mutated requests, as bytes on a connection: an answer below 500, errors as documented, nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from hire.data.dataset import FewShotDataset
from hire.service.middleware import Limits
from tests.faults.client import Client, is_error
from tests.faults.mutate import mutated, mutated_json
from tests.faults.running import running_service
from tests.faults.support import TORTURE
from tests.faults.test_inputs import SEED
from tests.support import random_model

CASES = 8_000 if TORTURE else 150
AT_ONCE = 8
PAIRS = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]
TEACH = {"name": "kind", "references": [{"head": head, "tail": tail} for head, tail in PAIRS]}
VERDICT = {"head": "cell", "tail": "tissue", "verdict": "accept"}
QUERIES = (
    *("/health", "/metrics", "/docs", "/openapi.json", "/page.js", "/v1/graph", "/v1/examples", "/v1/relations"),
    *("/v1/entities?q=cell&k=5", "/v1/relations/{id}", "/v1/relations/{id}/answers?head=cell&k=5"),
    *(
        "/v1/relations/{id}/explanation?head=cell&tail=tissue",
        "/v1/relations/{id}/export?format=ntriples&prefix=urn:x:",
        "/v1/relations/{id}/cards?order=useful&limit=5",
        "/v1/relations/{id}/estimate?threshold=0.9",
        "/v1/relations/{id}/history?limit=5",
    ),
)


@pytest.fixture(scope="module")
def client(umls: FewShotDataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state, model = tmp_path_factory.mktemp("state") / "relations.sqlite", random_model(umls)
    model.teach(PAIRS).explain("cell", "tissue")  # what has to be compiled may take longer than a request
    with running_service(model, state, Limits(head_seconds=0.2, seconds=1.0)) as found:
        yield found


def request_of(random: Random, relation: str) -> bytes:
    """A request, right or slightly wrong in its target, body or bytes."""
    target, body, method = random.choice(QUERIES).replace("{id}", relation).encode(), b"", b"GET"
    if random.random() < 0.4:
        judged = f"/v1/relations/{relation}/verdicts".encode()
        what, target = random.choice(((TEACH, b"/v1/relations"), (VERDICT, judged)))
        body, method = json.dumps(mutated_json(what, random)).encode(), b"POST"
    if random.random() < 0.5:
        target = mutated(target, random).replace(b" ", b"%20").replace(b"\n", b"%0A") or b"/"
    if random.random() < 0.2:
        body = mutated(body, random)
    lines = [method + b" " + target + b" HTTP/1.1", b"host: 127.0.0.1", b"connection: close"]
    if body:
        lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
    message = b"\r\n".join(lines) + b"\r\n\r\n" + body
    return mutated(message, random, 2) if random.random() < 0.3 else message


def test_whatever_is_sent_gets_an_answer_as_documented(client: Client, tell: Callable[..., None]) -> None:
    relation = client.teach("kind", PAIRS)

    def status_of(case: int) -> int:
        message = request_of(Random(f"{SEED} http {case}"), relation)
        try:
            status, _, body = client.said(message)
        except ConnectionError:
            return 0  # closed while it was still being sent
        assert status < 500 or status == 504, (case, message, body)  # 504 if a body is shorter than announced
        if status >= 400 and not message.startswith(b"HEAD"):
            assert is_error(status, body), (case, message, body)
        return status

    with ThreadPoolExecutor(AT_ONCE) as pool:  # some are waited for until their time is over
        statuses = Counter(pool.map(status_of, range(CASES)))
    assert {200, 201, 400, 404, 422} <= statuses.keys()
    assert client.health() == {"status": "ok"}
    answered = sum(count for status, count in statuses.items() if 200 <= status < 300)
    tell("mutated inputs", "HTTP requests", cases=CASES, read=answered)
