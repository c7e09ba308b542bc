from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hire import progress


@pytest.fixture
def _shown() -> Iterator[None]:
    progress.show()
    yield
    progress.show(False)


def test_silent_by_default(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    with progress.track("Work", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_shown")
def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    with progress.track("Work", 10) as advance:
        advance(5)
    with progress.track("Counting") as advance:
        advance(1234)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["Work: 50%, 0 s left", "Counting: 1,234"]


@pytest.mark.usefixtures("_shown")
def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.track("Work", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_shown")
def test_the_time_left_counts_only_what_was_done_since_the_resumption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0])  # when the work is resumed, and after one more of ten steps
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.track("Work", 10, before=6) as advance:
        advance(1)
    assert capsys.readouterr().err == "Work: 70%, 30 s left\n"
