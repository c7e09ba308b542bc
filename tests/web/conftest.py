from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.service.service import Service
from tests.support import request
from tests.web.page import Page, served, start_browser, until

REFERENCES = [("cell_component", "cell"), ("tissue", "animal"), ("gene_or_genome", "cell")]


@pytest.fixture(scope="session")
def path_model() -> TrainedModel:
    """The pre-trained model, whose answers have a confidence and reasons."""
    return open_model("umls-one")


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def browser(downloads: Path) -> Iterator[Chrome]:
    found = start_browser(downloads)
    yield found
    found.quit()


@pytest.fixture
def page(browser: Chrome) -> Iterator[Page]:
    """The browser without what an earlier test has left; a test names it last: it leaves before its service ends."""
    found = Page(browser)
    found.size(1280)
    found.complaints()
    found.requests()
    yield found
    found.leave()


@pytest.fixture(scope="session")
def service(path_model: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service.over(path_model, tmp_path_factory.mktemp("state") / "relations.sqlite", "weights")
    yield service
    service.store.close()


@pytest.fixture(scope="session")
def address(service: Service) -> Iterator[str]:
    """Where the service is for all tests; each teaches a relation of its own."""
    with served(service) as address:
        yield address


class Desk:
    """A relation that was taught over HTTP, at an address."""

    def __init__(self, address: str, **more: Any) -> None:
        pairs = [{"head": head, "tail": tail} for head, tail in REFERENCES]
        body = {"name": "part_of", "references": pairs, "scope": {"kind": "all"}, "by": "ana"} | more
        self.address = address
        self.relation: str = request(f"{address}v1/relations", body)["id"]
        self.path = f"{address}v1/relations/{self.relation}"

    def completed(self) -> Desk:
        """The same, with suggestions for all of its heads."""
        job = request(f"{self.path}/jobs", {"by": "ana"})["id"]
        until(lambda: request(f"{self.address}v1/jobs/{job}")["state"] == "done", "the end of the job")
        return self

    def get(self, path: str = "") -> Any:
        return request(self.path + path)

    def judge(self, head: str, tail: str, verdict: str, by: str = "ben") -> Any:
        body = {"head": head, "tail": tail, "verdict": verdict, "by": by, "client": by}
        return request(f"{self.path}/verdicts", body)

    def verdicts(self) -> dict[tuple[str, str], str]:
        """The verdicts that hold, by pair: the newest of each."""
        entries = reversed(self.get("/history?limit=200")["entries"])
        standing = [entry for entry in entries if entry["verdict"] != "undo" and entry["undone_by"] is None]
        return {(e["head"]["id"], e["tail"]["id"] if e["tail"] else ""): e["verdict"] for e in standing}


@pytest.fixture
def desk(address: str) -> Desk:
    return Desk(address).completed()
