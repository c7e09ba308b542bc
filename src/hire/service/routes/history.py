"""Endpoints about the log, exports and imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from hire.data.iri import PREFIX
from hire.errors import HireError
from hire.service.calls import IdempotencyKey, TheCall
from hire.service.cards import encoded, number_in
from hire.service.exports import KINDS, Export
from hire.service.push import push
from hire.service.review_schemas import (
    Batch,
    Entries,
    Format,
    ImportRequest,
    Preview,
    Pushed,
    PushRequest,
)
from hire.service.routes.graph import Cursor
from hire.service.schemas import MAX_NAME
from hire.service.tables_of_pairs import read_judged
from hire.service.views import batch_of, entry_of

router = APIRouter(prefix="/v1", tags=["history"])
PREVIEWED = 20  # facts
Form = Annotated[Format, Query(alias="format")]
Prefix = Annotated[str, Query(max_length=MAX_NAME, description="In RDF, the prefix of names that are not IRIs.")]
Text = Annotated[str | None, Query(max_length=MAX_NAME)]


@router.get("/relations/{relation}/history", operation_id="listHistory")
async def history(
    relation: str,
    call: TheCall,
    by: Text = None,
    batch: Text = None,
    head: Text = None,
    verdict: Text = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Cursor = None,
) -> Entries:
    """The log of verdicts, newest first."""
    service = call.service

    def read() -> Entries:
        stored = service.relations.get(relation)
        filters = {"by": by, "batch": batch, "head": head, "verdict": verdict}
        rows, total = service.review.log.page(stored.id, filters, limit + 1, number_in(cursor))
        more = encoded([rows[limit - 1]["entry"]]) if len(rows) > limit else None
        entries = [entry_of(service.teaching, stored, row) for row in rows[:limit]]
        return Entries(entries=entries, next=more, total=total)

    return await call.read(read)


@router.get(
    "/relations/{relation}/export",
    operation_id="exportFacts",
    response_class=Response,
    responses={200: {"content": {kind.media_type: {} for kind in KINDS.values()}, "description": "The file."}},
)
async def export(
    relation: str,
    call: TheCall,
    form: Form = "tsv",
    prefix: Prefix = PREFIX,
    batch: Text = None,
    limit: Annotated[int | None, Query(ge=1, le=10_000_000)] = None,
) -> Response:
    """Accepted facts, of one batch or all, or the whole log, as a file."""
    service = call.service

    def write() -> tuple[str, str]:
        found = Export(service.store, service.relations.get(relation), prefix, batch)
        return "".join(found.parts(form, limit)), found.file_name(form)

    text, name = await call.read(write)
    return Response(
        text.encode("utf-8", "backslashreplace"),
        media_type=f"{KINDS[form].media_type}; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


@router.get("/relations/{relation}/export/preview", operation_id="previewExport")
async def preview(
    relation: str, call: TheCall, form: Form = "tsv", prefix: Prefix = PREFIX, batch: Text = None
) -> Preview:
    """The beginning of an export, and why it is not possible if it is not."""
    service = call.service

    def read() -> Preview:
        found = Export(service.store, service.relations.get(relation), prefix, batch)
        text, problem = "", None
        try:
            text = "".join(found.parts(form, PREVIEWED))
        except HireError as error:
            problem = f"{error.problems[0].message}; {error.problems[0].remedy}"
        return Preview(
            facts=found.count(),
            text=text,
            media_type=KINDS[form].media_type,
            file_name=found.file_name(form),
            problem=problem,
        )

    return await call.read(read)


@router.post("/relations/{relation}/push", operation_id="pushFacts", status_code=201, response_model=Pushed)
async def push_facts(
    relation: str, request: PushRequest, call: TheCall, idempotency_key: IdempotencyKey = None
) -> Response:
    """Write accepted facts to a SPARQL endpoint; facts that are there already change nothing."""
    service = call.service

    def prepare() -> Callable[[], Pushed]:
        call.request.app.state.check_endpoint(request.endpoint)
        facts = Export(service.store, service.relations.get(relation), request.prefix).facts()
        count = push(
            facts,
            request.endpoint,
            graph=request.target_graph,
            prefix=request.prefix,
            user=request.user,
            password=request.password,
        )
        return lambda: Pushed(facts=len(facts), requests=count, endpoint=request.endpoint)

    return await call.once(prepare)


@router.post("/relations/{relation}/import", operation_id="importVerdicts", status_code=201, response_model=Batch)
async def import_verdicts(
    relation: str, request: ImportRequest, call: TheCall, idempotency_key: IdempotencyKey = None
) -> Response:
    """Import verdicts as one batch, which can be reverted; those that hold already are left out."""
    service, review = call.service, call.service.review

    def prepare() -> Callable[[], Batch]:
        stored = service.relations.get(relation)
        verdicts = read_judged(service.teaching, request.text, request.format, stored.graph)
        author = review.author(request.by, request.client)
        return lambda: batch_of(review.batch(review.take_in(stored, verdicts, author)))

    answer = await call.once(prepare)
    service.jobs.notice(relation)
    return answer
