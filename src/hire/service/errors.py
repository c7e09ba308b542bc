"""Errors of ours as responses, without paths of the server."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hire.errors import HireError
from hire.inference.search import UnknownEntityError
from hire.service.database import StateGoneError, UnsettledError
from hire.service.middleware import BusyError
from hire.service.problems import MEDIA_TYPE, problem
from hire.service.push import EndpointError
from hire.service.relations import ConflictError, NotFoundError, StaleError
from hire.service.store import InProgressError, KeyReusedError, StorageError
from hire.util.checksums import ChangedFileError

BY_ERROR: list[tuple[type[HireError], int, str | None]] = [  # the first that fits; None is the status's own code
    (BusyError, 503, None),
    (NotFoundError, 404, None),
    (StaleError, 412, None),
    (ConflictError, 409, None),
    (InProgressError, 409, "in-progress"),
    (KeyReusedError, 422, "key-reused"),
    (StorageError, 503, "storage"),
    (StateGoneError, 503, "storage"),
    (UnsettledError, 503, "storage"),
    (ChangedFileError, 503, "storage"),
    (UnknownEntityError, 422, "unknown-entity"),
    (EndpointError, 502, None),
]
RETRIED = (503, 507)


def problem_of(error: HireError) -> dict[str, Any]:
    """The body of an error of ours: its message, never its file."""
    status, code = next(((s, c) for kind, s, c in BY_ERROR if isinstance(error, kind)), (422, None))
    if isinstance(error, StorageError) and error.full:
        status, code = 507, None
    first = error.problems[0]
    detail = first.message if first.line is None else f"line {first.line}: {first.message}"
    conflict = error.entry if isinstance(error, ConflictError) else None
    return problem(status, detail, first.remedy, code=code, conflict=conflict)


def response(body: dict[str, Any]) -> Response:
    """An error as a response."""
    again = body["status"] in RETRIED or body["code"] == "in-progress"
    return Response(
        json.dumps(body), body["status"], headers={"retry-after": "1"} if again else None, media_type=MEDIA_TYPE
    )


def add_errors(app: FastAPI) -> None:
    """Let an application answer errors as problems."""

    @app.exception_handler(HireError)
    async def bad_input(_request: Request, error: HireError) -> Response:
        return response(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def bad_request(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or None
        detail = f"{where or 'the request'}: {first['msg']}"[:500]
        return response(problem(422, detail, "see /docs for what the API expects", field=where))

    @app.exception_handler(HTTPException)
    async def no_route(_request: Request, error: HTTPException) -> Response:
        remedy = getattr(error, "remedy", "see /docs for the endpoints")
        return response(problem(error.status_code, str(error.detail).lower(), remedy))
