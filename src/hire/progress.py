"""Progress reports: a bar with the time left on a terminal, plain lines elsewhere, nothing by default."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 5.0

_shown = False


def show(shown: bool = True) -> None:
    """Turn progress reports on standard error on or off; the command line turns them on."""
    global _shown
    _shown = shown


def say(text: str) -> None:
    """Print a line where progress is reported."""
    if _shown:
        print(text, file=sys.stderr, flush=True)


class Advance(Protocol):
    """Reports the amount done since the last call, and a note to show."""

    def __call__(self, done: float, note: str = "") -> None:
        """Add to the amount done."""


@contextmanager
def track(
    description: str, total: float | None = None, *, before: float = 0.0, bytes_: bool = False
) -> Iterator[Advance]:
    """Report the progress of a block of work, which calls the yielded function with the amount done.

    What was done `before`, by a run that is resumed, says nothing about the speed of this one.
    """
    if not _shown:
        yield lambda done, note="": None
    elif sys.stderr.isatty():
        with _bar(description, total, before, bytes_) as advance:
            yield advance
    else:
        yield _lines(description, total, before)


@contextmanager
def _bar(description: str, total: float | None, before: float, bytes_: bool) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if bytes_ else MofNCompleteColumn()
    note_column = TextColumn("{task.fields[note]}")
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(), note_column)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total, completed=int(before), note="")
        yield lambda done, note="": progress.update(task, advance=done, note=note)


def _lines(description: str, total: float | None, before: float) -> Advance:
    start = last = time.monotonic()
    done_so_far = before

    def advance(done: float, note: str = "") -> None:
        nonlocal last, done_so_far
        done_so_far += done
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        note = note and f", {note}"
        if total:
            left = (now - start) * max(0.0, total - done_so_far) / max(done_so_far - before, 1e-9)
            print(f"{description}: {done_so_far / total:.0%}, {left:.0f} s left{note}", file=sys.stderr, flush=True)
        else:
            print(f"{description}: {done_so_far:,.0f}{note}", file=sys.stderr, flush=True)

    return advance
