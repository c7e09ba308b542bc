"""How endpoints call the service: in worker threads, and changes just once for an idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from threading import BoundedSemaphore
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from hire.errors import HireError
from hire.service.middleware import BusyError, Workers
from hire.service.service import Service
from hire.service.store import Recorded

P = ParamSpec("P")
T = TypeVar("T")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="Repeat a request with the same key, and it is carried out just once; the response is the same.",
    ),
]
IfMatch = Annotated[
    str | None, Header(description="The ETag of the version that the change is based on.", max_length=100)
]


class Call:
    """A request on its way to the service."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = request.app.state.service

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the model something."""
        workers: Workers = self.request.app.state.workers
        return await workers.run(work, *args, **kwargs)

    async def answer(self, work: Callable[[], BaseModel]) -> Response:
        """Ask the model something, and answer with what is found; its text is made in the same thread."""
        text = await self.run(lambda: work().model_dump_json(by_alias=True))
        return Response(text, media_type="application/json")

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read or change what is stored, without waiting for those who ask the model."""
        clerks: Workers = self.request.app.state.clerks
        return await clerks.run(work, *args, **kwargs)

    def streamed(self, parts: Iterator[str]) -> Iterator[str]:
        """Parts that are sent as they come; an error at once if too many streams are open."""
        streams: BoundedSemaphore = self.request.app.state.streams
        if not streams.acquire(blocking=False):
            raise BusyError("too many streams are open", remedy="try again when one has ended")
        return _released(parts, streams)

    async def once(
        self,
        work: Callable[[], Callable[[], BaseModel]],
        status: int = 201,
        headers: Callable[[Any], dict[str, str]] = lambda _result: {},
    ) -> Response:
        """Change something: `work` prepares what takes long and returns the change, which is carried out just once."""
        request = self.request
        body = await request.body()
        key = request.headers.get("idempotency-key")
        about = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
        fingerprint = hashlib.sha256(about + body).hexdigest()

        def prepare() -> Callable[[], Recorded]:
            change = work()

            def carry_out() -> Recorded:
                result = change()
                return Recorded(status, headers(result), result.model_dump_json(by_alias=True))

            return carry_out

        done = await self.read(self.service.store.once, key, fingerprint, prepare)
        also = {"idempotency-replayed": "true"} if done.replayed else {}
        return Response(done.body, done.status, headers=done.headers | also, media_type="application/json")


def _released(parts: Iterator[str], streams: BoundedSemaphore) -> Iterator[str]:
    try:
        yield from parts
    finally:
        streams.release()


async def the_call(request: Request) -> Call:
    """The call of a request; not awaited in a thread, as FastAPI does with what is not async."""
    return Call(request)


TheCall = Annotated[Call, Depends(the_call)]


def at_once(change: Callable[[], BaseModel]) -> Callable[[], Callable[[], BaseModel]]:
    """A change that needs no preparation."""
    return lambda: change


def version_in(if_match: str | None) -> int | None:
    """The version in an If-Match header; None if any will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isdecimal() or len(text) > 15:
        raise HireError("If-Match is not an ETag of this service", remedy='send it as it was received, such as "7"')
    return int(text)
