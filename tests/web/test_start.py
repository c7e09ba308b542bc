from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from hire.inference.model import TrainedModel
from hire.service.service import Service
from tests.web.conftest import Desk
from tests.web.page import ENTER, Page, served, until

MAX_BYTES = 150_000


def test_a_missing_fact_with_its_reasons_is_a_click_away(address: str, page: Page) -> None:
    page.open(address)
    assert "umls-one" in page.text("h1")
    page.click("#try")
    assert page.text("#missing .reasons li")
    head, tail = page.all("#missing .statement .entity")
    page.click("#review-example")
    page.reads("#statement", head)
    assert page.pair() == (head, tail)
    assert page.text("#card .reasons li")
    assert not page.complaints()


def test_the_last_example_that_is_asked_for_is_shown(address: str, page: Page) -> None:
    page.open(address)
    names = until(lambda: page.all(".example"))
    page.run(
        "const plain = fetch; window.fetch = (address, ...rest) => plain(address, ...rest).then((found) =>"
        f" address.includes('name={names[0]}')"
        " ? new Promise((done) => setTimeout(() => { window.late = true; done(found); }, 500)) : found)"
    )
    page.click(".example", 0)
    page.click(".example", 1)
    page.reads("#missing-title em", names[1])
    until(lambda: page.run("return window.late"))
    assert page.text("#missing-title em") == names[1]
    page.click("#another")
    page.reads("#missing-title em", names[2])


def test_the_page_is_small_and_asks_no_one_else(desk: Desk, page: Page) -> None:
    sizes = [
        len(file.read_bytes()) for file in files("hire.web").iterdir() if file.name.endswith((".html", ".css", ".js"))
    ]
    assert sum(sizes) < MAX_BYTES
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    asked = page.requests()
    assert f"{desk.address}page.js" in asked
    assert all(url.startswith((desk.address, "about:", "blob:")) for url in asked)


def test_a_review_is_continued(desk: Desk, page: Page) -> None:
    page.open(desk.address)
    page.reads(".reviews", "135 heads left")
    page.click(".reviews a")
    page.reads("#relation-bar h1", "part_of")
    assert page.text("#statement")


def test_the_address_holds_relation_head_and_view(desk: Desk, page: Page) -> None:
    page.open(desk.address)
    page.click(".reviews a")
    page.text("#card")
    page.click("#tab-table")
    page.click("tbody a", 3)
    head = page.text("#statement .entity")
    page.open(desk.address, page.browser.current_url.split("#/")[1])
    page.reads("#statement", head)
    page.browser.get(f"{desk.address}#/{desk.relation}/history")
    page.reads("h2", "Export")
    page.browser.back()
    page.reads("#statement", head)


def test_a_relation_that_is_gone_is_said_so(address: str, page: Page) -> None:
    page.open(address, "nonsense/review")
    page.reads("[role=alert]", "nonsense")
    page.click(".panel .button")
    page.text("#try")


def test_the_token_is_asked_for(path_model: TrainedModel, tmp_path: Path, page: Page) -> None:
    service = Service.over(path_model, tmp_path / "relations.sqlite")
    with served(service, token="secret") as address:
        page.open(address)
        page.text("dialog[open] #token-title")
        page.press("wrong", ENTER)
        page.reads("#token-wrong", "Wrong token")
        page.press("secret", ENTER)
        page.text("#try")
        page.leave()
    service.store.close()


def test_the_walkthrough_names_what_the_page_shows() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "review.md").read_text("utf-8").split("## Keys")[0]
    named = [words for words in re.findall(r"\*\*([^*]+)\*\*", text) if not re.match(r"\d\.", words)]
    page = "\n".join(file.read_text("utf-8") for file in (root / "src" / "hire" / "web").glob("*.js"))
    assert len(named) > 8
    assert not [words for words in named if words not in page]
