"""The page in a real browser, from an example to a judged, explained and exported answer."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import uvicorn

from hire.inference.model import load
from hire.service.app import create_app
from hire.service.relations import RelationService

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0  # at most, on a busy machine
T = TypeVar("T")
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    webdriver = pytest.importorskip("selenium.webdriver")
    binary = os.environ.get("CHROME") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its chromedriver is here: install them, or set CHROME to its path")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    quiet = ("background-networking", "component-update", "sync", "dev-shm-usage", "gpu")  # nothing but our page
    for switch in ("--headless=new", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)):
        options.add_argument(switch)
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = {"download.default_directory": str(tmp_path_factory.mktemp("downloads"))}
    options.add_experimental_option("prefs", downloads)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.downloads = Path(downloads["download.default_directory"])
    yield found
    found.quit()


@pytest.fixture
def service(service: RelationService) -> RelationService:
    """Over a model that learned nothing, unless the README's picture is to be made anew with a run."""
    run = os.environ.get("HIRE_PICTURE_RUN")
    return RelationService(load(run), service.store) if run else service


@contextmanager
def served(service: RelationService, **options: Any) -> Iterator[str]:
    """The service on a free port of this machine, in a thread."""
    server = uvicorn.Server(uvicorn.Config(create_app(service, **options), port=0, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:  # a failed test must not leave a server behind, which pytest would wait for
        server.should_exit = True
        thread.join(SECONDS)


def wait(found: Callable[[], T]) -> T:
    """What a function finds, once it finds something."""
    deadline = time.monotonic() + SECONDS
    while not (result := found()):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.03)
    return result


def all_of(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements("css selector", selector)


def text_of(browser: Chrome, element: str) -> str:
    return str(browser.execute_script(f"return document.getElementById({element!r}).textContent"))


def type_keys(browser: Chrome, *keys: str) -> None:
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def answers(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('#answers .answer')].map(found => found.innerText)"
    return list(browser.execute_script(script))


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    return list(browser.get_log(kind))  # type: ignore[no-untyped-call]


def asked_addresses(browser: Chrome) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def test_a_visitor_gets_to_an_explained_answer_in_two_clicks_and_judges_with_keys(
    browser: Chrome, service: RelationService
) -> None:
    with served(service) as address:
        browser.get(address)
        examples = wait(lambda: all_of(browser, "#examples button"))
        next(button for button in examples if button.text.startswith("part_of")).click()
        wait(lambda: answers(browser))
        all_of(browser, "#answers .answer")[0].click()
        wait(lambda: all_of(browser, "#picture svg circle.pole"))
        assert text_of(browser, "sentence").endswith(".")
        assert "answers for" in text_of(browser, "status")
        if "HIRE_PICTURE_RUN" in os.environ:
            browser.execute_script("scrollTo(0, 0)")
            browser.save_screenshot(str(PICTURE))

        first, second = answers(browser)[:2]
        type_keys(browser, "r")
        wait(lambda: "rejected" in text_of(browser, "status"))
        assert first.split(". ")[1].split("\n")[0] in text_of(browser, "rejected")
        assert first.split("\n")[0] not in answers(browser)
        type_keys(browser, "u")
        wait(lambda: text_of(browser, "rejected") == "none")
        wait(lambda: answers(browser)[:2] == [first, second])
        browser.execute_script("document.querySelector('#answers .answer').focus()")
        type_keys(browser, "\ue015")  # down
        wait(lambda: "Why " + second.split(". ")[1].split("\n")[0] in text_of(browser, "why-title"))
        type_keys(browser, "a")
        wait(lambda: "accepted" in text_of(browser, "status"))
        (relation,) = service.relations()
        assert len(relation.of_kind("accepted")) == 1

        all_of(browser, "#export-tsv")[0].click()
        file = wait(lambda: list(browser.downloads.glob("*.tsv")))[0]  # type: ignore[attr-defined]
        head, tail = relation.of_kind("accepted")[0]
        assert file.read_text() == f"{head}\tpart_of\t{tail}\n"

        browser.refresh()
        wait(lambda: "part_of" in text_of(browser, "answers-title"))  # what was open is open again
        wait(lambda: answers(browser))
        severe = [entry for entry in log(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")]
        assert not severe
        asked = asked_addresses(browser)
        assert f"{address}page.js" in asked and all(url.startswith((address, "blob:")) for url in asked)


def test_a_verdict_on_an_example_can_be_taken_back(browser: Chrome, service: RelationService) -> None:
    others = [("cell_component", "cell"), ("gene_or_genome", "cell")]
    best = service.answers(service.teach("draft", others).id, "tissue", 1, True, None)[0]["tail"]
    relation = service.teach("part_of", [*others, ("tissue", best)])
    with served(service) as address:
        browser.get(f"{address}#{relation.id}")
        wait(lambda: answers(browser))
        browser.execute_script("document.getElementById('known').click()")
        type_keys(browser, "u")  # nothing was said yet
        ask(browser, "tissue")
        place = wait(lambda: [i for i, answer in enumerate(answers(browser)) if "✓ reference" in answer])[0]
        browser.execute_script(f"document.querySelectorAll('#answers .answer')[{place}].focus()")
        type_keys(browser, "a")
        wait(lambda: "is already a reference" in text_of(browser, "status"))
        type_keys(browser, "r")
        wait(lambda: f"tissue → {best}" in text_of(browser, "rejected"))
        type_keys(browser, "u")
        wait(lambda: text_of(browser, "rejected") == "none")
        assert f"tissue → {best}" in text_of(browser, "accepted")
        assert all_of(browser, "#problem")[0].get_attribute("hidden")
    assert ("tissue", best) in service.relation(relation.id).of_kind("accepted")


def test_an_answer_that_comes_late_is_not_shown(browser: Chrome, service: RelationService) -> None:
    relation = service.teach("part_of", [("cell_component", "cell"), ("tissue", "animal")])
    with served(service) as address:
        browser.get(f"{address}#{relation.id}")
        wait(lambda: answers(browser))
        browser.execute_script(
            "const plain = fetch; window.fetch = (path, ...rest) => plain(path, ...rest).then(found => path.includes("
            "'head=tissue') ? new Promise(late => setTimeout(() => { window.came = true; late(found); }, 800)) : found)"
        )
        ask(browser, "tissue")
        ask(browser, "embryonic_structure")
        wait(lambda: "embryonic_structure" in text_of(browser, "status"))
        wait(lambda: browser.execute_script("return window.came"))
        assert "embryonic_structure" in text_of(browser, "status")
        assert browser.execute_script("return document.getElementById('head').value") == "embryonic_structure"


def ask(browser: Chrome, head: str) -> None:
    script = "document.getElementById('head').value = arguments[0]; document.getElementById('ask').requestSubmit()"
    browser.execute_script(script, head)


def test_a_relation_is_taught_with_the_keyboard_and_from_a_file(
    browser: Chrome, service: RelationService, tmp_path: Path
) -> None:
    with served(service) as address:
        browser.get(address)
        wait(lambda: all_of(browser, "#examples button"))
        browser.execute_script("document.getElementById('name').focus()")
        type_keys(browser, "kind_of", "\ue004", "virus")
        wait(lambda: all_of(browser, "#new-head-matches [role=option]"))
        type_keys(browser, "\ue015", "\ue007")  # down, enter: the focus goes on to the tail
        type_keys(browser, "organis")
        wait(lambda: all_of(browser, "#new-tail-matches [role=option]"))
        type_keys(browser, "\ue015", "\ue007", "\ue007")  # down, enter, and enter on the button that adds the pair
        wait(lambda: all_of(browser, "#new-pairs li"))
        file = tmp_path / "pairs.tsv"
        file.write_text("bacterium\torganism\nfungus\torganism\n")
        all_of(browser, "#import")[0].send_keys(str(file))
        wait(lambda: len(all_of(browser, "#new-pairs li")) == 3)
        all_of(browser, "#teach button[type=submit]")[0].send_keys("\ue007")
        wait(lambda: browser.switch_to.active_element.get_attribute("id") == "head")
        type_keys(browser, "plant", "\ue007")
        assert len(wait(lambda: answers(browser))) == 10
        assert len(service.relations()[0].of_kind("reference")) == 3


def test_what_goes_wrong_is_shown(browser: Chrome, service: RelationService, tmp_path: Path) -> None:
    with served(service) as address:
        browser.get(address)
        wait(lambda: all_of(browser, "#examples button"))
        all_of(browser, "#teach button[type=submit]")[0].click()
        wait(lambda: "at least one reference" in text_of(browser, "problem-error"))
        file = tmp_path / "bad.tsv"
        file.write_text("a\tb\nonly one\n")
        all_of(browser, "#import")[0].send_keys(str(file))
        wait(lambda: "bad.tsv, line 2" in text_of(browser, "problem-error"))
        file.write_text("virsu\torganism\n")
        all_of(browser, "#import")[0].send_keys(str(file))
        wait(lambda: all_of(browser, "#new-pairs li"))
        all_of(browser, "#teach button[type=submit]")[0].click()
        wait(lambda: "virsu" in text_of(browser, "problem-error"))
        assert "virus" in text_of(browser, "problem-remedy")
        assert all_of(browser, "#problem")[0].is_displayed()
    all_of(browser, "#examples button")[0].click()
    wait(lambda: "does not respond" in text_of(browser, "problem-error"))
    log(browser, "browser")  # the browser notes the failed request: it is no other test's


def test_the_page_asks_for_the_token(browser: Chrome, service: RelationService) -> None:
    with served(service, token="secret") as address:
        browser.get(address)
        wait(lambda: all_of(browser, "dialog[open]"))
        type_keys(browser, "wrong", "\ue007")
        wait(lambda: "Wrong token" in text_of(browser, "token-wrong"))
        wait(lambda: all_of(browser, "dialog[open]"))
        type_keys(browser, "secret", "\ue007")
        assert wait(lambda: all_of(browser, "#examples button"))


def test_it_fits_a_phone_and_is_labelled(browser: Chrome, service: RelationService) -> None:
    with served(service) as address:
        metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        browser.get(address)
        wait(lambda: all_of(browser, "#examples button"))[0].click()
        wait(lambda: answers(browser))
        all_of(browser, "#answers .answer")[0].click()
        wait(lambda: all_of(browser, "#picture svg"))
        widths, unnamed, paper = browser.execute_script(
            "const named = (e) => e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length;"
            "return [document.documentElement.scrollWidth,"
            " [...document.querySelectorAll('button, input')].filter(e => !named(e)).map(e => e.id),"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert widths <= 360 and unnamed == [] and paper == "rgb(13, 17, 23)"
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def explain_with(browser: Chrome, changes: str) -> None:
    """Have all explanations changed, by JavaScript that is given one as `found`, before the page sees them."""
    browser.execute_script(
        "const plain = fetch; window.fetch = async (path, ...rest) => {"
        " const answer = await plain(path, ...rest);"
        " if (!path.includes('/explanation')) return answer;"
        " const found = await answer.json();"
        f" {changes};"
        " return new Response(JSON.stringify(found), { status: 200 }); }"
    )


def explained(browser: Chrome, service: RelationService, changes: str) -> None:
    """Show the evidence for an answer, changed."""
    relation = service.teach("part_of", [("cell_component", "cell"), ("tissue", "animal")])
    with served(service) as address:
        browser.get(f"{address}#{relation.id}")
        wait(lambda: all_of(browser, "#heads button"))
        explain_with(browser, changes)
        ask(browser, "embryonic_structure")
        wait(lambda: "embryonic_structure" in text_of(browser, "status"))
        all_of(browser, "#answers .answer")[0].click()
        wait(lambda: all_of(browser, "#picture svg circle.pole"))


FIGURES = "{ for: weight > 0, weight, support, references: 3, words: words(weight, support) }"
EVIDENCE = (
    "const words = (weight, support) => (weight > 0 ? '' : 'speaks against: ')"
    " + (support ? 'linked as 2 of 3 references are' : 'linked as no reference is');"
    "const rule = (kinds, path, weight, support) =>"
    f" ({{ kinds, paths: [path, path], text: `r(h, t) <- ${{kinds}}`, ...{FIGURES} }});"
    f"const fact = (relation, entity, weight, support) => ({{ relation, entity, ...{FIGURES} }});"
)


def test_evidence_for_and_against_is_told_apart(browser: Chrome, service: RelationService) -> None:
    rules = "[rule(['p', 'q'], ['h', 'x', 't'], 1, 2), rule(['s'], ['h', 't'], 0.5, 0)"
    rules += ", ...[1, 2, 3, 4].map((i) => rule([`r${i}`], ['h', 't'], 0.4, 1)), rule(['n'], ['h', 't'], -0.25, 0)]"
    shared = "[fact('at', 'gym', 0.5, 1), fact('in', 'town', -0.75, 1)]"
    explained(browser, service, f"{EVIDENCE} found.rules = {rules}; found.shared = {shared}")
    lines = browser.execute_script(
        "return [...document.querySelectorAll('#picture polyline')].map((line) => [line.getAttribute('class'),"
        " getComputedStyle(line).strokeDasharray, getComputedStyle(line).stroke])"
    )
    assert [kind for kind, *_ in lines] == ["asked", "for", "unsupported", "for", "for", "against", "for", "against"]
    looks = {kind: (dashes, color) for kind, dashes, color in lines}
    assert looks["for"][0] == "none" and len(set(looks.values())) == len(looks)
    told = [text.text for text in all_of(browser, "#picture text")]
    assert "+0.50: linked as no reference is; 2 such paths" in told
    assert "−0.25: speaks against: linked as no reference is; 2 such paths" in told
    listed = text_of(browser, "rules")
    assert "−0.25 speaks against: r(h, t) <- n" in listed
    assert "like those" not in " ".join(told) + listed


@pytest.mark.parametrize(
    "name", ["x" * 300, "MAXIMUM_WEIGHT " * 20, "a_rather_long_name:of/something-" * 9, "北京大学" * 40]
)
def test_no_label_covers_another_or_leaves_the_picture(browser: Chrome, service: RelationService, name: str) -> None:
    hops = "[...[1, 2, 3].map((n) => rule(Array(n).fill(name), [name, ...Array(n - 1).fill(name), name], 1 / n, n % 2))"
    explained(
        browser,
        service,
        f"const name = {json.dumps(name)}; {EVIDENCE}"
        f" found.rules = {hops}, rule([name, name], [name, name, name], -1, 0)];"
        " found.shared = [1, 2, 3].map((n) => fact(name, name, 1 / n, n)).concat(fact(name, name, -1, 1));"
        " Object.assign(found, { head: name, tail: name, relation: name, similar: { head: name, tail: name } })",
    )
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('#picture text')].map((text) => {"
        " const { x, y, width, height } = text.getBBox();"
        " return [x, y, x + width, y + height, text.firstChild.textContent]; })"
    )
    view = browser.execute_script("return document.querySelector('#picture svg').getAttribute('viewBox')")
    _, _, width, height = map(float, view.split())
    assert len(boxes) > 40
    for left, top, right, bottom, words in boxes:
        assert left >= 0 and top >= 0 and right <= width and bottom <= height, words
    for one, other in combinations(boxes, 2):
        # Lines of a label may touch, as letters do not fill the boxes of a font.
        across = min(one[2], other[2]) - max(one[0], other[0])
        down = min(one[3], other[3]) - max(one[1], other[1])
        assert across <= 0 or down <= 2, (one, other)
