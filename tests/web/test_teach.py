from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import request
from tests.web.conftest import Desk
from tests.web.page import DOWN, ENTER, TAB, Page, until

STATES = ".pair-row .field"
PASTE = (
    "const data = new DataTransfer(); data.setData('text', arguments[0]);"
    "document.querySelector('.pair-row input').dispatchEvent("
    "new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))"
)


def states(page: Page) -> list[str]:
    """Whether the cells of all pairs are known."""
    return list(page.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.dataset.state)", STATES))


def cells(page: Page) -> list[str]:
    return list(page.run("return [...document.querySelectorAll('.pair-row input')].map((e) => e.value)"))


def newest_relation(address: str) -> Any:
    return request(f"{address}v1/relations")["relations"][0]


def relation_count(address: str) -> int:
    return int(request(f"{address}v1/graph")["relations"])


def test_a_relation_is_taught_by_keyboard_alone(address: str, page: Page) -> None:
    page.open(address, "teach")
    until(lambda: page.focused() == "name")
    page.press("kind_of", TAB, "P31", TAB, "viru")
    page.text(".listbox:not([hidden]) [role=option]")
    page.press(DOWN, ENTER, "organism", ENTER)  # the focus goes on from cell to cell
    page.press("bacterium", ENTER, "organism", ENTER)
    until(lambda: states(page) == ["known"] * 4 + ["empty"] * 2)
    page.press("virsu", ENTER)
    page.reads(".suggestions", "Did you mean")  # marked, with a suggestion beside it
    page.browser.find_element("id", "teach").send_keys(ENTER)
    page.reads(".problem", "“virsu” is not an entity of this graph")
    page.click(".suggestions .chip")
    page.run("document.querySelectorAll('.pair-row input')[5].focus()")
    page.press("organism")
    until(lambda: states(page)[4:6] == ["known", "known"])
    page.click("#teach")
    page.text("#card .reasons li")
    page.reads("#relation-bar h1", "kind_of")
    relation = newest_relation(address)
    assert relation["predicate"] == "P31"
    pairs = [(pair["head"]["id"], pair["tail"]["id"]) for pair in relation["references"]]
    assert pairs == [("virus", "organism"), ("bacterium", "organism"), ("virus", "organism")][: len(pairs)]


def test_pairs_are_pasted_and_imported_as_the_command_line_reads_them(address: str, page: Page, tmp_path: Path) -> None:
    page.open(address, "teach")
    page.text(STATES)
    page.run(PASTE, "head\ttail\nvirus\torganism\nnonsense\torganism\n")
    until(lambda: states(page) == ["known", "known", "unknown", "known", "empty", "empty"])
    assert cells(page)[:4] == ["virus", "organism", "nonsense", "organism"]
    page.click(".pair-row:nth-child(2) > button")
    file = tmp_path / "pairs.csv"
    file.write_text('head,tail\n"bacterium","organism"\n')
    page.browser.find_element("id", "import").send_keys(str(file))
    until(lambda: cells(page) == ["virus", "organism", "bacterium", "organism", "", ""])
    file.write_text("virus,organism\nonly one\n")
    page.browser.find_element("id", "import").send_keys(str(file))
    page.reads(".problem", "2")  # the line
    assert len(cells(page)) == 6


def test_a_form_says_what_it_lacks_next_to_its_button(address: str, page: Page) -> None:
    before = relation_count(address)
    page.open(address, "teach")
    page.click("#teach")
    page.reads(".buttons + .problem", "needs a name")
    assert page.focused() == "name"
    page.press("x")
    page.click("#teach")
    page.reads(".buttons + .problem", "at least one reference")
    assert relation_count(address) == before


def test_heads_are_chosen_from_a_list(address: str, page: Page) -> None:
    page.open(address, "teach")
    page.run(PASTE, "virus\torganism\nbacterium\torganism\n")
    until(lambda: states(page)[:4] == ["known"] * 4)
    page.click("#name")
    page.press("kind_of")
    page.click(".choice input[value=list]")
    page.click("textarea")
    page.press("fungus", ENTER, "plant", ENTER, "bird")
    page.reads(".scope [role=status]", "3 heads")
    page.click("#teach")
    page.text("#card .reasons li")
    assert newest_relation(address)["heads"] == 3


def test_references_are_added_and_removed_later(desk: Desk, page: Page) -> None:
    page.open(desk.address, f"{desk.relation}/references")
    page.run(PASTE, "body_system\torganism\n")
    until(lambda: states(page)[:2] == ["known", "known"])
    page.click("#add-references")
    page.reads(".references", "body_system → organism")
    page.click(".references button")
    until(lambda: len(desk.get()["references"]) == 3)
    until(lambda: "cell_component" not in page.text(".references"))
    page.run("document.querySelector('#name').value = 'is_part_of'")
    page.click("#save-relation")
    page.reads("#relation-bar h1", "is_part_of")
    before = relation_count(desk.address)
    page.click("#delete")
    page.click("#delete-sure")
    page.text("#try")
    assert relation_count(desk.address) == before - 1
