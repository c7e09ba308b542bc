from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from licences import ALLOWED, refused

LOCKS = [ROOT / name for name in ("requirements.lock", "requirements-docs.lock", "requirements-torture.lock")]


def test_licences_and_the_sbom_are_up_to_date_and_allowed() -> None:
    command = [sys.executable, "tools/licences.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().replace(" \\\n", " ").strip())
    pins = [entry for entry in entries if not entry.startswith("#")]
    assert len(pins) > (0 if "torture" in lock.name else 10)
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", pin), pin[:80]


def test_the_sbom_lists_every_pin_and_the_bundled_data() -> None:
    content = json.loads((ROOT / "sbom.cdx.json").read_text())
    assert content["bomFormat"] == "CycloneDX"
    names = {(part["name"], part.get("version")) for part in content["components"] if part["type"] == "library"}
    pinned = set(re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", LOCKS[0].read_text(), re.MULTILINE))
    assert names == pinned
    assert {part["name"] for part in content["components"] if part["type"] == "data"} == {
        "src/hire/data/bundled/umls.tsv.gz",
        "src/hire/systems/path/pretrained/path.safetensors",
    }


def test_a_licence_needs_one_allowed_alternative() -> None:
    assert not refused("MIT") and not refused("GPL-3.0-only OR MIT") and not refused("MIT AND (BSD-3-Clause)")
    assert refused("GPL-3.0-only") and refused("MIT AND GPL-3.0-only") and refused("")
    assert "GPL-3.0-only" not in ALLOWED
