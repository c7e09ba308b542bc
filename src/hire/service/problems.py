"""Errors in the form of their responses: problem+json (RFC 9457) with a code for programs."""

from __future__ import annotations

from typing import Any

from hire.service.schemas import Problem

MEDIA_TYPE = "application/problem+json"
CODES = {
    400: ("bad-request", "The request cannot be read"),
    401: ("unauthorized", "The token is missing or wrong"),
    403: ("forbidden", "The request is refused"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    409: ("conflict", "The request contradicts the current state"),
    412: ("version-mismatch", "The resource has changed"),
    413: ("too-large", "The request is too large"),
    415: ("unsupported-media-type", "The request has the wrong content type"),
    421: ("wrong-host", "This host name is not served"),
    422: ("invalid", "The request is invalid"),
    500: ("internal", "Internal error"),
    502: ("endpoint", "The SPARQL endpoint did not take the facts"),
    503: ("busy", "The service is overloaded"),
    504: ("timeout", "The request timed out"),
    507: ("storage-full", "The disk is full"),
}
TITLES = {  # of codes that are not the usual ones of their status
    "in-progress": "The same request is still being carried out",
    "key-reused": "The idempotency key was used before",
    "storage": "The service cannot read or write its files",
    "unknown-entity": "An entity is unknown",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": title, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, (_, title) in CODES.items()
    if status not in (403, 405, 415, 421, 500, 502)
}


def problem(
    status: int,
    detail: str,
    remedy: str | None = None,
    *,
    code: str | None = None,
    field: str | None = None,
    conflict: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an error."""
    usual, title = CODES.get(status, ("error", "Error"))
    return {
        "type": f"urn:hire:problem:{code or usual}",
        "title": TITLES.get(code or usual, title),
        "status": status,
        "code": code or usual,
        "detail": detail,
        "remedy": remedy,
        "field": field,
        "conflict": conflict,
    }
