from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hire.data.dataset import FewShotDataset
from hire.inference.model import TrainedModel
from hire.service.app import create_app
from hire.service.relations import RelationService
from hire.service.store import RelationStore
from tests.support import random_model

EXAMPLES = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]


@pytest.fixture(scope="session")
def model(umls: FewShotDataset) -> TrainedModel:
    return random_model(umls)


@pytest.fixture
def service(model: TrainedModel, tmp_path: Path) -> Iterator[RelationService]:
    store = RelationStore(tmp_path / "relations.sqlite")
    yield RelationService(model, store)
    store.close()


@pytest.fixture
def client(service: RelationService) -> Iterator[TestClient]:
    with client_of(service) as client:
        yield client


def client_of(service: RelationService, **options: object) -> TestClient:
    app = create_app(service, **options)  # type: ignore[arg-type]
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def references(pairs: list[tuple[str, str]] = EXAMPLES) -> list[dict[str, str]]:
    return [{"head": head, "tail": tail} for head, tail in pairs]
