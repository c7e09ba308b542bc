"""The service as its clients see it: every address and message of the HTTP API that the fault tests use."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

SECONDS = 60.0


@dataclass(frozen=True)
class Client:
    """Calls of one service."""

    address: str

    def call(self, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON of an answer; with a body it is posted."""
        asked = f"{self.address}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(asked, data, {"content-type": "application/json"}), timeout=SECONDS) as answer:
            return json.load(answer)

    def health(self) -> Any:
        """Whether it is up."""
        return self.call("/health")

    def teach(self, name: str, pairs: list[tuple[str, str]]) -> str:
        """Teach a relation: its id."""
        references = [{"head": head, "tail": tail} for head, tail in pairs]
        found: str = self.call("/v1/relations", {"name": name, "references": references})["id"]
        return found

    def relations(self) -> list[dict[str, Any]]:
        """The newest relations."""
        found: list[dict[str, Any]] = self.call("/v1/relations")["relations"]
        return found

    def learned(self, relation: str, seconds: float = SECONDS) -> None:
        """Wait until the model has learned from all verdicts, which it does in the background."""
        end = time.monotonic() + seconds
        while self.call(f"/v1/relations/{relation}")["learning"]:
            assert time.monotonic() < end, "the model still learns"
            time.sleep(0.02)

    def answers(self, relation: str, head: str, k: int = 10) -> list[dict[str, Any]]:
        """The predicted tails of a head."""
        found: list[dict[str, Any]] = self.call(f"/v1/relations/{relation}/answers", head=head, k=k)["answers"]
        return found

    def explain(self, relation: str, head: str, tail: str) -> dict[str, Any]:
        """Why a tail is predicted."""
        found: dict[str, Any] = self.call(f"/v1/relations/{relation}/explanation", head=head, tail=tail)
        return found

    def judge(self, relation: str, head: str, tail: str, verdict: str) -> Any:
        """Accept or reject a pair."""
        return self.call(f"/v1/relations/{relation}/verdicts", {"head": head, "tail": tail, "verdict": verdict})

    def delete(self, relation: str) -> None:
        """Delete a relation."""
        asked = Request(f"{self.address}/v1/relations/{relation}", method="DELETE")
        with urlopen(asked, timeout=SECONDS) as answer:
            answer.read()

    def search(self, text: str, k: int = 10) -> Any:
        """Entities that match a text."""
        return self.call("/v1/entities", q=text, k=k)

    def connected(self) -> socket.socket:
        """A plain connection."""
        place = urlsplit(self.address)
        assert place.hostname is not None
        assert place.port is not None
        return socket.create_connection((place.hostname, place.port), timeout=SECONDS)

    def said(self, message: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to some bytes."""
        with self.connected() as connection:
            connection.sendall(message)
            return answer_on(connection)


def answer_on(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The first answer on a connection that the service closes; mangled requests may be two."""
    found = b""
    while block := connection.recv(1 << 16):
        found += block
    head, _, body = found.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length")
    return int(first.split()[1]) if first else 0, headers, body if length is None else body[: int(length)]


def is_error(status: int, body: bytes) -> bool:
    """Whether a body is the documented error."""
    found = json.loads(body)
    return status >= 400 and {"code", "detail", "remedy"} <= found.keys()


def refusal(error: HTTPError) -> bool:
    """Whether an answer is the documented error."""
    return is_error(error.code, error.read())
