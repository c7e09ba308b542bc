"""A browser that uses the page as a person does: it looks, clicks and types, and waits no longer than it must."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService

from hire.service.app import create_app
from hire.service.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30.0  # at most, on a busy machine
DOWN, ENTER, ESCAPE, TAB = "\ue015", "\ue007", "\ue00c", "\ue004"
T = TypeVar("T")


def start_browser(downloads: Path) -> Chrome:
    """A headless Chromium; the test is skipped if none is installed."""
    binary = os.environ.get("CHROME") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its chromedriver is here: install them, or set CHROME to its path")
    options = ChromeOptions()
    options.binary_location = binary
    quiet = ("background-networking", "component-update", "sync", "dev-shm-usage", "gpu")  # nothing but our page
    for switch in ("--headless=new", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    return Chrome(options=options, service=ChromeService(driver))


def until(found: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """What a function finds, once it finds something."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if result := found():
                return result
        except StaleElementReferenceException:  # the page has just replaced it
            pass
        assert time.monotonic() < deadline, f"{what} did not come in time"
        time.sleep(0.02)


class Page:
    """The page in a browser."""

    def __init__(self, browser: Chrome) -> None:
        self.browser = browser
        self.address = ""

    def open(self, address: str, place: str = "") -> None:
        """Show a place of the page anew, as in a new tab."""
        self.address = address
        self.browser.get("about:blank")
        self.browser.get(f"{address}#/{place}")

    def leave(self) -> None:
        """Close what is shown, with all that it has kept."""
        if not self.browser.current_url.startswith("about:"):
            self.run("sessionStorage.clear(); localStorage.clear()")
        self.browser.get("about:blank")

    def run(self, script: str, *given: Any) -> Any:
        """What a script in the page returns."""
        return self.browser.execute_script(script, *given)

    def all(self, selector: str) -> list[str]:
        """The texts of all elements that match."""
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector))

    def text(self, selector: str) -> str:
        """The text of the first element that matches, once there is one."""
        return until(lambda: self.all(selector), selector)[0]

    def reads(self, selector: str, words: str) -> str:
        """The text of the first element that matches and has some words, once there is one."""
        return until(lambda: next((text for text in self.all(selector) if words in text), ""), f"{selector}: {words}")

    def click(self, selector: str, number: int = 0) -> None:
        """Click an element, once it is there and can be clicked."""

        def clicked() -> bool:
            found = self.browser.find_elements("css selector", selector)
            if len(found) <= number or not found[number].is_enabled():
                return False
            try:
                found[number].click()
            except StaleElementReferenceException:
                raise
            except WebDriverException:  # something moves over it at the moment
                return False
            return True

        until(clicked, selector)

    def press(self, *keys: str) -> None:
        """Type into whatever has the focus."""
        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def focused(self) -> str:
        """The id of the element that has the focus."""
        return str(self.run("return document.activeElement.id"))

    def pair(self) -> tuple[str, str]:
        """The pair that is on the card."""
        head, tail = self.run("return [...document.querySelectorAll('#statement .entity')].map((e) => e.textContent)")
        return head, tail

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window as large as a device's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all_saved(self) -> None:
        """Wait until the page says that nothing is left to save."""
        self.reads("#saving.done", "All saved")

    def complaints(self) -> list[str]:
        """What the browser complains about, since it was asked last."""
        entries = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The addresses that the browser has asked for, since it was asked last."""
        entries = self.browser.get_log("performance")  # type: ignore[no-untyped-call]
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@contextmanager
def served(service: Service, port: int = 0, **options: Any) -> Iterator[str]:
    """The service on a port of this machine, a free one if none is given, in a thread."""
    config = uvicorn.Config(
        create_app(service, **options), port=port, log_level="critical", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    service.events.stopping = lambda: server.should_exit
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the service")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:  # a failed test must not leave a server behind, which pytest would wait for
        server.should_exit = True
        thread.join(SECONDS)
