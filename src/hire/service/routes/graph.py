"""Endpoints about the graph: what it is, its entities, and examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from hire.data.iri import iri_of
from hire.service.calls import IdempotencyKey, TheCall
from hire.service.cards import encoded, number_in
from hire.service.review_schemas import GraphInfo
from hire.service.schemas import (
    MAX_NAME,
    EntityDetail,
    Examples,
    ExtendedGraph,
    Matches,
    MissingFact,
    NameQuery,
    Neighbor,
    Neighbors,
    NewEntities,
    PairRows,
    ResolvedNames,
    ResolveRequest,
    TableText,
    TypeCount,
    TypeCounts,
)
from hire.service.service import Service
from hire.service.tables_of_pairs import read_pairs, resolve

router = APIRouter(prefix="/v1", tags=["graph"])
InGraph = Annotated[str | None, Query(max_length=100, description="A graph with new entities; see /v1/graphs.")]
Cursor = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]


@router.get("/graph", operation_id="getGraph")
async def graph_info(call: TheCall) -> GraphInfo:
    """What is being served, and the relations that were taught last."""
    return await call.read(call.service.about)


@router.get("/examples", operation_id="listExamples")
async def examples(call: TheCall, limit: Annotated[int, Query(ge=1, le=100)] = 30) -> Examples:
    """Relations of the graph to try, with pairs to teach and heads to ask about."""
    return Examples(examples=await call.run(call.service.examples.all, limit))


@router.get("/examples/missing", operation_id="getMissingFact")
async def missing(call: TheCall, name: Annotated[str | None, Query(max_length=MAX_NAME)] = None) -> MissingFact:
    """A fact that the graph lacks, of a relation or of any, with the reasons for it."""
    return await call.run(call.service.examples.missing, name)


@router.get("/entities", operation_id="searchEntities")
async def search(
    call: TheCall,
    q: Annotated[str, Query(max_length=MAX_NAME, description="Part of an id or label; near matches are found too.")],
    k: Annotated[int, Query(ge=1, le=100)] = 10,
    graph: InGraph = None,
) -> Matches:
    """Entities whose id or label equals the text, starts with it, contains it or resembles it, best first."""
    return Matches(matches=await call.run(call.service.teaching.search, q, k, graph))


@router.get("/entities/detail", operation_id="getEntity")
async def detail(call: TheCall, id: NameQuery, graph: InGraph = None) -> EntityDetail:
    """What the graph says of an entity."""
    return await call.run(_detail, call.service, id, graph)


def _detail(service: Service, name: str, graph: str | None) -> EntityDetail:
    entity = service.teaching.resolved(name, graph)
    known = service.teaching.of_graph(graph).dataset.graph
    number = known.entities.id(entity)
    types = [] if known.types is None else [known.types.names[int(each)] for each in known.types.of_entity(number)]
    return EntityDetail(
        id=entity,
        label=known.label(number),
        iri=iri_of(entity),
        link=entity if entity.startswith(("http://", "https://")) and iri_of(entity) == entity else None,
        types=types,
        description=None,
        degree=int(known.degrees[number]),
    )


@router.get("/entities/neighbors", operation_id="listNeighbors")
async def neighbors(
    call: TheCall,
    id: NameQuery,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    cursor: Cursor = None,
    graph: InGraph = None,
) -> Neighbors:
    """The facts of an entity, as head or tail, in the order of the graph."""
    return await call.run(_neighbors, call.service, id, limit, number_in(cursor) or 0, graph)


def _neighbors(service: Service, name: str, limit: int, start: int, graph: str | None) -> Neighbors:
    known = service.teaching.of_graph(graph).dataset.graph
    rows = known.neighbors_of(known.entities.id(service.teaching.resolved(name, graph)), None)
    start = max(0, start)
    count = len(known.relations)
    found = [
        Neighbor(
            relation=known.relations[kind % count],
            direction="in" if kind >= count else "out",
            entity=service.teaching.ref(known.entities[other], graph),
        )
        for kind, other in rows[start : start + limit].tolist()
    ]
    more = encoded([start + limit]) if start + limit < len(rows) else None
    return Neighbors(neighbors=found, total=len(rows), next=more)


@router.get("/types", operation_id="listTypes")
async def types(
    call: TheCall,
    q: Annotated[str, Query(max_length=MAX_NAME, description="Part of the name of a type.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
) -> TypeCounts:
    """The types of entities, most frequent first."""
    return await call.run(_types, call.service, q, limit)


def _types(service: Service, text: str, limit: int) -> TypeCounts:
    known = service.teaching.model.dataset.graph.types
    if known is None:
        return TypeCounts(types=[], total=0)
    offsets, _ = known.by_type
    sizes = (offsets[1:] - offsets[:-1]).tolist()
    found = [(name, size) for name, size in zip(known.names, sizes, strict=True) if text.lower() in name.lower()]
    found.sort(key=lambda each: (-each[1], each[0]))
    return TypeCounts(types=[TypeCount(name=name, entities=size) for name, size in found[:limit]], total=len(found))


@router.post("/entities/resolve", operation_id="resolveNames")
async def resolve_names(request: ResolveRequest, call: TheCall) -> ResolvedNames:
    """The entities that names stand for; for unknown names, entities that resemble them."""
    found = await call.run(lambda: [resolve(call.service.teaching, name, request.graph) for name in request.names])
    return ResolvedNames(names=found)


@router.post("/pairs/read", operation_id="readPairs")
async def pairs(request: TableText, call: TheCall) -> PairRows:
    """The pairs of a table, read exactly as the command line reads one, each name with what it stands for."""
    return await call.run(read_pairs, call.service.teaching, request.text, request.format, request.name, request.graph)


@router.post("/graphs", operation_id="addEntities", status_code=201, response_model=ExtendedGraph)
async def graphs(request: NewEntities, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """The graph with new entities, to teach relations on; the served graph stays as it is."""
    teaching, entities = call.service.teaching, request.model_dump()["entities"]

    def prepare() -> Callable[[], ExtendedGraph]:
        teaching.check_entities(entities)
        return lambda: ExtendedGraph(id=teaching.add_graph(entities), entities=list(entities))

    return await call.once(prepare)
