"""The state of a service in one SQLite file: what was confirmed survives any crash."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hire.errors import HireError
from hire.service.database import StateFile
from hire.service.tables import SCHEMA, VERSION
from hire.util.files import behind_links

SECONDS_TO_WAIT = 5.0  # while another process is writing
KEPT_EVENTS = 20_000
KEPT_REQUESTS = 50_000
AT_ONCE = 500  # names in one query

Row = sqlite3.Row


class StorageError(HireError):
    """The state file cannot be read or written at the moment."""

    def __init__(self, error: sqlite3.Error) -> None:
        self.full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        remedy = "free some space on the server, then try again" if self.full else "try again in a moment"
        super().__init__("the disk is full" if self.full else "the state file cannot be read or written", remedy=remedy)


class InProgressError(HireError):
    """The same request is still being carried out."""


class KeyReusedError(HireError):
    """An idempotency key was used for another request."""


class Recorded(NamedTuple):
    """The response to a request, as it is recorded with its idempotency key."""

    status: int
    headers: dict[str, str]
    body: str
    replayed: bool = False


class Store:
    """One state file. Changes are on disk when they return; each thread reads by a connection of its own."""

    def __init__(self, path: Path) -> None:
        path = behind_links(path) if path.is_symlink() else path  # its lock and its log are beside the file itself
        self.path = path
        self.changed: Callable[[], None] = lambda: None  # called after each change, from any thread
        self._lock = threading.RLock()
        self._depth = 0
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._running: set[str] = set()
        self._file = StateFile(path)
        try:
            with self._file.explained():
                self._connection = self._connect()
                self._file.register(self._connection)
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._prepare()
                self._file.opened()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        there = f"{self.path.absolute().as_uri()}?mode=rw"  # a file that was removed is not made anew
        connection = sqlite3.connect(
            there, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.row_factory = sqlite3.Row
        connection.create_function("log2", 1, math.log2, deterministic=True)  # not every SQLite has it
        return connection

    def _prepare(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0 and not tables:
                for statement in _statements(SCHEMA):
                    self._connection.execute(statement)
                self._file.create(self._connection)
                self._connection.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise HireError(
                    "is not a file of taught relations, or was written by another version",
                    file=self.path,
                    remedy="choose another file with --state",
                )
            else:
                self._file.check(self._connection, SCHEMA)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Merge the write-ahead log into the file, and close it, for another process to open."""
        with self._lock:
            for reader in self._readers:
                reader.close()
            if hasattr(self, "_connection"):
                self._connection.close()
            self._file.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read by. Within a change it is the one of the change, which sees what was changed."""
        with _explained():
            if self._depth and getattr(self._local, "changing", False):
                yield self._connection
                return
            connection = getattr(self._local, "reader", None)
            if connection is None:
                connection = self._local.reader = self._connect()
                connection.execute("PRAGMA query_only = ON")
                self._readers.append(connection)  # not under the lock, which a writer may hold for long
            yield connection

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is on disk at the end, or nothing. One within another is part of it."""
        with self._lock, _explained():
            outermost = self._depth == 0
            if outermost:
                self._file.check_in_place()
                self._connection.execute("BEGIN IMMEDIATE")
                self._local.changing = True
            self._depth += 1
            try:
                yield self._connection
                if outermost:
                    self._file.announce(self._connection)
                    self._connection.execute("COMMIT")
                    self._file.settle(self._connection)
            except BaseException:
                if outermost and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1
                if outermost:
                    self._local.changing = False
        if outermost:
            self.changed()

    def emit(self, kind: str, relation: str | None, data: dict[str, Any]) -> None:
        """Tell those who listen of a change, as part of it."""
        with self.changing() as connection:
            cursor = connection.execute(
                "INSERT INTO events (relation, kind, data) VALUES (?, ?, ?)", (relation, kind, json.dumps(data))
            )
            if cursor.lastrowid is not None and cursor.lastrowid % 1_000 == 0:
                connection.execute("DELETE FROM events WHERE event <= ?", (cursor.lastrowid - KEPT_EVENTS,))

    def once(self, key: str | None, fingerprint: str, work: Callable[[], Callable[[], Recorded]]) -> Recorded:
        """Carry out a request, unless it was before with the same key: then return the recorded response.

        `work` prepares what takes long, and returns the change itself; that is recorded with the key in a single
        transaction, so that no crash can come between them.
        """
        if key is None:
            return self._carry_out(work(), None, fingerprint)
        with self._lock:
            found = self._recorded(key, fingerprint)
            if found is not None:
                return found
            if key in self._running:
                raise InProgressError("the same request is still being carried out", remedy="try again in a second")
            self._running.add(key)
        try:
            return self._carry_out(work(), key, fingerprint)
        finally:
            with self._lock:
                self._running.discard(key)

    def _carry_out(self, change: Callable[[], Recorded], key: str | None, fingerprint: str) -> Recorded:
        with self.changing() as connection:
            done = change()
            if key is not None:
                connection.execute(
                    "INSERT INTO requests (key, fingerprint, status, headers, body, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (key, fingerprint, done.status, json.dumps(done.headers), done.body, now()),
                )
        return done

    def _recorded(self, key: str, fingerprint: str) -> Recorded | None:
        with self.reading() as connection:
            row = connection.execute("SELECT * FROM requests WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row["fingerprint"] != fingerprint:
            raise KeyReusedError("the idempotency key was used for another request", remedy="use a new key")
        return Recorded(row["status"], json.loads(row["headers"]), row["body"], replayed=True)

    def forget_old_requests(self) -> None:
        """Drop the recorded responses that nobody will ask for again."""
        with self.changing() as connection:
            connection.execute(
                "DELETE FROM requests WHERE key IN (SELECT key FROM requests ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (KEPT_REQUESTS,),
            )


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(error) from error


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one; a trigger has semicolons within."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def now() -> str:
    """The time as it is recorded."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id() -> str:
    """An id that nobody guesses."""
    return secrets.token_hex(8)


def in_parts(names: Iterable[str]) -> Iterator[list[str]]:
    """Names in parts that are small enough for one query."""
    remaining = iter(names)
    while some := list(islice(remaining, AT_ONCE)):
        yield some


def marks(count: int) -> str:
    """Placeholders for so many values."""
    return ",".join("?" * count)
