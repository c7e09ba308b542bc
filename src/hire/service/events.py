"""Live updates: whoever listens is told of each change, and can resume after an interruption."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from hire.service.store import Row, Store

AT_ONCE = 500
SECONDS_BETWEEN_LOOKS = 1.0  # another process may change the state file, or the service may be stopped
SECONDS_BETWEEN_COMMENTS = 15.0  # which keep proxies from closing a quiet stream


class Events:
    """The events of a state file, as server-sent events."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stopping: Callable[[], bool] = lambda: False
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        store.changed = self._wake

    def _wake(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for loop, event in listeners:
            with suppress(RuntimeError):  # the loop has ended in the meantime
                loop.call_soon_threadsafe(event.set)

    async def stream(self, relation: str | None, last: int | None) -> AsyncIterator[str]:
        """Events after the last one that was received, as text; they never end by themselves."""
        wake = asyncio.Event()
        listener = asyncio.get_running_loop(), wake
        with self._lock:
            self._listeners.add(listener)
        try:
            first, newest = self._range()
            if last is None:
                yield _written("ready", newest, "{}")
            elif last > newest or last < first - 1:
                yield _written("reset", newest, "{}")
                last = None
            last = newest if last is None else last
            quiet = 0.0
            while not self.stopping():
                rows = self._after(last, relation)
                for row in rows:
                    yield _written(row["kind"], row["event"], row["data"])
                    last = row["event"]
                if rows:
                    quiet = 0.0
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), SECONDS_BETWEEN_LOOKS)
                wake.clear()
                quiet += SECONDS_BETWEEN_LOOKS
                if quiet >= SECONDS_BETWEEN_COMMENTS:
                    quiet = 0.0
                    yield ": still here\n\n"
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def _range(self) -> tuple[int, int]:
        with self.store.reading() as connection:
            first, last = connection.execute(
                "SELECT (SELECT coalesce(min(event), 0) FROM events), "
                "(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events')"
            ).fetchone()
        return int(first), int(last)

    def _after(self, last: int, relation: str | None) -> list[Row]:
        with self.store.reading() as connection:
            return connection.execute(
                "SELECT * FROM events WHERE event > ? AND (? IS NULL OR relation = ?) ORDER BY event LIMIT ?",
                (last, relation, relation, AT_ONCE),
            ).fetchall()


def _written(kind: str, number: int, data: str) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(json.loads(data))}\n\n"
