from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "architecture.py"


@pytest.fixture(scope="module")
def architecture() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_picture_is_the_one_of_the_present_imports(architecture: dict[str, Any]) -> None:
    committed = architecture["PICTURE"].read_text("utf-8")
    assert committed == architecture["draw"](), "the imports have changed: run python tools/architecture.py"


def test_every_import_leads_to_a_lower_layer(architecture: dict[str, Any]) -> None:
    rows = architecture["layers"]()
    names = [layer.names for layer in rows]
    assert names[0] == ("cli",) and ("service", "web", "client") in names
    edges = architecture["imports"](rows)
    assert (names.index(("inference",)), names.index(("systems",))) in edges
    assert all(above < below for above, below in edges)
    assert all(layer.summary for layer in rows)
