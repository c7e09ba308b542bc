"""Endpoints about taught relations: what they are called, what they are for, and their references."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from hire.errors import HireError
from hire.inference.export import check_predicate
from hire.service.calls import Call, IdempotencyKey, IfMatch, TheCall, version_in
from hire.service.cards import encoded, number_in
from hire.service.relations import Draft, Pair, StoredRelation
from hire.service.review_schemas import Relation, Relations
from hire.service.routes.graph import Cursor
from hire.service.schemas import (
    HeadCount,
    MoreReferences,
    NamedPair,
    NameQuery,
    RelationChange,
    Scope,
    ScopeRequest,
    TeachRequest,
)
from hire.service.service import Service

router = APIRouter(prefix="/v1", tags=["relations"])


def pairs_in(service: Service, pairs: list[NamedPair], graph: str | None) -> list[Pair]:
    """Pairs of ids from pairs of ids or labels."""
    return [service.teaching.pair(pair.head, pair.tail, graph) for pair in pairs]


def scope_in(service: Service, scope: Scope, graph: str | None) -> dict[str, Any]:
    """A scope as it is stored; an error if something in it is unknown."""
    if scope.kind == "types":
        types = service.teaching.of_graph(graph).dataset.graph.types
        if types is None or not scope.types:
            what = "the graph has no types" if types is None else "the scope names no types"
            raise HireError(what, remedy="choose all heads, or a list of them")
        for name in scope.types:
            types.names.id(name)
        return {"kind": "types", "types": scope.types}
    if scope.kind == "list":
        if not scope.heads:
            raise HireError("the scope lists no heads", remedy="list some, or choose all of them")
        model = service.teaching.of_graph(graph)
        ids = model.names.ids(scope.heads).tolist()
        return {"kind": "list", "heads": [model.dataset.graph.entities[each] for each in dict.fromkeys(ids)]}
    return {"kind": scope.kind}


def etag(relation: Relation) -> dict[str, str]:
    """The version of a relation as a header."""
    return {"etag": f'"{relation.version}"'}


@router.post("/relations", operation_id="teachRelation", status_code=201, response_model=Relation)
async def teach(request: TeachRequest, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Teach a relation with a few examples; it is saved, and can be asked about at once."""
    service = call.service

    def prepare() -> Callable[[], Relation]:
        if request.predicate is not None:
            check_predicate(request.predicate)
        model = service.teaching.of_graph(request.graph)
        candidates = None if request.candidates is None else model.names.ids(request.candidates).tolist()
        draft = Draft(
            request.name,
            list(dict.fromkeys(pairs_in(service, request.references, request.graph))),
            request.predicate,
            scope_in(service, request.scope, request.graph),
            None if candidates is None else [model.dataset.graph.entities[each] for each in candidates],
            request.graph,
            request.by,
        )
        service.teaching.check(draft)
        return lambda: service.info(service.relations.add(draft))

    return await call.once(
        prepare, headers=lambda relation: {"location": f"/v1/relations/{relation.id}", **etag(relation)}
    )


@router.get("/relations", operation_id="listRelations", response_model=Relations)
async def relations(call: TheCall, limit: Annotated[int, Query(ge=1, le=200)] = 50, cursor: Cursor = None) -> Response:
    """Taught relations, newest first."""

    def read() -> bytes:
        """The page as JSON, one relation after the other: all at once would hold up everyone else."""
        found = call.service.relations.page(limit + 1, number_in(cursor))
        more = encoded([found[limit - 1][1]]) if len(found) > limit else None
        infos = (call.service.info(relation).model_dump_json(by_alias=True) for relation, _ in found[:limit])
        return f'{{"relations":[{",".join(infos)}],"next":{json.dumps(more)}}}'.encode()

    return Response(await call.read(read), media_type="application/json")


@router.get("/relations/{relation}", operation_id="getRelation")
async def relation_info(relation: str, call: TheCall, response: Response) -> Relation:
    """One taught relation."""
    found = await call.read(lambda: call.service.info(call.service.relations.get(relation)))
    response.headers.update(etag(found))
    return found


async def changed(call: Call, change: Callable[[], StoredRelation]) -> Response:
    """A relation after a change that needs no preparation."""
    service = call.service

    def carry_out() -> Relation:
        return service.info(change())

    return await call.once(lambda: carry_out, 200, etag)


@router.patch("/relations/{relation}", operation_id="changeRelation", response_model=Relation)
async def change(relation: str, request: RelationChange, call: TheCall, if_match: IfMatch = None) -> Response:
    """Change the name, the predicate or the scope of a relation; a predicate of null removes it."""
    service, expected = call.service, version_in(if_match)
    given = request.model_fields_set

    def carry_out() -> StoredRelation:
        fields: dict[str, Any] = {}
        if "name" in given and request.name is not None:
            fields["name"] = request.name
        if "predicate" in given:
            if request.predicate is not None:
                check_predicate(request.predicate)
            fields["predicate"] = request.predicate
        if request.scope is not None:
            fields["scope"] = scope_in(service, request.scope, service.relations.get(relation).graph)
        return service.relations.change(relation, fields, expected)

    return await changed(call, carry_out)


@router.delete("/relations/{relation}", operation_id="deleteRelation", status_code=204)
async def delete(relation: str, call: TheCall, if_match: IfMatch = None) -> None:
    """Delete a relation and its suggestions; the log of its verdicts stays in the state file."""
    await call.read(call.service.delete, relation, version_in(if_match))


@router.post("/relations/{relation}/references", operation_id="addReferences", response_model=Relation)
async def add_references(
    relation: str,
    request: MoreReferences,
    call: TheCall,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add references to a relation; answers consider them at once."""
    service, expected = call.service, version_in(if_match)

    def carry_out() -> StoredRelation:
        pairs = pairs_in(service, request.references, service.relations.get(relation).graph)
        return service.relations.add_references(relation, pairs, expected)

    return await changed(call, carry_out)


@router.delete("/relations/{relation}/references", operation_id="removeReference", response_model=Relation)
async def remove_reference(
    relation: str, head: NameQuery, tail: NameQuery, call: TheCall, if_match: IfMatch = None
) -> Response:
    """Remove a reference; the last one stays."""
    service, expected = call.service, version_in(if_match)

    def carry_out() -> StoredRelation:
        pair = service.teaching.pair(head, tail, service.relations.get(relation).graph)
        return service.relations.remove_reference(relation, pair, expected)

    return await changed(call, carry_out)


@router.get("/relations/{relation}/scope", operation_id="countHeads")
async def scope(relation: str, call: TheCall) -> HeadCount:
    """How many heads a relation is for."""

    def count() -> HeadCount:
        found = call.service.relations.get(relation)
        heads = call.service.teaching.heads_of_scope(found.scope, found.references, found.graph, found.name)
        return HeadCount(heads=len(heads))

    return await call.read(count)


@router.post("/scope/count", operation_id="countHeadsOfScope")
async def count_scope(request: ScopeRequest, call: TheCall) -> HeadCount:
    """How many heads a scope has, before a relation is taught."""
    service = call.service

    def count() -> HeadCount:
        if request.scope.kind == "similar" and not request.references:
            return HeadCount(heads=0)
        pairs = pairs_in(service, request.references, request.graph)
        stored = scope_in(service, request.scope, request.graph)
        return HeadCount(heads=len(service.teaching.heads_of_scope(stored, pairs, request.graph)))

    return await call.read(count)
