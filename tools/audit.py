"""Known vulnerabilities of every pin, as far as the package index of pip tells: `python tools/audit.py`.

The exit code is 1 if there are any, and 2 if the index cannot be asked: no answer is not a good answer.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-docs.lock", "requirements-torture.lock")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", re.MULTILINE)
AT_ONCE = 8
MAX_SHOWN = 5  # names of pins in an error


def asked(pin: tuple[str, str]) -> list[dict[str, Any]] | None:
    """The vulnerabilities that the index knows of a version; None if it does not answer."""
    try:
        with urllib.request.urlopen(f"{PyPI.pypi_url}/{pin[0]}/{pin[1]}/json", timeout=30) as answer:  # noqa: S310
            found: list[dict[str, Any]] = json.load(answer)["vulnerabilities"]
            return found
    except (OSError, urllib.error.URLError, ValueError, KeyError):
        return None


def main() -> int:
    """Ask for all pins of the lock files."""
    texts = [(ROOT / name).read_text() for name in LOCKS]
    pins = [(name, version) for text in texts for name, version in PIN.findall(text)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(asked, pins))
    unknown = [pin for pin, answer in zip(pins, answers, strict=True) if answer is None]
    for (name, version), answer in zip(pins, answers, strict=True):
        for each in answer or []:
            fixed = ", ".join(each.get("fixed_in", [])) or "no version"
            print(f"{name} {version}: {each.get('id')} {each.get('summary') or ''} (fixed in {fixed})")
    known = sum(len(answer or []) for answer in answers)
    print(f"{len(pins) - len(unknown)} of {len(pins)} pins were looked up: {known} known vulnerabilities")
    if unknown:
        names = ", ".join(name for name, _ in unknown[:MAX_SHOWN]) + (" ..." if len(unknown) > MAX_SHOWN else "")
        print(
            f"error: nothing is known of {len(unknown)} pins ({names}): the Python Package Index gave no answer\n"
            "       ask again where its JSON pages can be reached; a mirror of its files alone has no such data",
            file=sys.stderr,
        )
    return 1 if known else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
