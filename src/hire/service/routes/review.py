"""Endpoints to review suggestions: cards, verdicts, undo, the estimate for a threshold, and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from hire.errors import HireError
from hire.service.calls import Call, IdempotencyKey, TheCall
from hire.service.cards import Filter, encoded, number_in
from hire.service.log import NO_TAIL, NewEntry
from hire.service.relations import StoredRelation
from hire.service.review_schemas import (
    Batch,
    Batches,
    BatchRequest,
    Card,
    Cards,
    Estimate,
    Facets,
    Judged,
    Order,
    RevertRequest,
    State,
    Undo,
    VerdictRequest,
)
from hire.service.routes.graph import Cursor
from hire.service.schemas import MAX_NAME, NameQuery
from hire.service.service import Service
from hire.service.views import batch_of, entry_of

router = APIRouter(prefix="/v1", tags=["review"])
Share = Annotated[float | None, Query(ge=0, le=1)]
TypeQuery = Annotated[str | None, Query(max_length=MAX_NAME)]


def chosen(
    state: Annotated[list[State | str] | None, Query(description="States to show, or `any`.", max_length=10)] = None,
    type: Annotated[list[str] | None, Query(description="Types of heads to show.", max_length=100)] = None,
    min_confidence: Share = None,
    max_confidence: Share = None,
    tail: TypeQuery = None,
    q: Annotated[str | None, Query(max_length=MAX_NAME, description="Part of the id of the head.")] = None,
) -> Filter:
    """Which heads a request wants to see."""
    states = tuple(state or ("open",))
    return Filter(
        () if "any" in states else states, tuple(type or ()), min_confidence, max_confidence, tail or None, q or None
    )


Chosen = Annotated[Filter, Depends(chosen)]


@router.get("/relations/{relation}/cards", operation_id="listCards")
async def cards(
    relation: str,
    call: TheCall,
    shown: Chosen,
    order: Annotated[
        Order, Query(description="`audit` is random, and includes what only a batch accepted.")
    ] = "useful",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    cursor: Cursor = None,
) -> Cards:
    """Heads with their suggestions, as a queue of cards or as a table."""
    service = call.service
    return await call.read(lambda: service.cards.page(service.relations.get(relation), shown, order, limit, cursor))


@router.get("/relations/{relation}/cards/one", operation_id="getCard")
async def card(relation: str, head: NameQuery, call: TheCall) -> Card:
    """The card of one head."""

    def read() -> Card:
        stored = call.service.relations.get(relation)
        return call.service.cards.card(stored, call.service.teaching.resolved(head, stored.graph))

    return await call.read(read)


@router.get("/relations/{relation}/facets", operation_id="countFacets")
async def facets(relation: str, call: TheCall, shown: Chosen) -> Facets:
    """How many heads there are by type, confidence and state; each count ignores the filter by itself."""
    service = call.service
    return await call.read(lambda: service.cards.facets(service.relations.get(relation), shown))


def _judged(service: Service, relation: StoredRelation, number: int) -> Judged:
    row = service.review.log.entry(number)
    if row is None:
        raise LookupError(number)
    return Judged(entry=entry_of(service.teaching, relation, row), card=service.cards.card(relation, row["head"]))


@router.post("/relations/{relation}/verdicts", operation_id="judge", status_code=201, response_model=Judged)
async def judge(
    relation: str, request: VerdictRequest, call: TheCall, idempotency_key: IdempotencyKey = None
) -> Response:
    """A verdict on a pair that was shown, saved before the response; the model learns from it soon after."""
    service, review = call.service, call.service.review

    def prepare() -> Callable[[], Judged]:
        stored = service.relations.get(relation)
        if (request.tail is None) != (request.verdict == "no_tail"):
            raise HireError("just the verdict no_tail is about no tail", remedy="name the tail that was shown")
        head = service.teaching.resolved(request.head, stored.graph)
        tail = NO_TAIL if request.tail is None else service.teaching.resolved(request.tail, stored.graph)
        entry = NewEntry(head, tail, request.verdict, review.confidence(stored, head, tail))
        author = review.author(request.by, request.client)

        def carry_out() -> Judged:
            number = review.judge(stored, entry, author, version=request.version, force=request.force)
            return _judged(service, stored, number)

        return carry_out

    answer = await call.once(prepare)
    service.jobs.notice(relation)
    return answer


@router.post("/relations/{relation}/undo", operation_id="undo", status_code=201, response_model=Judged)
async def undo(relation: str, request: Undo, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Undo an entry of the log by another one; what held before holds again."""
    service = call.service

    def carry_out() -> Judged:
        stored = service.relations.get(relation)
        author = service.review.author(request.by, request.client)
        return _judged(service, stored, service.review.undo(stored, request.entry, author))

    answer = await call.once(lambda: carry_out)
    service.jobs.notice(relation)
    return answer


@router.get("/relations/{relation}/estimate", operation_id="estimateThreshold")
async def estimate(
    relation: str, threshold: Annotated[float, Query(ge=0, le=1)], call: TheCall, type: TypeQuery = None
) -> Estimate:
    """How many facts a threshold would accept, and what share of them is correct, from the cards that were checked."""
    service = call.service
    return await call.read(lambda: service.estimate(service.relations.get(relation), threshold, type))


@router.post("/relations/{relation}/batches", operation_id="acceptBatch", status_code=201, response_model=Batch)
async def accept(
    relation: str, request: BatchRequest, call: TheCall, idempotency_key: IdempotencyKey = None
) -> Response:
    """Accept all undecided facts at or above a threshold at once; they can be reverted at once, too."""
    review = call.service.review

    def carry_out() -> Batch:
        batch = review.accept(
            call.service.relations.get(relation),
            request.threshold,
            review.author(request.by, request.client),
            type_=request.type,
            expected=request.expected,
        )
        return batch_of(review.batch(batch))

    return await call.once(lambda: carry_out)


@router.get("/relations/{relation}/batches", operation_id="listBatches")
async def batches(
    relation: str, call: TheCall, limit: Annotated[int, Query(ge=1, le=200)] = 50, cursor: Cursor = None
) -> Batches:
    """The batches of a relation, newest first."""
    return await call.read(_batches, call, relation, limit, number_in(cursor))


def _batches(call: Call, relation: str, limit: int, before: int | None) -> Batches:
    found = call.service.review.batches(call.service.relations.get(relation).id, limit + 1, before)
    more = encoded([found[limit - 1]["number"]]) if len(found) > limit else None
    return Batches(batches=[batch_of(batch) for batch in found[:limit]], next=more)


@router.get("/batches/{batch}", operation_id="getBatch")
async def one_batch(batch: str, call: TheCall) -> Batch:
    """One batch; its entries are in the history."""
    return await call.read(lambda: batch_of(call.service.review.batch(batch)))


@router.post("/batches/{batch}/revert", operation_id="revertBatch", status_code=201, response_model=Batch)
async def revert(batch: str, request: RevertRequest, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Undo what still holds of a batch; what a person has decided since stays."""
    review = call.service.review

    def carry_out() -> Batch:
        return batch_of(review.batch(review.revert(batch, review.author(request.by, request.client))))

    answer = await call.once(lambda: carry_out)
    call.service.jobs.notice(review.batch(batch)["relation"])
    return answer
