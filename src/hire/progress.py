"""Progress of long work: a bar with time left on a terminal, plain lines elsewhere, silence by default."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS_BETWEEN_LINES = 5.0

_shown = False


def show(shown: bool = True) -> None:
    """Switch progress reports on standard error on or off; the command line switches them on."""
    global _shown
    _shown = shown


@contextmanager
def track(description: str, total: float | None = None, *, bytes_: bool = False) -> Iterator[Callable[[float], None]]:
    """Report the progress of a block of work; the block calls the yielded function with what it has done."""
    if not _shown:
        yield lambda _done: None
    elif sys.stderr.isatty():
        with _bar(description, total, bytes_) as advance:
            yield advance
    else:
        yield _lines(description, total)


@contextmanager
def _bar(description: str, total: float | None, bytes_: bool) -> Iterator[Callable[[float], None]]:
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
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.advance(task, done)


def _lines(description: str, total: float | None) -> Callable[[float], None]:
    start = last = time.monotonic()
    done_so_far = 0.0

    def advance(done: float) -> None:
        nonlocal last, done_so_far
        done_so_far += done
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        if total:
            left = (now - start) * max(0.0, total / max(done_so_far, 1e-9) - 1)
            print(f"{description}: {done_so_far / total:.0%}, {left:.0f} s left", file=sys.stderr, flush=True)
        else:
            print(f"{description}: {done_so_far:,.0f}", file=sys.stderr, flush=True)

    return advance
