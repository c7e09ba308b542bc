from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hire.data.dataset import FewShotDataset
from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.service.app import create_app
from hire.service.service import Service
from hire.service.store import Store
from tests.support import random_model

EXAMPLES = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]
SECONDS = 60


@pytest.fixture(scope="session")
def model(umls: FewShotDataset) -> TrainedModel:
    """A model that is not calibrated."""
    return random_model(umls)


@pytest.fixture(scope="session")
def path_model() -> TrainedModel:
    """The pre-trained model, whose answers have a confidence."""
    found = open_model("umls-one")
    found.teach(EXAMPLES).explain("plant", "organism")  # what has to be compiled may take longer than a request
    return found


@pytest.fixture
def service(model: TrainedModel, tmp_path: Path) -> Iterator[Service]:
    store = Store(tmp_path / "relations.sqlite")
    service = Service(model, store)
    yield service
    service.stop()
    store.close()


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with client_of(service) as client:
        yield client


@pytest.fixture
def desk(path_model: TrainedModel, tmp_path: Path) -> Iterator[Desk]:
    """A relation of the pre-trained model that has been completed over all heads."""
    store = Store(tmp_path / "relations.sqlite")
    with client_of(Service(path_model, store, "weights")) as client:
        desk = Desk(client)
        desk.complete()
        yield desk
    store.close()


def client_of(service: Service, **options: object) -> TestClient:
    app = create_app(service, **options)  # type: ignore[arg-type]
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def references(pairs: list[tuple[str, str]] = EXAMPLES) -> list[dict[str, str]]:
    return [{"head": head, "tail": tail} for head, tail in pairs]


class Desk:
    """A client with a taught relation."""

    def __init__(self, client: TestClient, **more: Any) -> None:
        self.client = client
        body = {"name": "kind", "references": references(), "scope": {"kind": "all"}, "by": "ana"} | more
        self.relation = self.post("/v1/relations", body)["id"]
        self.path = f"/v1/relations/{self.relation}"

    def post(self, path: str, body: Any, status: int | None = None, **headers: str) -> Any:
        answer = self.client.post(path, json=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
        assert answer.status_code == status if status else answer.is_success, answer.text
        return answer.json()

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path if path.startswith("/v1") else self.path + path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def complete(self) -> Any:
        """Run a job to its end."""
        job = self.post(f"{self.path}/jobs", {"by": "ana"})
        return self.wait(job["id"], "done")

    def wait(self, job: str, *states: str) -> Any:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = self.get(f"/v1/jobs/{job}")
            if found["state"] in states:
                return found
            time.sleep(0.02)
        raise AssertionError(found)

    def cards(self, **query: Any) -> Any:
        return self.get("/cards", **query)["cards"]

    def judge(self, card: Any, verdict: str, status: int = 201, **more: Any) -> Any:
        """A verdict on the pair that a card shows."""
        tail = None if verdict == "no_tail" else card["tail"]["id"]
        body = {"head": card["head"]["id"], "tail": tail, "verdict": verdict, "by": "ana", "client": "one"} | more
        return self.post(f"{self.path}/verdicts", body, status)
