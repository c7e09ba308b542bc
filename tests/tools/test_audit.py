from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import audit

BUG = {"id": "A-1", "summary": "bad", "fixed_in": ["9.9"]}


@pytest.mark.parametrize(
    ("answer", "code", "said", "complaint"),
    [
        ([], 0, "0 known vulnerabilities", ""),
        ([BUG], 1, "A-1 bad (fixed in 9.9)", ""),
        (None, 2, "0 of ", "the Python Package Index gave no answer"),
    ],
)
def test_no_answer_is_not_a_good_answer(
    answer: list[dict[str, Any]] | None,
    code: int,
    said: str,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "asked", lambda _pin: answer)
    assert audit.main() == code
    found = capsys.readouterr()
    assert said in found.out and complaint in found.err and bool(complaint) == bool(found.err)
