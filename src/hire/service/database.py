"""What makes a SQLite file trustworthy: one process at a time, damage is noticed, nothing is confirmed that is lost.

SQLite finds damage in the structure of its file, but hands out a text in which a bit has changed. So the file keeps a
digest of all rows of all tables, which triggers bring up to date within each change, and which is compared with the
rows when the file is opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import xxhash

from hire.errors import HireError
from hire.util.files import atomic_file
from hire.util.locks import locked

MILLISECONDS_TO_WAIT = 5_000  # while another connection has the file locked
APPLICATION = 0x48695265  # in the header of the file, for `file` and the like
DIGEST = "digest"  # the table of one number
SIGNS_OF_DAMAGE = ("malformed", "not a database", "unsupported file format", "decode to UTF-8")  # in messages of SQLite
MASK = (1 << 62) - 1  # the sum of two such digests is still an integer of SQLite


class DamagedFileError(HireError):
    """The file is not what was written."""


class StateGoneError(HireError):
    """The file is no longer where it was: what is written to it is lost."""


class StateFile:
    """The guard of one SQLite file; whoever opens the file does so as it says.

    The lock is held until `close`. Each connection that writes is given to `register`; a new file gets `create`, an
    old one `check`, then `opened` is called; `check_in_place` comes before each change, and `settle` after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()
        self._held.enter_context(locked(path.with_name(f"{path.name}.lock"), path))
        self._identity: tuple[tuple[int, int] | None, ...] = ()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Make a new file whole at once, a database without tables: so one that is empty has lost its content."""
        if self.path.exists():
            if not self.path.stat().st_size:
                raise self.damaged("it is empty")
            return
        with self.explained(), atomic_file(self.path) as partial:
            connection = sqlite3.connect(partial)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.close()

    def close(self) -> None:
        """Let another process have the file."""
        self._held.close()

    def register(self, connection: sqlite3.Connection) -> None:
        """Give a connection what it needs to write."""
        connection.create_function("row_digest", -1, row_digest, deterministic=True)
        connection.execute("PRAGMA recursive_triggers = ON")  # also for rows that REPLACE deletes

    def create(self, connection: sqlite3.Connection) -> None:
        """Add the digest to the tables that were just made."""
        for statement in _digest_statements(connection):
            connection.execute(statement)

    def check(self, connection: sqlite3.Connection, schema: str) -> None:
        """Raise if the file is damaged: in its structure, in its schema, or in its rows."""
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if problems != ["ok"]:
            raise self.damaged(problems[0])
        if _objects(connection) != self._expected_objects(schema):
            raise self.damaged("its tables are not those that were created")
        total = sum(row_digest(name, *row) for name in _tables(connection) for row in _rows(connection, name)) & MASK
        kept = connection.execute(f"SELECT total FROM {DIGEST}").fetchall()
        if [tuple(row) for row in kept] != [(total,)]:
            raise self.damaged("its rows do not match their digest")

    def _expected_objects(self, schema: str) -> list[tuple[object, ...]]:
        memory = sqlite3.connect(":memory:", isolation_level=None)
        try:
            self.register(memory)
            memory.executescript(schema)
            self.create(memory)
            return _objects(memory)
        finally:
            memory.close()

    def damaged(self, what: str) -> DamagedFileError:
        """The error of a damaged file."""
        return DamagedFileError(
            f"is damaged, or not a file of taught relations ({what})",
            file=self.path,
            remedy="restore it from a backup, or choose another file with --state",
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Tell the errors of SQLite in words: damage, or a file that cannot be opened or written."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a message that quotes damaged text
            if isinstance(error, UnicodeDecodeError) or any(sign in str(error) for sign in SIGNS_OF_DAMAGE):
                raise self.damaged(str(error)) from error
            remedy = "check that it is writable, or choose another file with --state"
            raise HireError(f"cannot be opened or written ({error})", file=self.path, remedy=remedy) from error

    def opened(self) -> None:
        """Remember which files are open: the database, and its write-ahead log if it has one."""
        self._identity = self._identities()

    def check_in_place(self) -> None:
        """Raise if a file that is open is no longer the one that has the name: what is written would be lost."""
        if self._identity and self._identity != self._identities():
            raise StateGoneError(
                "the state file was removed or replaced while it was in use; nothing can be saved any more",
                file=self.path,
                remedy="put it back, and start the service again",
            )

    def settle(self, connection: sqlite3.Connection) -> None:
        """After a change is committed: empty the write-ahead log, and see that the change is where it will be found.

        Damage to a log that is left behind by a crash would lose its changes without a trace. While others read, the
        log stays until the next change.
        """
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute(f"PRAGMA busy_timeout = {MILLISECONDS_TO_WAIT}")
        self.check_in_place()

    def _identities(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_identity(f"{self.path}{suffix}") for suffix in ("", "-wal"))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (before and after every change)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def row_digest(*values: object) -> int:
    """A digest of a table's name and a row; the sum of those of all rows tells any change, whatever their order."""
    return xxhash.xxh3_64_intdigest(ascii(values).encode()) & MASK


def _digest_statements(connection: sqlite3.Connection) -> Iterator[str]:
    """What creates the digest, and the triggers that keep it up to date."""
    tables = {name: _columns(connection, name) for name in _tables(connection)}
    yield f"CREATE TABLE {DIGEST} (total INTEGER NOT NULL)"
    yield f"INSERT INTO {DIGEST} VALUES (0)"
    for name, columns in tables.items():
        new, old = (", ".join(f"{row}.{column}" for column in columns) for row in ("NEW", "OLD"))
        added, removed = f"row_digest('{name}', {new})", f"row_digest('{name}', {old})"
        for event, total in (
            ("INSERT", f"total + {added}"),
            ("DELETE", f"total - {removed}"),
            ("UPDATE", f"((total - {removed}) & {MASK}) + {added}"),
        ):
            yield (
                f"CREATE TRIGGER {DIGEST}_{event.lower()}_{name} AFTER {event} ON {name} "
                f"BEGIN UPDATE {DIGEST} SET total = ({total}) & {MASK}; END"
            )


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in found if name != DIGEST and not name.startswith("sqlite_")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info({table})")]


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[object, ...]]:
    columns = ", ".join(_columns(connection, table))
    yield from connection.execute(f"SELECT {columns} FROM {table}")


def _objects(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
    return [tuple(row) for row in found]
