"""The HTTP application: the page, the API under /v1, and its documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files
from pathlib import PurePath
from threading import BoundedSemaphore
from typing import Any

from fastapi import FastAPI, Response, Security
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.security import HTTPBearer

from hire import __version__
from hire.errors import HireError
from hire.service.errors import add_errors
from hire.service.middleware import OPEN_PATHS, Guard, Limits, Metrics, Workers, is_loopback
from hire.service.problems import ERRORS
from hire.service.routes import answers, events, graph, history, jobs, reconcile, relations, review
from hire.service.service import Service

PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_STREAMS = 8  # of predictions for many heads
# Routes are tried in turn: what is asked most often comes first.
ROUTERS = (answers, review, graph, relations, jobs, history, events, reconcile)
# Only declares how to send a token; the guard checks it before any route is found.
TOKEN = HTTPBearer(scheme_name="token", description="The token of hire serve --token, if it has one.", auto_error=False)


def create_app(
    service: Service,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    push_to: Sequence[str] = (),
) -> FastAPI:
    """The application, behind a guard that checks every request."""
    limits = limits or Limits()
    workers, clerks = Workers(limits), Workers(limits)  # who ask the model, and who read and change what is stored
    metrics, page_files = Metrics(), _page_files()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        workers.close()
        clerks.close()
        service.stop()

    app = FastAPI(
        title="HiRe",
        version=__version__,
        description="Teach a relation with a few examples, complete it, and review the suggestions with their reasons.",
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        lifespan=lifespan,
    )
    app.state.service, app.state.workers, app.state.clerks = service, workers, clerks
    app.state.streams = BoundedSemaphore(MAX_STREAMS)
    app.state.check_endpoint = _endpoint_check(host, push_to)
    open_paths = frozenset({*OPEN_PATHS, *page_files})
    app.add_middleware(Guard, limits=limits, metrics=metrics, token=token, host=host, open_paths=open_paths)
    add_errors(app)
    for module in ROUTERS:
        app.include_router(module.router, dependencies=[Security(TOKEN)])
    _add_operations(app, service, workers, metrics)
    _add_page(app, page_files)
    return app


def _endpoint_check(host: str, push_to: Sequence[str]) -> Callable[[str], None]:
    """Refuses endpoints that a service for others was not told of: it may reach what they cannot."""

    def check(endpoint: str) -> None:
        if endpoint not in push_to and not (is_loopback(host) and not push_to):
            raise HireError("this endpoint is not allowed", remedy="start hire serve with --push-to and its address")

    return check


def _add_operations(app: FastAPI, service: Service, workers: Workers, metrics: Metrics) -> None:
    @app.get("/health", tags=["service"], operation_id="checkHealth")
    async def health() -> dict[str, str]:
        """Whether the service is up; requires no token."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["service"], operation_id="getMetrics", response_class=PlainTextResponse)
    async def prometheus() -> PlainTextResponse:
        """Request metrics in the text format of Prometheus."""
        gauges = {
            "hire_model_calls": ("Model calls running or waiting.", float(workers.busy)),
            "hire_relations": ("Taught relations.", float(service.relations.count())),
        }
        return PlainTextResponse(metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(describe(app.openapi()))


def _page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page with their types, by path."""
    found = {}
    for file in files("hire.web").iterdir():
        kind = PAGE_TYPES.get(PurePath(file.name).suffix)
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = file.read_bytes(), f"{kind}; charset=utf-8"
    return found


def _add_page(app: FastAPI, page_files: dict[str, tuple[bytes, str]]) -> None:
    """Serve the page's files, and nothing else, from memory."""

    def serve(path: str, content: bytes, kind: str) -> None:
        @app.get(path, include_in_schema=False)
        async def page() -> Response:
            return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    for path, (content, kind) in page_files.items():
        serve(path, content, kind)

    @app.get("/favicon.ico", include_in_schema=False, status_code=204)
    async def icon() -> None:
        return None


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
            body = about.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                reference = body["schema"]["$ref"].split("/")[-1]
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
        '<p>Machine-readable: <a href="openapi.json">openapi.json</a>. Errors are problem+json with <code>code</code>, '
        f"<code>detail</code> and <code>remedy</code>.</p>{''.join(rows)}</main></body></html>"
    )
