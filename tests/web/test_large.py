"""A queue of more than 5,000 cards, with labels that are long or written from right to left."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.service.service import Service
from tests.support import random_model, request
from tests.web.conftest import Desk
from tests.web.page import Page, served, until

ENTITIES = 5_200
ARABIC, LONG, CHINESE = "مدينة السلام الكبيرة", "a_label_without_an_end_" * 14, "北京大学" * 40
WIDTHS = {1440: 900, 1024: 768, 390: 844}
SECONDS_TO_CARD = 5.0  # on a busy machine; usually a fraction of a second


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    generator = np.random.default_rng(0)
    names = [ARABIC, LONG, CHINESE, *(f"item_{number:04}" for number in range(3, ENTITIES))]
    tails = generator.integers(0, ENTITIES, (3, ENTITIES))
    path = tmp_path_factory.mktemp("large") / "graph.tsv"
    relations = ("near", "made_of", "part_of")
    rows = [f"{names[h]}\t{r}\t{names[t]}" for r, row in zip(relations, tails, strict=True) for h, t in enumerate(row)]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return random_model(open_model(path).dataset)


@pytest.fixture(scope="module")
def large(large_model: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    service = Service.over(large_model, tmp_path_factory.mktemp("state") / "relations.sqlite")
    pairs = [{"head": f"item_{n:04}", "tail": f"item_{n + 1:04}"} for n in (10, 20, 30)]
    with served(service) as address:
        yield Desk(address, references=pairs)
    service.store.close()


@pytest.fixture
def queued(large: Desk) -> Desk:
    """The relation with all of its cards."""
    return large if large.get()["counts"].get("open", 0) > ENTITIES - 100 else large.completed()


def test_a_job_shows_its_progress_and_is_cancelled_and_resumed(large: Desk, page: Page) -> None:
    page.open(large.address, f"{large.relation}/review")
    page.reads(".empty", "5,200 heads")
    page.click("#complete")
    page.reads(".job", "Completing")
    page.click("#job-cancel")
    page.reads(".job.cancelled", "Cancelled after")
    page.click("#job-resume")
    until(lambda: request(f"{large.address}v1/jobs?relation={large.relation}")["jobs"][0]["state"] == "done")
    page.reads("#relation-bar", "5,200 heads to review")
    assert page.text("#statement")  # the cards are there by themselves


def test_thousands_of_queued_cards_are_as_quick_as_ten(queued: Desk, page: Page) -> None:
    start = time.monotonic()
    page.open(queued.address, f"{queued.relation}/review?order=head")
    page.text("#card .reasons, #card .why p")
    assert time.monotonic() - start < SECONDS_TO_CARD
    for _ in range(60):  # more than are asked for at once
        page.press("j")
        page.text("#statement")
    page.reads("#statement", queued.get("/cards?order=head&limit=61")["cards"][60]["head"]["id"])
    assert len(page.run("return performance.getEntriesByType('resource').map((e) => e.name)")) < 250
    page.click("#tab-table")
    page.reads("#table-total", "5,200 heads")
    before = until(lambda: len(page.all("tbody tr")))
    page.run("scrollTo(0, document.body.scrollHeight)")
    until(lambda: len(page.all("tbody tr")) > before)
    shown = len(page.all("tbody tr"))
    queued.judge(page.text("tbody td"), "item_0005", "accept")  # by someone else
    page.reads("tbody .state", "accepted")
    assert len(page.all("tbody tr")) >= shown  # whoever has scrolled down stays there
    page.click("#table-search")
    page.press("item_0042")
    page.reads("#table-total", "1 head")


@pytest.mark.parametrize("name", [ARABIC, LONG, CHINESE], ids=["right-to-left", "long", "chinese"])
def test_no_label_leaves_the_page(queued: Desk, page: Page, name: str) -> None:
    queued.judge(name, LONG, "accept")
    for view in ("review", "table", "history", "references"):
        page.open(queued.address, f"{queued.relation}/{view}")
        page.text("#main .panel, #main table")
        if view == "review":
            page.run("location.hash = arguments[0]", f"#/{queued.relation}/review?head={name}")
            page.reads("#statement", name[:20])
        for width, height in WIDTHS.items():
            page.size(width, height)
            assert page.run("return document.documentElement.scrollWidth") <= width, (view, width)
    page.open(queued.address, f"{queued.relation}/history")
    page.reads(".log td", name[:20])
    direction = page.run(
        "const names = [...document.querySelectorAll('.log td bdi')];"
        "return getComputedStyle(names.find((name) => name.textContent.startsWith(arguments[0]))).direction",
        name[:20],
    )
    assert direction == ("rtl" if name == ARABIC else "ltr")
