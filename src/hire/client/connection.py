"""The connection to a service: requests that are carried out just once, and streams."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

from hire.errors import HireError

TRIES = 5
SECONDS_BETWEEN_TRIES = 1.0

Json = dict[str, Any]


class ServiceError(HireError):
    """What a service refuses: its status, its code and, if others decided otherwise, their entry of the log."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail", "the service failed")), remedy=problem.get("remedy"))
        self.status = int(problem.get("status", 0))
        self.code = str(problem.get("code", ""))
        self.conflict: Json | None = problem.get("conflict")


class Connection:
    """A service, and who asks it."""

    def __init__(self, url: str, token: str | None, by: str, seconds: float) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.by = by
        self.seconds = seconds
        self.client = uuid.uuid4().hex
        self._pool = urllib3.PoolManager(retries=False)

    @property
    def author(self) -> Json:
        """Who judges, in the body of a request."""
        return {"by": self.by, "client": self.client}

    def pages(self, path: str, key: str, query: Mapping[str, Any] | None = None) -> Iterator[Json]:
        """The items of all pages of a list."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**(query or {}), "cursor": cursor})
            yield from page[key]
            cursor = page["next"]
            if cursor is None:
                return

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Json:
        """The JSON answer to a request under /v1.

        A request that was not answered is repeated with the same idempotency key, so that it is carried out just once.
        """
        answer = self._repeated(method, path, body, query)
        return json.loads(answer.data) if answer.data else {}

    def text(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """The answer to a request as text."""
        content: bytes = self._repeated("GET", path, None, query).data
        return content.decode()

    def _repeated(self, method: str, path: str, body: Any, query: Mapping[str, Any] | None) -> Any:
        headers = {"idempotency-key": uuid.uuid4().hex} if method == "POST" else {}
        for tries in range(TRIES):
            try:
                return self.send(method, path, body, query, headers)
            except ServiceError as error:
                again = error.status in (503, 504) or error.code == "in-progress"
                if not again or tries == TRIES - 1:
                    raise
            time.sleep(SECONDS_BETWEEN_TRIES)
        raise AssertionError

    def send(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        *,
        stream: bool = False,
    ) -> Any:
        """The response to a request; a stream is not read yet."""
        sent = {**headers, "accept": "application/json", "user-agent": "hire"}
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        if body is not None:
            sent["content-type"] = "application/json"
        fields = [
            (name, _written(each))
            for name, value in (query or {}).items()
            if value is not None
            for each in (value if isinstance(value, list | tuple) else [value])
        ]
        address = f"{self.url}/v1{path}" + (f"?{urlencode(fields)}" if fields else "")
        try:
            answer = self._pool.request(
                method,
                address,
                body=None if body is None else json.dumps(body).encode(),
                headers=sent,
                timeout=urllib3.Timeout(connect=self.seconds, read=None if stream else self.seconds),
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ServiceError(
                {
                    "status": 503,
                    "code": "unreachable",
                    "detail": f"{self.url} does not respond ({type(error).__name__})",
                    "remedy": "check that hire serve is running there",
                }
            ) from error
        if answer.status >= 400:
            raise ServiceError(_problem(answer.status, answer.data))
        return answer


def items(received: Iterator[str]) -> Iterator[Json]:
    """The items of an NDJSON stream; an error if it tells of one, or ends too early."""
    for line in received:
        found = json.loads(line)
        if "problem" in found:
            raise ServiceError(found["problem"])
        if found.get("end"):
            return
        yield found
    raise HireError("the service ended its answer too early", remedy="ask again for the heads that are missing")


def lines(answer: Any) -> Iterator[str]:
    """The lines of a streamed response."""
    rest = b""
    try:
        for block in answer.stream(1 << 16):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield line.decode()
    except urllib3.exceptions.HTTPError as error:
        raise HireError("the connection was lost", remedy="try again") from error
    finally:
        answer.close()


def _problem(status: int, content: bytes) -> Json:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"status": status, "detail": f"the service answered {status}"}


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
