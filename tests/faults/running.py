"""A service on a server in a thread of the test's own process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hire.inference.model import TrainedModel
from hire.service.app import create_app
from hire.service.middleware import Limits
from hire.service.server import make_server
from hire.service.service import Service
from hire.service.store import Store
from tests.faults.client import Client


@contextmanager
def running(app: object, limits: Limits) -> Iterator[Client]:
    """An application on a server in a thread."""
    server = make_server(app, limits)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def running_service(model: TrainedModel, state: Path, limits: Limits) -> Iterator[Client]:
    """The service of a model."""
    store = Store(state)
    service = Service(model, store)
    try:
        with running(create_app(service, limits=limits), limits) as client:
            yield client
    finally:
        service.stop()
        store.close()
