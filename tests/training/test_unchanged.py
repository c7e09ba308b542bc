"""Training is as it was: the first losses of every preset on umls-one, up to what another processor may round.

benchmarks/unchanged.py demands the same bits, on the machine that recorded them.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from hire.data.dataset import FewShotDataset

STEPS = 3
MEASURE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "unchanged.py"))["measure"]


def test_the_losses_of_every_preset_are_those_that_were_recorded(umls: FewShotDataset) -> None:
    found = MEASURE(umls, STEPS)
    recorded = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
    assert {name.split("/")[0] for name in recorded} == {"levels", "fast", "paper"}
    for name, losses in recorded.items():
        now = [float.fromhex(value) for value in found[name][:STEPS]]
        assert now == pytest.approx(losses[:STEPS], rel=1e-3), name
