"""hire serve: a model over HTTP, with a web page."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from hire.cli.options import FEW, FiniteRange, device_option, use_one_thread
from hire.cli.output import option
from hire.errors import HireError
from hire.util.memory import keep_large_blocks_apart

STATE = "relations.sqlite"
CONFIG = "config.json"  # of a run


@click.command()
@click.argument("model")
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65_535), default=8000, help="Port to listen on; 0 picks a free one.")
@click.option("--token", envvar="HIRE_TOKEN", help="Token that clients must send [default: $HIRE_TOKEN, or none].")
@click.option("--open-to-all", is_flag=True, help="Allow a --host that others can reach without a token.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="File for the taught relations [default: in the run folder, or beside the graph].",
)
@click.option("--dataset", help="The dataset, if it has moved since training.")
@option("--threads", type=FEW, help="Model calls at once [default: one per core].")
@option(
    "--timeout",
    type=FiniteRange(0, 3_600, min_open=True),
    default=30.0,
    help="Time limit of a request, in seconds.",
)
@click.option(
    "--push-to",
    multiple=True,
    metavar="URL",
    help="SPARQL endpoint that facts may be pushed to; repeatable [default: any, if only this machine can connect].",
)
@device_option
def serve(
    model: str,
    host: str,
    port: int,
    token: str | None,
    open_to_all: bool,
    state: Path | None,
    dataset: str | None,
    threads: int | None,
    timeout: float,
    push_to: tuple[str, ...],
    device: str,
) -> None:
    """Serve a model: a web page, and an HTTP API (/docs).

    MODEL is a run of hire train, or any graph, which the pre-trained model answers without training: see hire predict.
    Taught relations are saved and available again after a restart. Stop with Ctrl-C; nothing is lost.

    \b
    Example:
      hire serve runs/demo
      hire serve graph.tsv
      HIRE_TOKEN=secret hire serve runs/demo --host 0.0.0.0 --port 8080
    """
    serve_model(
        model,
        host=host,
        port=port,
        token=token,
        open_to_all=open_to_all,
        state=state,
        dataset=dataset,
        threads=threads,
        timeout_seconds=timeout,
        push_to=push_to,
        device=device,
    )


def serve_model(
    source: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    open_to_all: bool = False,
    state: Path | None = None,
    dataset: str | None = None,
    threads: int | None = None,
    timeout_seconds: float = 30.0,
    push_to: tuple[str, ...] = (),
    device: str = "auto",
) -> None:
    """Serve a run or a graph until Ctrl-C or SIGTERM."""
    need_service()
    from hire.service.middleware import Limits, is_loopback

    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise HireError("the token must be printable ASCII without surrounding spaces", remedy="choose another token")
    if token is None and not open_to_all and not is_loopback(host):
        raise HireError(
            f"others can reach {host} without a token",
            remedy="set --token, or pass --open-to-all to allow it",
        )
    keep_large_blocks_apart()
    with _bound(host, port) as listener:  # fail before anything slow
        from hire.inference.ahead import start_compiling

        start_compiling()
        from hire.inference.open import fingerprint_of_model, open_model
        from hire.service.app import create_app
        from hire.service.server import make_server
        from hire.service.service import Service
        from hire.service.store import Store

        use_one_thread()
        model = open_model(source, dataset, device=device)
        path = state or state_of(source)
        store = Store(path)
        try:
            service = Service(model, store, fingerprint_of_model(source))
            limits = Limits(threads=threads or os.cpu_count() or 1, seconds=timeout_seconds)
            app = create_app(service, limits=limits, token=token, host=host, push_to=push_to)
            shown = f"[{host}]" if ":" in host else host
            click.echo(f"{model.dataset.name} at http://{shown}:{listener.getsockname()[1]}/  (Ctrl-C to stop)")
            server = make_server(app, limits)
            service.events.stopping = lambda: server.should_exit  # streams would keep the server from ending
            with suppress(KeyboardInterrupt):
                server.run(sockets=[listener])
            count = service.relations.count()
        finally:
            store.close()
    click.echo(f"Stopped; {count:,} relation{'' if count == 1 else 's'} saved in {path}.")


def need_service() -> None:
    """Raise unless what the service needs is installed."""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        raise HireError(
            "the service needs fastapi and uvicorn", remedy="pip install '.[serve]' in the folder of the source code"
        )


def state_of(source: str | Path) -> Path:
    """Where the taught relations of a run or a graph are kept."""
    path = Path(source)
    if (path / CONFIG).exists():
        return path / STATE
    name = re.sub(r"[^\w.-]+", "_", path.name or "graph")
    return (path.parent if path.exists() else Path()) / f"{name}.{STATE}"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()
        raise HireError(
            f"cannot listen on port {port} of {host} ({reason})", remedy="choose another --port or --host"
        ) from error
