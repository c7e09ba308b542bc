"""The server process: bounded connections, deadlines for those that say nothing, JSON errors, and a sparing log.

An idle or half-open connection costs a file descriptor. When all are taken, nobody else can connect, so their number is
bounded below the limit of the process, the longest idle one makes room for a new one, and none may wait for long.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hire.service.middleware import HEADERS, Limits, Message, refuse

SECONDS_TO_END = 5  # for requests in progress when the service is stopped
OTHER_DESCRIPTORS = 64  # files, the database, the listener, and connections that are just being accepted
FEWEST_CONNECTIONS = 8
ACCEPTED_AT_ONCE = 16
WAITING_TO_BE_ACCEPTED = 1_024
LARGEST_HEAD = 64 << 10  # bytes of a request line and its headers
SECONDS_BETWEEN_REPEATS = 60.0  # of a message in the log
MAX_MESSAGES = 1_000  # distinct ones that are remembered


def make_server(app: Any, limits: Limits) -> uvicorn.Server:
    """A server for an application, to be run on a listening socket."""
    log_sparingly()
    config = uvicorn.Config(
        app,
        http=_protocol(connection_cap(limits), limits),
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    """Accepts few connections at once, so that their number never leaps far above the cap, but lets many wait."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(WAITING_TO_BE_ACCEPTED)


def connection_cap(limits: Limits) -> int:
    """The most connections at once: as the limits say, and well below the number of files that may be open."""
    try:
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:  # not on this system
        return limits.connections
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, max(FEWEST_CONNECTIONS, files - OTHER_DESCRIPTORS))


def _protocol(cap: int, limits: Limits) -> type[H11Protocol]:
    class Bounded(Connection):
        max_connections = cap
        bounds = limits

    return Bounded


class Connection(H11Protocol):
    """One connection, with the deadlines that the server library lacks."""

    max_connections: int
    bounds: Limits
    idle_since: float | None = None  # by the loop's clock; None while a request is being answered
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it, or refuse it."""
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) <= self.max_connections:
            return
        idle = [each for each in self.connections if isinstance(each, Connection) and each.idle_since is not None]
        oldest = min(idle, key=lambda each: each.idle_since or 0.0)
        if oldest is self:  # all others are being answered
            self.refuse(503, "too many connections are open", "try again in a second")
        else:
            self.connections.discard(oldest)  # now: the next one in this turn of the loop needs another's place
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, timers included."""
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self.idle_since = self.loop.time()
        self._deadline = self.loop.call_later(self.bounds.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.conn.trailing_data[0]:  # a part of a request
            seconds = f"{self.bounds.head_seconds:g} s"
            self.refuse(408, f"the request was not complete after {seconds}", "send it at once")
        else:
            self.transport.abort()

    def handle_events(self) -> None:
        """As the library does; the deadline ends with the head of a request."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = self.idle_since = None

    def on_response_complete(self) -> None:
        """Wait for the next request, if the connection is kept."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete and self._deadline is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        """The client does not read: give it some time."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.bounds.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def send_400_response(self, msg: str) -> None:
        """A request that is no HTTP gets the documented error, too."""
        self.refuse(400, msg.rstrip(".").lower(), "send a request that follows HTTP/1.1; see /docs for the endpoints")

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to log: the request is answered as if it had not asked for another protocol."""

    def refuse(self, status: int, error: str, remedy: str) -> None:
        """Answer with an error as JSON, if nothing is being answered yet, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:  # what answers must not write any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            start, body = _messages(status, error, remedy)
            headers = [*start["headers"], (b"connection", b"close")]
            headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            events: list[Any] = [h11.Response(status_code=status, headers=headers), h11.Data(data=body["body"])]
            for event in [*events, h11.EndOfMessage()]:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self.loop.call_later(self.bounds.stall_seconds, self.transport.abort)


def _messages(status: int, error: str, remedy: str) -> list[Message]:
    """The messages by which the application refuses a request."""
    found: list[Message] = []

    async def collect(message: Message) -> None:
        found.append(message)

    _finish(refuse(collect, status, error, remedy))
    return found


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waited")


class SparingFilter(logging.Filter):
    """Lets a message pass once a minute; the next one that passes says how many did not."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], tuple[float, int]] = {}  # when it passed, and how many did not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message passes."""
        kind = "" if not record.exc_info or record.exc_info[0] is None else record.exc_info[0].__name__
        key, now = (str(record.msg), kind), time.monotonic()
        passed, left_out = self._last.get(key, (float("-inf"), 0))
        if now - passed < SECONDS_BETWEEN_REPEATS:
            self._last[key] = passed, left_out + 1
            return False
        if len(self._last) >= MAX_MESSAGES:
            self._last.clear()
        self._last[key] = now, 0
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out:,} more like this were left out)"
            record.args = ()
        return True


def log_sparingly() -> None:
    """Log warnings of the server, the event loop and the service to standard error, without repetitions."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(SparingFilter())
    for name in ("uvicorn", "asyncio", "hire"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
