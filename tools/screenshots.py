"""Takes the pictures of the review desk that README.md and docs/ show, with a headless Chromium.

Run it from the root of the project: `.venv/bin/python tools/screenshots.py`
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the browser of the tests is the one that takes the pictures

from tests.support import request  # noqa: E402
from tests.web.page import ENTER, Page, served, start_browser, until  # noqa: E402

from hire.inference.open import open_model  # noqa: E402
from hire.service.service import Service  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PAIRS = (("cell_component", "cell"), ("tissue", "animal"), ("gene_or_genome", "cell"))
MAX_CHECKED = 100
THRESHOLD = 0.55
SCREEN = (1440, 900)
PHONE = (390, 844)


class Photographer:
    """Uses the page as the walkthrough says, and takes a picture at each step."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address

    def take(self, name: str) -> None:
        """Save what is shown, without what moves."""
        away = {"type": "mouseMoved", "x": 1, "y": 1}
        self.page.browser.execute_cdp_cmd("Input.dispatchMouseEvent", away)
        self.page.run("scrollTo(0, 0); for (const animation of document.getAnimations()) animation.finish()")
        self.page.browser.save_screenshot(str(IMAGES / f"{name}.png"))
        print(f"docs/images/{name}.png")

    def start(self) -> None:
        """A missing fact with its reasons."""
        self.page.open(self.address)
        self.page.click("#try")
        self.page.text("#missing .reasons li")
        self.take("review-start")

    def teach(self) -> str:
        """The form with three references; returns the id of the relation that it teaches."""
        self.page.click("#offer-teach")
        until(lambda: self.page.focused() == "name")
        self.page.press("part_of")
        self.page.click(".pair-row input")
        for head, tail in PAIRS:
            self.page.press(head, ENTER, tail, ENTER)
        self.page.reads(".scope [role=status]", "heads")
        until(lambda: len(self.page.all("[data-state=known]")) == 2 * len(PAIRS))
        self.take("review-teach")
        self.page.click("#teach")
        self.page.text("#card .reasons li")
        until(lambda: not self.page.all(".job"))
        return str(request(f"{self.address}v1/relations")["relations"][0]["id"])

    def review(self) -> None:
        """A card, with some verdicts before it, on a screen and on a phone."""
        for key in "aaxa a":
            self.page.press(key)
        self.page.all_saved()
        self.page.press("/")
        until(lambda: self.page.focused() == "search")
        self.page.press("embryonic")
        self.page.reads("[role=option]", "embryonic_structure")
        self.page.press("\ue015", ENTER)
        self.page.reads("#statement", "embryonic_structure")
        self.page.text("#card .reasons li")
        self.page.text(".graph .node")
        self.take("page")
        self.page.size(*SCREEN, dark=True)
        self.take("review-dark")
        self.page.size(*PHONE)
        self.take("review-phone")
        self.page.size(*SCREEN)

    def table(self, relation: str) -> None:
        """The table, after so many pairs were checked at random that the estimate has a basis."""
        path = f"{self.address}v1/relations/{relation}"
        for card in request(f"{path}/cards?order=audit&min_confidence={THRESHOLD}&limit={MAX_CHECKED}")["cards"]:
            verdict = "accept" if card["confidence"] > 1.1 * THRESHOLD else "reject"
            pair = {"head": card["head"]["id"], "tail": card["tail"]["id"]}
            request(f"{path}/verdicts", {**pair, "verdict": verdict, "by": "ana", "client": "ana"})
            if request(f"{path}/estimate?threshold={THRESHOLD}")["enough"]:
                break
        self.page.click("#tab-table")
        self.page.text("tbody tr")
        self.page.run(
            "const slider = document.getElementById('threshold'); slider.value = arguments[0];"
            "slider.dispatchEvent(new Event('input'))",
            THRESHOLD,
        )
        self.page.reads("#estimate", f"{THRESHOLD} or higher")
        self.take("review-table")

    def history(self) -> None:
        """The log, and what an export looks like."""
        self.page.click("#tab-history")
        self.page.text(".log tbody tr")
        self.page.run(
            "const format = document.getElementById('format'); format.value = 'turtle';"
            "format.dispatchEvent(new Event('change'))"
        )
        self.page.reads("#preview", "prov:")
        self.take("review-history")


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service.over(open_model("umls-one"), Path(folder) / "relations.sqlite")
        browser = start_browser(Path(folder))
        try:
            with served(service) as address:
                page = Page(browser)
                page.size(*SCREEN)
                page.browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                photographer = Photographer(page, address)
                photographer.start()
                relation = photographer.teach()
                photographer.review()
                photographer.table(relation)
                photographer.history()
                page.leave()
        finally:
            browser.quit()
            service.store.close()


if __name__ == "__main__":
    main()
