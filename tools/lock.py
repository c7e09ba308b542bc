"""Write the hashes of every pin into lock files: `python tools/lock.py requirements*.lock`.

Each line NAME==VERSION of a lock file gets the SHA-256 of every file that the package indexes and folders of pip's own
configuration offer for that version and for the Pythons that HiRe supports: whichever of them a platform needs, `pip`
then accepts it and nothing else.
"""

from __future__ import annotations

import hashlib
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)")
OLD = re.compile(r"^(cp2\d*|cp3|cp3[0-9]|cp310|pp\d+|py2|graalpy\S*)$")  # interpreters below those that are supported
AT_ONCE = 16


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def indexes() -> tuple[list[str], list[Path]]:
    """The addresses of all indexes, and the folders of files, that pip is configured to use."""
    configuration = Configuration(isolated=False)
    configuration.load()
    given = {key.rpartition(".")[2]: value for key, value in configuration.items()}
    urls = [given.get("index-url", PyPI.simple_url), *given.get("extra-index-url", "").split()]
    return urls, [Path(part) for part in given.get("find-links", "").split() if Path(part).is_dir()]


def links(index: str, name: str) -> Iterator[str]:
    """The addresses of a project's files in an index."""
    page = f"{index.rstrip('/')}/{canonicalize_name(name)}/"
    local = Path(unquote(urlsplit(page).path)) / "index.html"
    try:
        if page.startswith("file:"):
            text = local.read_text("utf-8")
        else:
            with urllib.request.urlopen(page, timeout=60) as answer:  # noqa: S310 - the index that pip uses
                text = answer.read().decode()
    except (OSError, urllib.error.URLError):
        return
    parser = _Links()
    parser.feed(text)
    yield from (urljoin(page, link) for link in parser.found)


def is_of(file: str, name: str, version: str) -> bool:
    """Whether a file is of a version, and for an interpreter that is supported; a local build counts, too."""
    try:
        if file.endswith(".whl"):
            project, found, _, tags = parse_wheel_filename(file)
            if all(OLD.match(tag.interpreter) and tag.abi != "abi3" for tag in tags):
                return False
        else:
            project, found = parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False
    return project == canonicalize_name(name) and Version(found.public) == Version(version)


def hashes_of(name: str, version: str) -> list[str]:
    """The hashes of all files of a version, sorted."""
    urls, folders = indexes()
    found = set()
    for index in urls:
        for link in links(index, name):
            address, _, fragment = link.partition("#")
            if fragment.startswith("sha256=") and is_of(unquote(address.rpartition("/")[2]), name, version):
                found.add(fragment.removeprefix("sha256="))
    for folder in folders:
        for path in folder.iterdir():
            if is_of(path.name, name, version):
                found.add(hashlib.sha256(path.read_bytes()).hexdigest())
    if not found:
        sys.exit(f"no file of {name}=={version} was found")
    return sorted(found)


def lock(path: Path) -> None:
    """Write a lock file again, with hashes."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("--hash")]
    pins = [(line, PIN.match(line)) for line in lines]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        hashes = list(pool.map(lambda pin: [] if pin is None else hashes_of(pin[1], pin[2]), (pin for _, pin in pins)))
    written = []
    for (line, pin), of_pin in zip(pins, hashes, strict=True):
        parts = [line] if pin is None else [f"{pin[1]}=={pin[2]}", *(f"    --hash=sha256:{each}" for each in of_pin)]
        written.append(" \\\n".join(parts))
    partial = path.with_suffix(".partial")
    partial.write_text("\n".join(written) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        lock(Path(argument))
