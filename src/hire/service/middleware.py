"""What stands between the network and the service: access checks, limits, worker threads, and request metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from hire.errors import HireError
from hire.service.problems import MEDIA_TYPE, problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
P = ParamSpec("P")
T = TypeVar("T")

# These show nothing of the data, and a browser sends no token when it opens a page.
OPEN_PATHS = frozenset({"/favicon.ico", "/health", "/docs", "/openapi.json"})  # and the files of the page
# Streams, which may last: events, and predictions for many heads.
ENDLESS, STREAMED = ("/v1/events",), "/predictions"
SHARED = "/v1/reconcile"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)  # seconds
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Limits of one service."""

    body_bytes: int = 1 << 20
    seconds: float = 30.0  # for one request
    threads: int = 2  # model calls at once
    waiting: int = 64  # model calls in the queue
    connections: int = 512  # open at once; fewer if the process may open few files
    head_seconds: float = 10.0  # until the head of a request has arrived
    idle_seconds: float = 5.0  # between two requests of a connection
    stall_seconds: float = 20.0  # in which a client reads nothing of its answer


class BusyError(HireError):
    """The queue is full."""


class Workers:
    """Threads that call the model, with a bounded queue in front of them."""

    def __init__(self, limits: Limits) -> None:
        self.max_calls = limits.threads + limits.waiting
        self.busy = 0  # calls running or waiting; one whose client has gone counts until it ends
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="model")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread; an error at once if the queue is full."""
        with self._lock:
            if self.busy >= self.max_calls:
                raise BusyError("the service is overloaded", remedy="try again in a second")
            self.busy += 1
        future = self._pool.submit(work, *args, **kwargs)
        future.add_done_callback(lambda _done: self._end())
        return await asyncio.wrap_future(future)

    def _end(self) -> None:
        with self._lock:
            self.busy -= 1

    def close(self) -> None:
        """Finish running calls and drop waiting ones."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Metrics:
    """Request counts and durations, in the text format of Prometheus."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self.buckets: Counter[float] = Counter()
        self.seconds = 0.0

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[method, route, status] += 1
        self.seconds += seconds
        self.buckets[next((bucket for bucket in BUCKETS if seconds <= bucket), float("inf"))] += 1

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All counts, and gauges with their meanings and current values."""
        lines = ["# HELP hire_requests_total Requests answered.", "# TYPE hire_requests_total counter"]
        for (method, route, status), count in sorted(self.requests.items()):
            lines.append(f'hire_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines += ["# HELP hire_request_seconds Duration of requests.", "# TYPE hire_request_seconds histogram"]
        total = 0
        for bucket in (*BUCKETS, float("inf")):
            total += self.buckets[bucket]
            lines.append(f'hire_request_seconds_bucket{{le="{"+Inf" if bucket == float("inf") else bucket}"}} {total}')
        lines += [f"hire_request_seconds_sum {self.seconds:.6f}", f"hire_request_seconds_count {total}"]
        for name, (meaning, value) in gauges.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


class TooLargeError(HTTPException):
    """A body is too long; while FastAPI reads a body, it lets only HTTPExceptions through."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(413, f"the request is larger than {max_bytes:,} bytes")
        self.remedy = "split it into smaller requests"


class Guard:
    """Passes on only requests that the application should answer, and adds security headers to every response."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        host: str,
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        self.app = app
        self.open_paths = open_paths
        self.limits = limits
        self.metrics = metrics
        self.token = None if token is None else token.encode()
        self.hosts = {"localhost", "127.0.0.1", "::1", host} if is_loopback(host) else None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *(pair for pair in more if pair[0] not in named)]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refuse(guarded_send, *refusal)
                return
            endless = scope["path"] in ENDLESS or scope["path"].endswith(STREAMED)
            async with asyncio.timeout(None if endless else self.limits.seconds):
                await self.app(scope, self._limited(receive), guarded_send)
        except TimeoutError:
            if not status:
                seconds = f"{self.limits.seconds:g} s"
                await refuse(
                    guarded_send, 504, f"the request took longer than {seconds}", "ask for less, or try again later"
                )
        except asyncio.CancelledError:  # the service ends, and this took longer than it waits for
            if not status:
                await refuse(guarded_send, 503, "the service is stopping", "try again when it is up")
        except Exception:
            logging.getLogger("hire").exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                await refuse(guarded_send, 500, "internal error", "see the log of hire serve")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PATCH", "DELETE") else "other"
            self.metrics.count(method, route, status, time.perf_counter() - start)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str, str] | None:
        """Status, error and remedy of a request to refuse; None to pass it on."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self.hosts is not None and _host_name(host) not in self.hosts:
            return 421, "this host name is not served", "open http://127.0.0.1 or http://localhost instead"
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != host and not self._shares(scope["path"], origin):
            return 403, "requests from pages of other sites are refused", "open the service's own page"
        if self.token is not None and scope["path"] not in self.open_paths:
            kind, _, given = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode("latin-1"), self.token)
            if kind.lower() != "bearer" or not right:
                return 401, "the token is missing or wrong", "send it as Authorization: Bearer TOKEN"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > self.limits.body_bytes:
            error = TooLargeError(self.limits.body_bytes)
            return error.status_code, error.detail, error.remedy
        return None

    def _shares(self, path: str, origin: str) -> bool:
        """Whether a path answers a page of this machine that another program serves, as OpenRefine does."""
        name = _host_name(urlsplit_host(origin) or "")
        return path.startswith(SHARED) and self.hosts is not None and name is not None and is_loopback(name)

    def _limited(self, receive: Receive) -> Receive:
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limits.body_bytes:
                raise TooLargeError(self.limits.body_bytes)
            return message

        return limited


async def refuse(send: Send, status: int, error: str, remedy: str) -> None:
    """Answer with an error."""
    body = json.dumps(problem(status, error, remedy)).encode()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def urlsplit_host(origin: str) -> str | None:
    """The host and port of an origin, or None."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
