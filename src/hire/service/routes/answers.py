"""Endpoints that ask the model: answers, heads, answer sets, scores, explanations, and many heads as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from hire.errors import HireError
from hire.inference.answers import Answer as FoundAnswer
from hire.service.calls import TheCall
from hire.service.errors import problem_of
from hire.service.relations import StoredRelation
from hire.service.schemas import (
    Answer,
    Answers,
    AnswerSet,
    Explanation,
    HeadAnswer,
    HeadAnswers,
    NameQuery,
    PredictRequest,
    Scores,
    ScoresRequest,
)
from hire.service.service import Service
from hire.service.views import answers_of, explanation_of

router = APIRouter(prefix="/v1", tags=["answers"])
NDJSON = "application/x-ndjson"
REASONS, MAX_REASONS = 5, 20
K = Annotated[int, Query(ge=1, le=1_000, description="At most so many.")]
Known = Annotated[bool, Query(description="Whether to include known facts.")]


def _verdicts(service: Service, relation: StoredRelation, head: str) -> dict[str, str]:
    with service.store.reading() as connection:
        return dict(
            connection.execute(
                "SELECT tail, verdict FROM judged WHERE relation = ? AND head = ?", (relation.id, head)
            ).fetchall()
        )


def _shown(service: Service, relation: StoredRelation, head: str, found: list[FoundAnswer]) -> list[Answer]:
    return answers_of(service.teaching, relation, head, found, _verdicts(service, relation, head))


@router.get("/relations/{relation}/answers", response_model=Answers, operation_id="predict")
async def answers(
    relation: str,
    head: NameQuery,
    call: TheCall,
    k: K = 10,
    known: Known = False,
    threshold: Annotated[float | None, Query(ge=0, le=1, description="The lowest confidence to include.")] = None,
) -> Response:
    """The predicted tails of a head, best first."""
    service = call.service

    def ask() -> Answers:
        stored = service.relations.get(relation)
        name = service.teaching.resolved(head, stored.graph)
        found = service.teaching.answers(stored, name, k, known=known, threshold=threshold)
        return Answers(head=service.teaching.ref(name, stored.graph), answers=_shown(service, stored, name, found))

    return await call.answer(ask)


@router.get("/relations/{relation}/heads", response_model=HeadAnswers, operation_id="predictHeads")
async def heads(relation: str, tail: NameQuery, call: TheCall, k: K = 10, known: Known = False) -> Response:
    """The predicted heads of a tail, best first."""
    service = call.service

    def ask() -> HeadAnswers:
        stored = service.relations.get(relation)
        name = service.teaching.resolved(tail, stored.graph)
        found = service.teaching.heads(stored, name, k, known)
        return HeadAnswers(
            tail=service.teaching.ref(name, stored.graph),
            heads=[HeadAnswer(head=service.teaching.ref(each.head, stored.graph), score=each.score) for each in found],
        )

    return await call.answer(ask)


@router.get("/relations/{relation}/answer-set", response_model=AnswerSet, operation_id="predictAnswerSet")
async def answer_set(
    relation: str,
    head: NameQuery,
    call: TheCall,
    confidence: Annotated[float, Query(gt=0, lt=1, description="How sure the answer is to be among them.")] = 0.9,
) -> Response:
    """The tails among which the answer is with a given confidence."""
    service = call.service

    def ask() -> AnswerSet:
        stored = service.relations.get(relation)
        name = service.teaching.resolved(head, stored.graph)
        found = service.teaching.answer_set(stored, name, confidence)
        shown = _shown(service, stored, name, found)
        return AnswerSet(head=service.teaching.ref(name, stored.graph), confidence=confidence, answers=shown)

    return await call.answer(ask)


@router.post("/relations/{relation}/scores", response_model=Scores, operation_id="scorePairs")
async def scores(relation: str, request: ScoresRequest, call: TheCall) -> Response:
    """How well each pair fits, with the score and the confidence it has among the answers of its head."""
    service = call.service

    def ask() -> Scores:
        stored = service.relations.get(relation)
        pairs = [service.teaching.pair(pair.head, pair.tail, stored.graph) for pair in request.pairs]
        found = service.teaching.scores(stored, pairs)
        shown = (_shown(service, stored, head, [answer]) for (head, _), answer in zip(pairs, found, strict=True))
        return Scores(answers=[answer for (answer,) in shown])

    return await call.answer(ask)


@router.get("/relations/{relation}/explanation", response_model=Explanation, operation_id="explain")
async def explanation(
    relation: str,
    head: NameQuery,
    tail: NameQuery,
    call: TheCall,
    most: Annotated[int, Query(ge=1, le=MAX_REASONS, description="At most so many reasons of each kind.")] = REASONS,
) -> Response:
    """Why a tail is predicted: a sentence, and the reasons for and against it."""
    service = call.service

    def ask() -> Explanation:
        stored = service.relations.get(relation)
        pair = service.teaching.pair(head, tail, stored.graph)
        return explanation_of(service.teaching.explanation(stored, *pair, most))

    return await call.answer(ask)


@router.post(
    "/relations/{relation}/predictions",
    operation_id="predictMany",
    response_class=StreamingResponse,
    responses={200: {"content": {NDJSON: {"schema": Answers.model_json_schema()}}, "description": "A head per line."}},
)
async def predictions(relation: str, request: PredictRequest, call: TheCall) -> StreamingResponse:
    """The predicted tails of many heads as NDJSON, a head per line; the last line tells how many there were."""
    service = call.service

    def check() -> tuple[StoredRelation, list[str]]:
        stored = service.relations.get(relation)
        model = service.teaching.of_graph(stored.graph)
        ids = (
            service.teaching.heads_of_scope(stored.scope, stored.references, stored.graph, stored.name)
            if request.heads is None
            else model.names.ids(request.heads)
        )
        return stored, [model.dataset.graph.entities[each] for each in ids.tolist()]

    stored, names = await call.run(check)
    return StreamingResponse(call.streamed(_lines(service, stored, names, request)), media_type=NDJSON)


def _lines(service: Service, relation: StoredRelation, names: list[str], request: PredictRequest) -> Iterator[str]:
    """The lines of a stream; an error in the middle is a line of its own, since the status has been sent."""
    try:
        for head, found in service.teaching.answers_to_many(
            relation, names, request.k, known=request.known, threshold=request.threshold
        ):
            hidden = service.teaching.decided(relation, head, hide_accepted=not request.known)
            shown = _shown(service, relation, head, [answer for answer in found if answer.tail not in hidden])
            if request.explain:
                for answer in shown:
                    why = service.teaching.explanation(relation, head, answer.tail.id, REASONS)
                    answer.explanation = explanation_of(why)
            line = Answers(head=service.teaching.ref(head, relation.graph), answers=shown)
            yield line.model_dump_json(by_alias=True) + "\n"
        yield json.dumps({"end": True, "heads": len(names)}) + "\n"
    except HireError as error:
        yield json.dumps({"problem": problem_of(error)}) + "\n"
