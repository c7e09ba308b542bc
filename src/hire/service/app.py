"""The service over HTTP: its endpoints, their documentation, and its errors, all as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hire import __version__
from hire.errors import HireError
from hire.service.middleware import BusyError, Guard, Limits, Metrics, Workers
from hire.service.relations import Desk, UnknownRelationError
from hire.service.store import StoredRelation

MOST_ANSWERS, MOST_FOUND = 1_000, 100
MOST_REFERENCES = 1_000
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
URI_PREFIXES = ("http://", "https://", "urn:")
NOT_IN_URIS = frozenset(' <>"{}|^`\\') | {chr(code) for code in range(0x21)}

Name = Annotated[str, Field(min_length=1, max_length=1_000, description="An entity's id or label.")]
HeadQuery = Annotated[str, Query(min_length=1, max_length=1_000, description="An entity's id or label.")]


class Pair(BaseModel):
    """Two entities that a relation holds between."""

    head: Name
    tail: Name


class NewRelation(BaseModel):
    """A relation to teach."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "relation"
    references: Annotated[list[Pair], Field(min_length=1, max_length=MOST_REFERENCES)]


class Verdict(Pair):
    """What a person says of a pair."""

    verdict: Literal["accepted", "rejected"]


class LabelledPair(Pair):
    """A pair with the labels of its entities."""

    head_label: str
    tail_label: str


class RelationInfo(BaseModel):
    """A relation that was taught."""

    id: str
    name: str
    references: list[LabelledPair]
    accepted: list[LabelledPair]
    rejected: list[LabelledPair]


class Entity(BaseModel):
    """An entity."""

    entity: str
    label: str


class AnswerInfo(BaseModel):
    """One suggested tail."""

    tail: str
    label: str
    score: Annotated[float, Field(description="More is better; comparable within one relation.")]
    confidence: Annotated[float | None, Field(description="The probability that it is right, if calibrated.")]
    known: Annotated[bool, Field(description="Whether the dataset has it under the relation's name.")]


class Answers(BaseModel):
    """The best tails of a head, the best first."""

    head: str
    answers: list[AnswerInfo]


class Example(BaseModel):
    """A relation of the dataset that can be tried."""

    name: str
    split: str
    references: list[LabelledPair]
    heads: list[Entity]


class About(BaseModel):
    """What is served."""

    version: str
    dataset: str
    model: str
    entities: int
    relations: Annotated[int, Field(description="Relations that were taught.")]


class Problem(BaseModel):
    """What was wrong, and what to do."""

    error: str
    remedy: str | None = None


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": what}
    for status, what in {
        400: "The request is not readable.",
        401: "A token is needed.",
        404: "There is no such relation.",
        413: "The request is too large.",
        422: "Something in the request is wrong.",
        503: "The service has too much to do.",
        504: "There was no answer in time.",
    }.items()
}


