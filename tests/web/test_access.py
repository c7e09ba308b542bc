"""The page for everyone: by axe-core's rules in light and dark, on a phone, with a keyboard."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import Desk
from tests.web.page import TAB, Page, until

AXE = "4.14.0"
SECONDS = 60
MAX_TAB_STOPS = 30
VIEWS = ["", "teach", "review", "table", "history", "references"]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, fetched once with npm and kept outside of the project."""
    place = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hire-tests" / f"axe-{AXE}.min.js"
    if not place.exists():
        if shutil.which("npm") is None:
            pytest.skip("axe-core is not here, and there is no npm to fetch it")
        place.parent.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"axe-core@{AXE}", "--pack-destination", str(place.parent)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"axe-core cannot be fetched: {error}")
        with tarfile.open(place.parent / f"axe-core-{AXE}.tgz") as packed:
            script = packed.extractfile("package/axe.min.js")
            assert script is not None
            place.write_bytes(script.read())
    return place.read_text("utf-8")


def violations(page: Page, axe: str) -> list[Any]:
    page.browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    page.run(axe)
    # An animation in progress would be measured with colors that are soon gone.
    page.run("for (const animation of document.getAnimations()) animation.finish()")
    found = page.browser.execute_async_script(
        "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then((found) => done("
        "found.violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 200)).slice(0, 3)])))"
    )
    return list(found)


@pytest.fixture(scope="module")
def judged(address: str) -> Desk:
    """A relation with some verdicts."""
    desk = Desk(address).completed()
    for card, verdict in zip(desk.get("/cards")["cards"], ("accept", "reject", "unsure"), strict=False):
        desk.judge(card["head"]["id"], card["tail"]["id"], verdict)
    return desk


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view or "start")
def test_axe_finds_no_violation(judged: Desk, page: Page, axe: str, view: str) -> None:
    page.browser.set_script_timeout(SECONDS)
    page.open(judged.address, view if view in ("", "teach") else f"{judged.relation}/{view}")
    page.text("#main h1, #main h2, #main table")
    if view == "":
        page.click("#try")
        page.text("#missing .reasons li")
    if view == "review":
        page.text("#card .reasons li")
        page.press("a")
        page.text("#card .reasons li")
    for width, dark in ((1280, False), (390, True)):
        page.size(width, dark=dark)
        assert violations(page, axe) == [], (view, width, dark)
    if view == "review":
        page.press("e")
        page.text("#entity h3")
        assert violations(page, axe) == []


def test_a_phone_shows_the_pair_and_the_buttons_in_reach(desk: Desk, page: Page) -> None:
    page.size(390, 844, dark=True)
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    boxes = page.run(
        "return ['#statement', '.facts-line', '#verdict-accept', '#verdict-reject', '#verdict-unsure'].map((one) => {"
        " const { top, bottom, left, right, height } = document.querySelector(one).getBoundingClientRect();"
        " return [top, bottom, left, right, height]; })"
    )
    assert all(top >= 0 and bottom <= 844 and left >= 0 and right <= 390 for top, bottom, left, right, _ in boxes)
    assert all(top > 700 and height >= 44 for top, _, _, _, height in boxes[2:])  # where a thumb is
    pair = page.pair()
    page.run("scrollTo(0, 400)")
    page.click("#verdict-accept")
    page.all_saved()
    assert page.run("return document.getElementById('statement').getBoundingClientRect().top") >= 0  # of the next card
    assert desk.verdicts() == {pair: "accept"}
    page.click("#undo")
    until(lambda: page.pair() == pair)
    page.click("#statement .entity")
    assert page.text("#entity[open] h2") == pair[0]


def test_few_tab_stops_and_short_announcements(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/review")
    page.text("#card .reasons li")
    page.text(".graph .node")
    page.run("document.getElementById('skip').focus()")
    stops = []
    for _ in range(2 * MAX_TAB_STOPS):
        page.press(TAB)
        stops.append(
            page.run(
                "return document.activeElement === document.body ? '' : document.activeElement.outerHTML.slice(0, 60)"
            )
        )
        if stops[-1] == "" or stops.count(stops[0]) > 1:
            break
    assert len(stops) <= MAX_TAB_STOPS, stops
    page.run("document.getElementById('card').focus()")
    page.press("a")
    said = page.reads("#status", "saved")
    assert len(said) < 60
    until(lambda: page.focused() == "card")  # the next pair is read out
