"""The HTTP API: its endpoints, their documentation, and its errors as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from hire import __version__
from hire.data.iri import PREFIX
from hire.errors import HireError
from hire.inference.export import to_ntriples, to_tsv
from hire.service.middleware import BusyError, Guard, Limits, Metrics, Workers
from hire.service.relations import RelationService, UnknownRelationError
from hire.service.schemas import (
    ERRORS,
    About,
    AnswerInfo,
    Answers,
    Entity,
    Example,
    LabelledPair,
    NameQuery,
    RelationInfo,
    TeachRequest,
    Verdict,
)
from hire.service.store import StoredRelation

MAX_ANSWERS = 1_000
MAX_MATCHES = 100
MAX_PREFIX = 1_000  # characters
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def create_app(
    service: RelationService, *, limits: Limits | None = None, token: str | None = None, host: str = "127.0.0.1"
) -> FastAPI:
    """The application, behind a guard that checks every request."""
    limits = limits or Limits()
    workers, metrics = Workers(limits), Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()

    app = FastAPI(
        title="HiRe",
        version=__version__,
        description="Teach a relation with a few examples, predict missing facts, and see the evidence.",
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
            LabelledPair(head=head, tail=tail, head_label=service.label(head), tail_label=service.label(tail))
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

    def listing() -> bytes:
        """All relations as JSON; made in a thread, since many long ones take seconds."""
        return b"[" + b",".join(info(relation).model_dump_json().encode() for relation in service.relations()) + b"]"

    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Whether the service is up; requires no token."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def prometheus() -> PlainTextResponse:
        """Request metrics in the text format of Prometheus."""
        gauges = {
            "hire_model_calls": ("Model calls running or waiting.", float(workers.busy)),
            "hire_relations": ("Taught relations.", float(len(service.relations()))),
        }
        return PlainTextResponse(metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/api/about", tags=["service"])
    async def about() -> About:
        """What is being served."""
        model = service.model
        return About(
            version=__version__,
            dataset=model.dataset.name,
            model=model.system.name,
            entities=len(model.dataset.graph.entities),
            relations=len(service.relations()),
        )

    @app.get("/api/entities", tags=["entities"])
    async def search(
        q: Annotated[str, Query(max_length=1_000, description="Part of an id or label; near matches are found too.")],
        k: Annotated[int, Query(ge=1, le=MAX_MATCHES)] = 10,
    ) -> list[Entity]:
        """Entities whose id or label equals the text, starts with it, contains it or resembles it, best first."""
        return [Entity(**found) for found in await workers.run(service.search, q, k)]

    @app.get("/api/examples", tags=["entities"])
    async def examples() -> list[Example]:
        """Dev and test relations of the dataset, with pairs to teach and heads to ask about."""
        return [
            Example(
                name=found["name"],
                split=found["split"],
                references=pairs(found["references"]),
                heads=[Entity(entity=head, label=service.label(head)) for head in found["heads"]],
            )
            for found in await workers.run(service.examples)
        ]

    @app.post("/api/relations", tags=["relations"], status_code=201)
    async def teach(request: TeachRequest) -> RelationInfo:
        """Teach a relation with a few examples; it is saved and can be queried at once."""
        references = [(pair.head, pair.tail) for pair in request.references]
        return info(await workers.run(service.teach, request.name, references))

    @app.get("/api/relations", tags=["relations"], response_model=list[RelationInfo])
    async def relations() -> Response:
        """All taught relations."""
        return Response(await workers.run(listing), media_type="application/json")

    @app.get("/api/relations/{relation}", tags=["relations"])
    async def relation_info(relation: str) -> RelationInfo:
        """One taught relation."""
        return info(service.relation(relation))

    @app.delete("/api/relations/{relation}", tags=["relations"], status_code=204)
    async def delete(relation: str) -> None:
        """Delete a taught relation."""
        await workers.run(service.delete, relation)

    @app.get("/api/relations/{relation}/answers", tags=["answers"])
    async def answers(
        relation: str,
        head: NameQuery,
        k: Annotated[int, Query(ge=1, le=MAX_ANSWERS)] = 10,
        known: Annotated[bool, Query(description="Whether to include known facts.")] = False,
        threshold: Annotated[float | None, Query(ge=0, le=1, description="The lowest confidence to include.")] = None,
    ) -> Answers:
        """The predicted tails of a head, best first."""
        found = await workers.run(service.answers, relation, head, k, known, threshold)
        return Answers(head=head, answers=[AnswerInfo(**answer) for answer in found])

    @app.get("/api/relations/{relation}/explanation", tags=["answers"])
    async def explanation(relation: str, head: NameQuery, tail: NameQuery) -> dict[str, Any]:
        """Why a tail is predicted: a sentence, rules with their paths, and facts shared with reference tails."""
        return await workers.run(service.explanation, relation, head, tail)

    @app.post("/api/relations/{relation}/verdicts", tags=["answers"])
    async def judge(relation: str, verdict: Verdict) -> RelationInfo:
        """Accept a pair as a new reference, or reject it; answers change accordingly."""
        return info(await workers.run(service.judge, relation, verdict.head, verdict.tail, verdict.verdict))

    @app.delete("/api/relations/{relation}/verdicts", tags=["answers"])
    async def withdraw(relation: str, head: NameQuery, tail: NameQuery) -> RelationInfo:
        """Withdraw the verdict on a pair."""
        return info(await workers.run(service.judge, relation, head, tail, None))

    @app.get("/api/relations/{relation}/facts", tags=["answers"], response_class=PlainTextResponse)
    async def facts(
        relation: str,
        form: Annotated[Literal["tsv", "ntriples"], Query(alias="format")] = "tsv",
        prefix: Annotated[
            str, Query(max_length=MAX_PREFIX, description="In N-Triples, the prefix of names that are not IRIs.")
        ] = PREFIX,
    ) -> Response:
        """The accepted facts as a file."""
        stored = service.relation(relation)
        accepted = [(head, stored.name, tail) for head, tail in stored.of_kind("accepted")]
        if form == "ntriples":
            return Response(to_ntriples(accepted, prefix), media_type="application/n-triples")
        return Response(to_tsv(accepted), media_type="text/tab-separated-values; charset=utf-8")

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
        return problem(422, f"{where}: {first['msg']}"[:500], "see /docs for what the API expects")

    @app.exception_handler(HTTPException)
    async def no_route(_request: Request, error: HTTPException) -> JSONResponse:
        remedy = getattr(error, "remedy", "see /docs for the endpoints")
        return problem(error.status_code, str(error.detail).lower(), remedy)


def describe(schema: dict[str, Any]) -> str:
    """The endpoints of an OpenAPI document as a page that loads nothing from other sites."""
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
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HiRe API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="page.css"></head><body class="docs"><main>'
        f"<h1>HiRe API {escape(__version__)}</h1>"
        '<p>Machine-readable: <a href="openapi.json">openapi.json</a>. Errors are JSON with <code>error</code> and '
        f"<code>remedy</code>.</p>{''.join(rows)}</main></body></html>"
    )
