"""The review by keyboard: fast, with deep undo, with others, and with a service that stops in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pyoxigraph import Store
from selenium.webdriver import Chrome

from hire.inference.model import TrainedModel
from hire.service.service import Service
from tests.web.conftest import Desk
from tests.web.page import DOWN, ENTER, ESCAPE, Page, served, start_browser, until

VERDICTS = 30
PER_SECOND = 10


@contextmanager
def sparql_store() -> Iterator[tuple[Store, str]]:
    """A store on this machine that takes SPARQL updates, and the address of its endpoint."""
    store = Store()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            store.update(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store, f"http://127.0.0.1:{server.server_port}/update"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def judge_by_keyboard(page: Page, count: int) -> dict[tuple[str, str], str]:
    """Verdicts at ten a second, and what was on the card when each key was pressed."""
    keys, names = "ax ", ("accept", "reject", "unsure")
    given = {}
    start = time.monotonic()
    for number in range(count):
        given[page.pair()] = names[number % 3]
        page.press(keys[number % 3])
        time.sleep(max(0.0, start + (number + 1) / PER_SECOND - time.monotonic()))
    return given


def test_a_relation_from_verdicts_to_a_store(desk: Desk, page: Page, downloads: Path) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    first = page.pair()
    given = judge_by_keyboard(page, VERDICTS)
    assert len(given) == VERDICTS
    page.all_saved()
    assert desk.verdicts() == given
    for _ in range(VERDICTS):
        page.press("z")
    page.all_saved()
    assert desk.verdicts() == {}
    assert page.pair() == first
    page.press("z")  # nothing is left to take back
    page.press("a")
    page.reads(".last.saved", "Saved: ")

    page.click("#tab-table")
    page.reads("#estimate", "0.9 or higher: ")
    page.click("#accept-all")
    page.reads("#outcome", "accepted.")
    accepted = desk.get()["facts"]
    assert accepted > 1
    page.click("#undo-batch")
    page.reads("#outcome", "open again")
    assert desk.get()["facts"] == 1
    until(lambda: page.all("#accept-all") == [f"Accept {accepted - 1} facts"])
    page.click("#accept-all")
    page.reads("#outcome", "accepted.")

    page.click("#tab-history")
    page.reads("#preview", f"{first[0]}\tpart_of\t{first[1]}")
    page.click("#download")
    (file,) = until(lambda: list(downloads.glob("*.tsv")), "the file")
    lines = until(lambda: file.read_text().splitlines(), "its content")
    assert len(lines) == accepted and f"{first[0]}\tpart_of\t{first[1]}" in lines
    file.unlink()
    with sparql_store() as (store, endpoint):
        page.click("#endpoint")
        page.press(endpoint)
        page.click("#push")
        page.reads("#pushed", f"{accepted} facts pushed")
        assert len(store) == accepted
    page.click("#push")
    page.reads(".buttons + .problem", "cannot be reached")
    page.click(".revert")
    until(lambda: desk.get()["facts"] == 1, "the revert")
    assert not [told for told in page.complaints() if "502" not in told]


def test_a_verdict_names_the_pair_that_is_shown(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    first = page.pair()
    page.press("ax")  # at once: the second key is about the second card
    page.all_saved()
    assert desk.verdicts()[first] == "accept"
    assert sorted(desk.verdicts().values()) == ["accept", "reject"]
    page.press("k")
    page.reads("#card .state", "rejected")
    page.press("j")
    head, tail = page.pair()
    page.press("2")
    until(lambda: page.pair()[1] != tail)
    other = page.pair()
    assert other[0] == head
    page.press("a")
    page.all_saved()
    assert desk.verdicts()[other] == "accept"
    head, _ = page.pair()
    page.press("n")
    page.all_saved()
    assert desk.verdicts()[head, ""] == "no_tail"


def test_reasons_that_come_late_are_not_shown_for_another_pair(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    page.run(
        "const plain = fetch; window.asked = 0; window.fetch = (address, ...rest) => plain(address, ...rest).then("
        "(found) => !address.includes('/explanation') || window.asked++ ? found"
        " : new Promise((done) => setTimeout(() => { window.late = true; done(found); }, 700)))"
    )
    for _ in range(5):
        page.press("j")  # beyond what was asked for ahead of time
    until(lambda: page.run("return window.asked > 0"))
    page.press("j")
    page.text("#card .reasons li")
    until(lambda: page.run("return window.late"))
    assert page.pair()[1] in page.text("#card .reasons li .path")


def labels_are_apart(page: Page) -> bool:
    """Whether no label of the graph covers another or leaves the picture; and whether there are several."""
    boxes = page.run(
        "return [...document.querySelectorAll('.graph svg, .graph text')].map((each) => {"
        "const box = each.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })"
    )
    (left, top, right, bottom), *labels = boxes
    inside = all(box[0] >= left and box[1] >= top and box[2] <= right and box[3] <= bottom for box in labels)
    covered = [
        (one, other)
        for place, one in enumerate(labels)
        for other in labels[:place]
        if one[0] < other[2] - 2 and other[0] < one[2] - 2 and one[1] < other[3] - 4 and other[1] < one[3] - 4
    ]
    return inside and not covered and len(labels) > 3


def test_any_head_is_found_and_its_neighbours_expand(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    page.press("/")
    until(lambda: page.focused() == "search")
    page.press("embryonic")
    page.reads("[role=option]", "embryonic_structure")
    page.press(DOWN, ENTER)
    page.reads("#statement", "embryonic_structure")
    page.text(".graph .node")
    before = len(page.all(".graph .node"))
    page.run("document.querySelector('.graph .node').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    assert labels_are_apart(page)
    until(lambda: len(page.all(".graph .node")) > before)
    assert labels_are_apart(page)
    page.press("e")
    page.reads("#entity h3", "fact")
    page.press(ESCAPE)
    until(lambda: not page.all("#entity[open]"))
    page.press("?")
    page.reads("#help[open] dl", "undo")
    page.press(ESCAPE)


def test_a_head_that_does_not_exist_is_said_so_beside_the_search(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review?head=nonsense_head")
    page.reads(".tools + .problem", "nonsense_head")
    assert page.text("#statement")  # the queue is there all the same
    page.click(".problem button")
    assert not page.all(".problem")


def test_two_people_see_each_other_and_their_conflicts(desk: Desk, page: Page, tmp_path: Path) -> None:
    second = start_browser(tmp_path)
    try:
        other = Page(second)
        for each, name in ((page, "ana"), (other, "ben")):
            each.open(desk.address)
            each.run("localStorage.setItem('hire.who', arguments[0])", name)
            each.open(desk.address, f"{desk.relation}/review?head=tissue")
            each.reads("#statement", "tissue")
        pair = page.pair()
        assert other.pair() == pair
        other.press("a")
        page.reads(".card .notice", "ben has just given a verdict")
        page.press("x")
        page.reads(".notice.conflict", "as ben has decided otherwise")
        assert desk.verdicts()[pair] == "accept"
        page.click(".overrule")
        page.all_saved()
        until(lambda: desk.verdicts().get(pair) == "reject")
        other.click("#tab-history")
        other.reads(".log", "ana")
        page.press("a")
        other.reads("#relation-bar", "1 fact accepted")  # by itself
        other.leave()
    finally:
        second.quit()


def test_no_verdict_is_lost_when_the_service_restarts(
    path_model: TrainedModel, browser: Chrome, tmp_path: Path
) -> None:
    page = Page(browser)
    state = tmp_path / "relations.sqlite"
    service = Service.over(path_model, state)
    with served(service) as address:
        desk = Desk(address).completed()
        page.open(address, f"{desk.relation}/review")
        page.text("#card .reasons li")
        page.press("a")
        page.all_saved()
    service.store.close()
    given = judge_by_keyboard(page, 5)
    page.reads("#saving.trouble", "5 verdicts not saved yet")
    service = Service.over(path_model, state)
    with served(service, port=int(address.split(":")[2].rstrip("/"))):
        page.all_saved()
        assert given.items() <= desk.verdicts().items()
        assert len(desk.verdicts()) == 6
        page.leave()
    service.store.close()


def test_unsaved_verdicts_survive_a_reload(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card")
    page.run(
        "const plain = fetch; window.fetch = (address, ...rest) =>"
        " address.endsWith('/verdicts') ? Promise.reject(Error()) : plain(address, ...rest)"
    )
    pair = page.pair()
    page.press("a")
    page.reads("#saving.trouble", "1 verdict not saved yet")
    page.reads(".last.saving", "Saving: ")  # never called saved before it is
    page.browser.refresh()
    page.all_saved()
    assert desk.verdicts() == {pair: "accept"}
    page.text("#card")
    page.press("z")
    until(lambda: desk.verdicts() == {})
