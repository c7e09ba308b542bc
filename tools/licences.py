"""Write docs/licences.md and sbom.cdx.json: every package of requirements.lock with its licence, and the bundled data.

The licences are those that the installed packages state themselves. `python tools/licences.py --check` writes nothing,
and fails if a file is out of date; a licence that is not in ALLOWED is an error in any case.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK, PAGE, SBOM = ROOT / "requirements.lock", ROOT / "docs" / "licences.md", ROOT / "sbom.cdx.json"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)|--hash=sha256:([0-9a-f]{64})", re.MULTILINE)
ALLOWED = {
    *("MIT", "MIT-CMU", "BSD-2-Clause", "BSD-3-Clause", "BSD", "0BSD", "ISC", "Apache-2.0", "MPL-2.0", "PSF-2.0"),
    *("Zlib", "CC0-1.0", "BSL-1.0", "Apache-2.0 WITH LLVM-exception"),
}
WORDS = {  # what packages call a licence, by its identifier
    "MIT License": "MIT",
    "BSD License": "BSD",
    "BSD 3-Clause License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC license": "ISC",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
DATA = (
    (
        "src/hire/data/bundled/umls.tsv.gz",
        "the semantic network of the Unified Medical Language System, by the U.S. National Library of Medicine, "
        "as relational facts that PyKEEN distributes",
        "public benchmark; the terms of the National Library of Medicine apply to the network itself",
    ),
    (
        "src/hire/systems/path/pretrained/path.safetensors",
        "the weights of the pre-trained path network; no fact of a graph is part of them",
        "MIT, as HiRe",
    ),
)


class Package(NamedTuple):
    """A pinned package."""

    name: str
    version: str
    licence: str
    hashes: list[str]
    runtime: bool  # whether `hire` and `hire serve` need it; the others are for tests and checks


def packages() -> list[Package]:
    """All pins of the lock file, as they are installed."""
    pins: dict[str, tuple[str, list[str]]] = {}
    name = ""
    for match in PIN.finditer(LOCK.read_text()):
        if match[1]:
            name = match[1]
            pins[name] = match[2], []
        else:
            pins[name][1].append(match[3])
    needed = needed_at_runtime()
    return [
        Package(name, version, licence_of(name), hashes, canonicalize_name(name) in needed)
        for name, (version, hashes) in pins.items()
    ]


def needed_at_runtime() -> set[str]:
    """The packages that the project needs itself, directly or not, the service included."""
    found: set[str] = set()
    waiting = [("hire", "serve")]
    while waiting:
        name, extra = waiting.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # for another platform
            continue
        for each in map(Requirement, requirements):
            wanted = each.marker is None or each.marker.evaluate({"extra": extra})
            if wanted and canonicalize_name(each.name) not in found:
                found.add(canonicalize_name(each.name))
                waiting.append((each.name, ""))
    return found


def licence_of(name: str) -> str:
    """The licence that a package states: its expression, its first line, or its classifier."""
    about: Any = distribution(name).metadata
    stated = about.get("License-Expression") or (about.get("License") or "").split("\n")[0].strip()
    kinds = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    if stated in ("", "UNKNOWN") or len(stated) > 120:
        stated = " OR ".join(WORDS.get(kind, kind) for kind in kinds)
    return WORDS.get(stated, stated)


def refused(licence: str) -> list[str]:
    """The parts of a licence that are not allowed; of alternatives, one that is allowed is enough."""
    alternatives = [
        [part.strip(" ()") for part in option.split(" AND ") if part.strip(" ()") not in ALLOWED]
        for option in licence.split(" OR ")
    ]
    return min(alternatives, key=len)


def page(found: list[Package]) -> str:
    """The page of all licences."""
    lines = [
        "# Licences",
        "",
        "HiRe is under the MIT licence. This page is written by `python tools/licences.py` from what the packages of",
        "`requirements.lock` state themselves; a test fails if it is out of date, or if a licence is not among",
        f"{', '.join(sorted(ALLOWED))}. `sbom.cdx.json` is the same as a CycloneDX document, with all hashes.",
        "",
        "## What `hire` and `hire serve` need",
        "",
        *_table([package for package in found if package.runtime]),
        "",
        "## For tests and checks",
        "",
        *_table([package for package in found if not package.runtime]),
        "",
        "## Bundled data",
        "",
        "| file | what it is | terms |",
        "|---|---|---|",
        *(f"| `{path}` | {what} | {terms} |" for path, what, terms in DATA),
        "",
        "Graphs that `hire data get` downloads are not part of HiRe; each has its own terms.",
    ]
    return "\n".join(lines) + "\n"


def _table(found: list[Package]) -> list[str]:
    rows = [f"| {package.name} | {package.version} | {package.licence} |" for package in found]
    return ["| package | version | licence |", "|---|---|---|", *rows]


def sbom(found: list[Package]) -> dict[str, Any]:
    """The same as CycloneDX; without a time or a serial number, so that it changes with its content alone."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{canonicalize_name(package.name)}@{package.version}",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:pypi/{canonicalize_name(package.name)}@{package.version}",
            "scope": "required" if package.runtime else "excluded",
            "licenses": [{"expression": package.licence}],
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"pkg:pypi/{canonicalize_name(package.name)}@{package.version}",
                    "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
                }
            ],
        }
        for package in found
    ]
    data = [
        {
            "type": "data",
            "bom-ref": path,
            "name": path,
            "description": what,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}],
            "licenses": [{"license": {"name": terms}}],
        }
        for path, what, terms in DATA
    ]
    about = {
        "component": {"type": "application", "bom-ref": "hire", "name": "hire", "licenses": [{"expression": "MIT"}]}
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": about,
        "components": components + data,
    }


def main(arguments: list[str]) -> int:
    """Write or check both files."""
    found = packages()
    wrong = [f"{package.name}: {package.licence or 'no licence'}" for package in found if refused(package.licence)]
    if wrong:
        print("licences that are not allowed:", *wrong, sep="\n  ")
        return 1
    status = 0
    for path, text in ((PAGE, page(found)), (SBOM, json.dumps(sbom(found), indent=1) + "\n")):
        if "--check" not in arguments:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            print(f"{path.relative_to(ROOT)} is out of date: run python tools/licences.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