def create_app(
    desk: Desk, *, limits: Limits | None = None, token: str | None = None, host: str = "127.0.0.1"
) -> FastAPI:
    """The application, with its guard around it."""
    limits = limits or Limits()
    workers, metrics = Workers(limits), Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()

    app = FastAPI(
        title="HiRe",
        version=__version__,
        description="Teach a relation with a few examples, ask for answers, and see why.",
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        lifespan=lifespan,
    )
    app.add_middleware(Guard, limits=limits, metrics=metrics, token=token, host=host)
    _add_errors(app)
    _add_page(app)

    def pairs(some: list[tuple[str, str]]) -> list[LabelledPair]:
        return [
            LabelledPair(head=head, tail=tail, head_label=desk.label(head), tail_label=desk.label(tail))
            for head, tail in some
        ]

    def info(relation: StoredRelation) -> RelationInfo:
        return RelationInfo(
            id=relation.id,
            name=relation.name,
            references=pairs(relation.of_kind("reference")),
            accepted=pairs(relation.of_kind("accepted")),
            rejected=pairs(relation.of_kind("rejected")),
        )

    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Whether the service is up; needs no token."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def counts() -> PlainTextResponse:
        """Counts for Prometheus."""
        gauges = {
            "hire_model_calls": ("Calls of the model that run or wait.", float(workers.busy)),
            "hire_relations": ("Relations that were taught.", float(len(desk.relations()))),
        }
        return PlainTextResponse(metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/api/about", tags=["service"])
    async def about() -> About:
        """What is served."""
        model = desk.model
        return About(
            version=__version__,
            dataset=model.dataset.name,
            model=model.model.name,
            entities=len(model.dataset.graph.entities),
            relations=len(desk.relations()),
        )

    @app.get("/api/entities", tags=["entities"])
    async def search(
        q: Annotated[str, Query(max_length=1_000, description="A part of an id or a label, or nearly one.")],
        k: Annotated[int, Query(ge=1, le=MOST_FOUND)] = 10,
    ) -> list[Entity]:
        """Entities whose id or label is a text, begins with it, holds it or resembles it, the best first."""
        return [Entity(**found) for found in await workers.run(desk.search, q, k)]

    @app.get("/api/examples", tags=["entities"])
    async def examples() -> list[Example]:
        """Relations of the dataset that the model has not seen, with pairs to teach and heads to ask about."""
        return [
            Example(
                name=found["name"],
                split=found["split"],
                references=pairs(found["references"]),
                heads=[Entity(entity=head, label=desk.label(head)) for head in found["heads"]],
            )
            for found in await workers.run(desk.examples)
        ]

    @app.post("/api/relations", tags=["relations"], status_code=201)
    async def teach(new: NewRelation) -> RelationInfo:
        """Teach a relation with a few examples; it is kept, and can be asked about at once."""
        references = [(pair.head, pair.tail) for pair in new.references]
        return info(await workers.run(desk.teach, new.name, references))

    @app.get("/api/relations", tags=["relations"])
    async def relations() -> list[RelationInfo]:
        """All relations that were taught."""
        return [info(relation) for relation in desk.relations()]

    @app.get("/api/relations/{relation}", tags=["relations"])
    async def relation_info(relation: str) -> RelationInfo:
        """One relation that was taught."""
        return info(desk.relation(relation))

    @app.delete("/api/relations/{relation}", tags=["relations"], status_code=204)
    async def delete(relation: str) -> None:
        """Forget a relation."""
        await workers.run(desk.delete, relation)

    @app.get("/api/relations/{relation}/answers", tags=["answers"])
    async def answers(
        relation: str,
        head: HeadQuery,
        k: Annotated[int, Query(ge=1, le=MOST_ANSWERS)] = 10,
        known: Annotated[bool, Query(description="Whether to answer what is known already, too.")] = False,
        threshold: Annotated[float | None, Query(ge=0, le=1, description="The least confidence.")] = None,
    ) -> Answers:
        """The best tails of a head."""
        found = await workers.run(desk.answers, relation, head, k, known, threshold)
        return Answers(head=head, answers=[AnswerInfo(**answer) for answer in found])

    @app.get("/api/relations/{relation}/explanation", tags=["answers"])
    async def explanation(relation: str, head: HeadQuery, tail: HeadQuery) -> dict[str, Any]:
        """Why a tail is suggested: a sentence, rules with their paths, what it shares with reference tails."""
        return await workers.run(desk.explanation, relation, head, tail)

    @app.post("/api/relations/{relation}/verdicts", tags=["answers"])
    async def judge(relation: str, verdict: Verdict) -> RelationInfo:
        """Accept a pair as a further example, or reject it; later answers take it into account."""
        return info(await workers.run(desk.judge, relation, verdict.head, verdict.tail, verdict.verdict))

    @app.delete("/api/relations/{relation}/verdicts", tags=["answers"])
    async def take_back(relation: str, head: HeadQuery, tail: HeadQuery) -> RelationInfo:
        """Take back what was said of a pair."""
        return info(await workers.run(desk.judge, relation, head, tail, None))

    @app.get("/api/relations/{relation}/facts", tags=["answers"], response_class=PlainTextResponse)
    async def facts(
        relation: str, form: Annotated[Literal["tsv", "ntriples"], Query(alias="format")] = "tsv"
    ) -> Response:
        """The accepted facts as a file."""
        stored = desk.relation(relation)
        triples = [(head, stored.name, tail) for head, tail in stored.of_kind("accepted")]
        if form == "ntriples":
            return Response(as_ntriples(triples), media_type="application/n-triples")
        return Response(as_tsv(triples), media_type="text/tab-separated-values; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(describe(app.openapi()))

    return app


def _add_page(app: FastAPI) -> None:
    """Serve the page's three files, and nothing else, from memory."""

    def serve(path: str, content: bytes, kind: str) -> None:
        @app.get(path, include_in_schema=False)
        async def page() -> Response:
            return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    for path, (name, kind) in PAGE.items():
        serve(path, (files("hire.web") / name).read_bytes(), kind)

    @app.get("/favicon.ico", include_in_schema=False, status_code=204)
    async def icon() -> None:
        return None


def _add_errors(app: FastAPI) -> None:
    def problem(status: int, error: str, remedy: str | None = None) -> JSONResponse:
        headers = {"retry-after": "1"} if status == 503 else None
        return JSONResponse({"error": error, "remedy": remedy}, status, headers)

    @app.exception_handler(HireError)
    async def bad_input(_request: Request, error: HireError) -> JSONResponse:
        status = 503 if isinstance(error, BusyError) else 404 if isinstance(error, UnknownRelationError) else 422
        return problem(status, str(error), error.problems[0].remedy)

    @app.exception_handler(RequestValidationError)
    async def bad_request(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return problem(422, f"{where}: {first['msg']}"[:500], "see /docs for what is expected")

    @app.exception_handler(HTTPException)
    async def no_route(_request: Request, error: HTTPException) -> JSONResponse:
        remedy = getattr(error, "remedy", "see /docs for what there is")
        return problem(error.status_code, str(error.detail).lower(), remedy)


def as_tsv(triples: list[tuple[str, str, str]]) -> str:
    """Triples as lines of head, relation and tail; a tab or a line's end in a name is written as \\t, \\n or \\r."""
    escapes = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
    return "".join("\t".join(part.translate(escapes) for part in triple) + "\n" for triple in triples)


def as_ntriples(triples: list[tuple[str, str, str]]) -> str:
    """Triples as N-Triples; a name that is no URI becomes one of its own."""

    def uri(name: str) -> str:
        if name.startswith(URI_PREFIXES) and not NOT_IN_URIS & set(name):
            return f"<{name}>"
        return f"<urn:hire:{quote(name, safe='')}>"

    return "".join(f"{uri(head)} {uri(relation)} {uri(tail)} .\n" for head, relation, tail in triples)


def describe(schema: dict[str, Any]) -> str:
    """The endpoints of an OpenAPI document as a page that needs nothing from elsewhere."""
    rows = []
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parameters = [
                f"<dt><code>{escape(item['name'])}</code> in {escape(item['in'])}{', required' * item['required']}</dt>"
                f"<dd>{escape(str(item.get('description', '')))}</dd>"
                for item in about.get("parameters", [])
            ]
            if "requestBody" in about:
                reference = about["requestBody"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
                fields = schema["components"]["schemas"][reference]["properties"]
                parameters.append(f"<dt>body</dt><dd>JSON with {escape(', '.join(fields))}</dd>")
            rows.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about['description'])}</p>"
                f"<dl>{''.join(parameters)}</dl></section>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HiRe: the interface</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="page.css"></head><body class="docs"><main><h1>HiRe {escape(__version__)}</h1>'
        '<p>For programs: <a href="openapi.json">openapi.json</a>. Errors are JSON with <code>error</code> and '
        f"<code>remedy</code>.</p>{''.join(rows)}</main></body></html>"
    )
