"""A SQLite file that one process has open, whose damage is noticed, and which is there when a change is confirmed.

SQLite finds damage in the structure of its file, but hands out a text in which a bit has changed. So the file keeps a
digest of all rows of all tables, which triggers bring up to date within each change, and which is compared with the
rows when the file is opened.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import xxhash

from hire.errors import HireError
from hire.util.locks import locked

SECONDS_TO_WAIT = 5.0  # for a program that only looks at the file, such as a backup
DIGEST = "digest"  # the table of one number
SIGNS_OF_DAMAGE = ("malformed", "not a database", "unsupported file format", "decode to UTF-8")  # in messages of SQLite
MASK = (1 << 62) - 1  # the sum of two such digests is still an integer of SQLite


class DamagedDatabaseError(HireError):
    """The file is not what was written."""


class Database:
    """One SQLite file: `reading` and `changing` give the connection to one thread at a time.

    What `changing` has done is on disk, in the file that has the name, when its block has ended without an error.
    """

    def __init__(self, path: Path, schema: str, version: int) -> None:
        self.path = path
        self._threads = threading.Lock()
        self._resources = ExitStack()
        try:
            self._resources.enter_context(locked(path.with_name(f"{path.name}.lock"), path))
            with self._explained():
                self._connection = self._connect()
                self._resources.callback(self._connection.close)
            with self.changing() as connection:
                self._create_or_check(connection, schema, version)
            self._file = self._identity()
        except BaseException:
            self._resources.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False)
        connection.create_function("row_digest", -1, _row_digest, deterministic=True)
        # Without a write-ahead log: a damaged one would lose the latest changes without a trace, and a file that is
        # mapped, as its index is, ends the process if it is cut short.
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")  # also for rows that REPLACE deletes
        return connection

    def _create_or_check(self, connection: sqlite3.Connection, schema: str, version: int) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if found == 0 and not tables:
            for statement in (*schema.split(";\n"), *_digest_statements(schema)):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
        elif found != version:
            raise HireError(
                "is not a file of taught relations, or was written by another version",
                file=self.path,
                remedy="choose another file with --state",
            )
        else:
            self._check(connection, schema)

    def _check(self, connection: sqlite3.Connection, schema: str) -> None:
        """Raise if the file is damaged: in its structure, in its schema, or in its rows."""
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if problems != ["ok"]:
            raise self._damaged(problems[0])
        if _objects(connection) != _expected_objects(schema):
            raise self._damaged("its tables are not those that were created")
        total = sum(_row_digest(name, *row) for name in _tables(connection) for row in _rows(connection, name)) & MASK
        if [(total,)] != connection.execute(f"SELECT total FROM {DIGEST}").fetchall():  # noqa: S608  (a constant)
            raise self._damaged("its rows do not match their digest")

    def _damaged(self, what: str) -> DamagedDatabaseError:
        remedy = "restore it from a backup, or choose another file with --state"
        return DamagedDatabaseError(
            f"is damaged, or not a file of taught relations ({what})", file=self.path, remedy=remedy
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if any(sign in str(error) for sign in SIGNS_OF_DAMAGE):
                raise self._damaged(str(error)) from error
            remedy = "check that it is writable, or choose another file with --state"
            raise HireError(f"cannot be opened or written ({error})", file=self.path, remedy=remedy) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, to read from."""
        with self._threads, self._explained():
            yield self._connection

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """The connection within a transaction, which is undone if the block fails."""
        with self._threads, self._explained():
            self._check_in_place()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            self._check_in_place()

    def _check_in_place(self) -> None:
        """Raise if the file that is open is no longer the one that has the name: what is written would be lost."""
        if hasattr(self, "_file") and self._file != self._identity():
            raise HireError(
                "was removed or replaced while it was in use; nothing can be saved any more",
                file=self.path,
                remedy="put it back, and start the service again",
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116  (before and after every change)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close the file, for another process to open."""
        with self._threads:
            self._resources.close()


def _row_digest(*values: object) -> int:
    """A digest of a table's name and a row; the sum of those of all rows tells any change, whatever their order."""
    return xxhash.xxh3_64_intdigest(ascii(values).encode()) & MASK


def _digest_statements(schema: str) -> Iterator[str]:
    """What creates the digest, and the triggers that keep it up to date."""
    yield f"CREATE TABLE {DIGEST} (total INTEGER NOT NULL)"
    yield f"INSERT INTO {DIGEST} VALUES (0)"  # noqa: S608  (a constant)
    with _empty(schema) as connection:
        tables = {name: _columns(connection, name) for name in _tables(connection)}
    for name, columns in tables.items():
        new, old = (", ".join(f"{row}.{column}" for column in columns) for row in ("NEW", "OLD"))
        added, removed = f"row_digest('{name}', {new})", f"row_digest('{name}', {old})"
        for event, total in (
            ("INSERT", f"total + {added}"),
            ("DELETE", f"total - {removed}"),
            ("UPDATE", f"((total - {removed}) & {MASK}) + {added}"),
        ):
            yield (
                f"CREATE TRIGGER {DIGEST}_{event.lower()}_{name} AFTER {event} ON {name} "  # noqa: S608  (our schema)
                f"BEGIN UPDATE {DIGEST} SET total = ({total}) & {MASK}; END"
            )


@contextmanager
def _empty(schema: str) -> Iterator[sqlite3.Connection]:
    """An empty database with a schema."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.executescript(schema)
        yield connection
    finally:
        connection.close()


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in found if name != DIGEST and not name.startswith("sqlite_")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[object, ...]]:
    columns = ", ".join(_columns(connection, table))
    yield from connection.execute(f"SELECT {columns} FROM {table}")  # noqa: S608  (names of our own schema)


def _objects(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def _expected_objects(schema: str) -> list[tuple[object, ...]]:
    with _empty(schema) as connection:
        connection.create_function("row_digest", -1, _row_digest, deterministic=True)
        for statement in _digest_statements(schema):
            connection.execute(statement)
        return _objects(connection)
