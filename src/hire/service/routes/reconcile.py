"""The reconciliation service, for OpenRefine and whatever else speaks its protocol.

Its browser page may be on another port of this machine, so these endpoints alone answer pages of loopback addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import TypeAdapter, ValidationError

from hire.errors import HireError
from hire.service.calls import TheCall
from hire.service.reconcile import ExtendRequest, Reconciler
from hire.service.reconcile import Query as NameQuery
from hire.service.schemas import MAX_NAME

router = APIRouter(prefix="/v1/reconcile", tags=["reconciliation"])
QUERIES = TypeAdapter(dict[str, NameQuery])
EXTENSION = TypeAdapter(ExtendRequest)
MAX_QUERIES = 500
FORM = {
    "requestBody": {
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {"type": "object", "properties": {name: {"type": "string"} for name in ("queries", "extend")}}
            }
        }
    }
}
PREVIEW_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self' http://127.0.0.1:* http://localhost:*"
)
Text = Annotated[str, Query(max_length=MAX_NAME)]


def shared(request: Request) -> dict[str, str]:
    """Headers that let the page read the response whose origin the guard has let through."""
    origin = request.headers.get("origin")
    if origin is None:
        return {}
    return {"access-control-allow-origin": origin, "vary": "origin", "cross-origin-resource-policy": "cross-origin"}


async def _answer(call: TheCall, work: Callable[[], Any]) -> JSONResponse:
    return JSONResponse(await call.run(work), headers=shared(call.request))


def _parsed(text: str, adapter: TypeAdapter[Any], what: str) -> Any:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise HireError(
            f"{what}: {where} {first['msg']}"[:300], remedy="see the specification of reconciliation"
        ) from error


async def _asked(call: TheCall, queries: str | None, extend: str | None) -> Response:
    reconciler = Reconciler(call.service)
    if queries is not None:
        names = _parsed(queries, QUERIES, "queries")
        if len(names) > MAX_QUERIES:
            raise HireError(f"more than {MAX_QUERIES} names at once", remedy="send fewer")
        return await _answer(call, lambda: reconciler.match(names))
    if extend is not None:
        wanted = _parsed(extend, EXTENSION, "extend")
        return await _answer(call, lambda: reconciler.extend(wanted))
    base = str(call.request.url.replace(query="", fragment="")).rstrip("/")
    return await _answer(call, lambda: reconciler.manifest(base))


@router.get("", operation_id="getReconciliation", response_class=JSONResponse)
async def get(
    call: TheCall,
    queries: Annotated[str | None, Query(max_length=100_000)] = None,
    extend: Annotated[str | None, Query(max_length=100_000)] = None,
) -> Response:
    """The manifest of the reconciliation service; with `queries` or `extend`, the answers to them."""
    return await _asked(call, queries, extend)


@router.post("", operation_id="reconcile", response_class=JSONResponse, openapi_extra=FORM)
async def post(call: TheCall) -> Response:
    """Match names (`queries`), or fetch properties (`extend`), as a form with a JSON field."""
    try:
        fields = parse_qs((await call.request.body()).decode(), max_num_fields=10)
    except ValueError as error:
        raise HireError("the form cannot be read", remedy="send it urlencoded, with a field queries") from error
    queries, extend = (fields.get(name, [None])[-1] for name in ("queries", "extend"))
    if queries is None and extend is None:
        raise HireError("the form has neither queries nor extend", remedy="send one of them as JSON")
    return await _asked(call, queries, extend)


@router.get("/suggest/entity", operation_id="suggestEntities", response_class=JSONResponse)
async def suggest_entity(
    call: TheCall, prefix: Text = "", cursor: Annotated[int, Query(ge=0, le=1_000)] = 0
) -> Response:
    """Entities to choose from while one types."""
    return await _answer(call, lambda: Reconciler(call.service).suggest_entities(prefix, cursor))


@router.get("/suggest/type", operation_id="suggestTypes", response_class=JSONResponse)
async def suggest_type(call: TheCall, prefix: Text = "") -> Response:
    """Types to choose from while one types."""
    return await _answer(call, lambda: Reconciler(call.service).suggest_types(prefix))


@router.get("/suggest/property", operation_id="suggestProperties", response_class=JSONResponse)
async def suggest_property(call: TheCall, prefix: Text = "") -> Response:
    """Properties to choose from while one types."""
    return await _answer(call, lambda: Reconciler(call.service).suggest_properties(prefix))


@router.get("/properties", operation_id="proposeProperties", response_class=JSONResponse)
async def propose(call: TheCall, type: Text = "entity", limit: Annotated[int, Query(ge=0, le=1_000)] = 0) -> Response:
    """Properties to extend entities of a type by."""

    def read() -> dict[str, Any]:
        return {"type": type, "limit": limit, "properties": Reconciler(call.service).propose(limit)}

    return await _answer(call, read)


@router.get("/preview", operation_id="previewEntity", response_class=HTMLResponse)
async def preview(call: TheCall, id: Text) -> HTMLResponse:
    """A small page about an entity, to be shown in a frame."""
    text = await call.run(Reconciler(call.service).preview, id)
    headers = shared(call.request) | {"content-security-policy": PREVIEW_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(text, headers=headers)
