from __future__ import annotations

from tests.support import request
from tests.web.conftest import Desk
from tests.web.page import Page, until


def rows(page: Page) -> list[str]:
    """The heads of the table."""
    return page.all("tbody td:first-child")


def test_facets_filter_the_table_and_stay_in_the_address(desk: Desk, page: Page) -> None:
    card = desk.get("/cards?order=confident&limit=1")["cards"][0]
    desk.judge(card["head"]["id"], card["tail"]["id"], "accept")
    page.open(desk.address, f"{desk.relation}/table")
    page.reads("#table-total", "135 heads")
    until(lambda: len(page.all(".facet")) > 2)
    names = page.all(".facet bdi")
    page.click(".facet", names.index("accepted"))
    page.reads("#table-total", "1 head")
    assert until(lambda: rows(page)) == [card["head"]["label"]]
    page.reads("tbody .state", "accepted")
    page.browser.refresh()
    page.reads("#table-total", "1 head")
    page.reads(".facet[aria-pressed=true]", "accepted")
    page.click(".facet[aria-pressed=true]")
    page.reads("#table-total", "135 heads")
    total = sum(facet["count"] for facet in desk.get("/facets?state=any")["confidence"] if facet["low"] >= 0.5)
    page.click(".facet", names.index("0.5 – 0.6"))
    until(lambda: 0 < len(rows(page)) < total)


def test_the_slider_asks_for_checks_and_a_changed_count_is_told(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/table")
    page.reads("#estimate", "0.9 or higher")
    assert "main" not in page.run("return document.getElementById('accept-all').className")
    found = page.run("return document.getElementById('accept-all').textContent")
    page.run(  # what the page has shown is out of date
        "const plain = fetch; window.fetch = (address, options) => address.endsWith('/batches') && options.body"
        ' ? plain(address, { ...options, body: options.body.replace(/"expected":\\d+/, \'"expected":999\') })'
        " : plain(address, options)"
    )
    page.click("#accept-all")
    page.text(".threshold .problem")
    assert page.run("return document.getElementById('accept-all').textContent") == found
    assert desk.get()["facts"] == 0
    page.click(".threshold a.button")
    page.reads(".tools .chip", "confidence 0.9 or higher")
    page.text("#card .reasons li")
    assert "order=audit" in page.browser.current_url and "min_confidence=0.9" in page.browser.current_url


def test_tabs_of_one_browser_share_a_stream_and_see_each_other(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/table")
    page.reads("#table-total", "135 heads")
    first = page.browser.current_window_handle
    page.browser.switch_to.new_window("tab")
    try:
        page.open(desk.address, f"{desk.relation}/table")
        page.reads("#table-total", "135 heads")
        streams = "return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/v1/events')).length"
        card = desk.get("/cards?order=confident&limit=1")["cards"][0]
        desk.judge(card["head"]["id"], card["tail"]["id"], "accept")
        page.reads("tbody .state", "accepted")  # by itself
        assert page.run(streams) == 0  # the events came by way of the first tab
    finally:
        page.browser.close()
        page.browser.switch_to.window(first)
    page.reads("tbody .state", "accepted")


def test_an_entry_is_undone_from_the_history(desk: Desk, page: Page) -> None:
    card = desk.get("/cards?limit=1")["cards"][0]
    desk.judge(card["head"]["id"], card["tail"]["id"], "reject", by="ana")
    page.open(desk.address, f"{desk.relation}/history")
    page.reads(".log .state", "rejected")
    page.click(".log button")
    page.reads(".log .undone", card["head"]["label"])
    assert desk.verdicts() == {}
    entry = desk.judge(card["head"]["id"], card["tail"]["id"], "reject")["entry"]["entry"]
    page.reads(".log tr:not(.undone) .state", "rejected")
    page.run(
        "const plain = fetch; window.fetch = (address, ...rest) =>"
        " address.includes('/history') ? new Promise(() => {}) : plain(address, ...rest)"
    )
    request(f"{desk.path}/undo", {"entry": entry, "by": "ben", "client": "ben"})
    page.click(".log tr:not(.undone) button")  # it was undone elsewhere in the meantime
    page.reads("#notices .notice", "already been undone")
