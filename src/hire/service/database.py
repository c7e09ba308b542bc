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
from hire.util.checksums import read_record, write_record
from hire.util.files import atomic_file, explain_os_errors
from hire.util.locks import locked

MILLISECONDS_TO_WAIT = 5_000  # while another connection has the file locked
APPLICATION = 0x48695265  # in the header of the file, for `file` and the like
MAGIC, HEADER_BYTES = b"SQLite format 3\0", 100  # how every file of SQLite begins
DIGEST = "digest"  # the table of one number
SIGNS_OF_DAMAGE = ("malformed", "not a database", "unsupported file format", "decode to UTF-8")  # in messages of SQLite
MASK = (1 << 62) - 1  # the sum of two such digests is still an integer of SQLite


class DamagedFileError(HireError):
    """The file is not what was written."""


class StateGoneError(HireError):
    """The file is no longer where it was: what is written to it is lost."""


class UnsettledError(HireError):
    """A change is in the write-ahead log, and cannot be made safe from damage to it."""


class StateFile:
    """The guard of one SQLite file; whoever opens the file does so as it says.

    The lock is held until `close`. Each connection that writes is given to `register`; a new file gets `create`, an
    old one `check`, then `opened` is called; `check_in_place` comes before each change, `announce` before its commit,
    and `settle` after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()
        self._held.enter_context(locked(path.with_name(f"{path.name}.lock"), path))
        self._identity: tuple[tuple[int, int] | None, ...] = ()
        self._note = path.with_name(f"{path.name}-confirmed")
        self._noted: list[int] = []  # the digests that the file may have after a crash, while its log is in use
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Make a new file whole at once, a database without tables: so one that is empty has lost its content."""
        if self.path.exists():
            self._check_header()
            return
        self._note.unlink(missing_ok=True)  # of a file that was removed
        with self.explained(), atomic_file(self.path) as partial:
            connection = sqlite3.connect(partial)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.close()

    def _check_header(self) -> None:
        """Raise if the file has no first page: for SQLite it would be an empty database, whatever it once held."""
        with explain_os_errors(self.path), self.path.open("rb") as stream:
            header, size = stream.read(HEADER_BYTES), os.fstat(stream.fileno()).st_size
        page = int.from_bytes(header[16:18], "big")  # 1 stands for 65,536
        if not size:
            raise self.damaged("it is empty")
        if not header.startswith(MAGIC) or size < max(HEADER_BYTES, 65_536 if page == 1 else page):
            raise self.damaged("it does not begin as one")

    def close(self) -> None:
        """Let another process have the file; all connections are closed by now, and so the log is merged."""
        if self._noted and not Path(f"{self.path}-wal").exists():
            self._note.unlink(missing_ok=True)
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
        self._check_note(total)

    def _check_note(self, total: int) -> None:
        """Raise if changes are missing that were confirmed while the write-ahead log had to stay."""
        if not self._note.exists():
            return
        remedy = f"restore a backup, or do without the last changes: in both cases, remove {self._note}"
        noted = list(read_record(self._note, remedy).get("digests", []))
        if total not in noted:
            what = "changes that were confirmed are missing: its write-ahead log was damaged or removed"
            raise DamagedFileError(what, file=self.path, remedy=remedy)
        self._noted = noted

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

    def announce(self, connection: sqlite3.Connection) -> None:
        """Before a change is committed: if the log is in use, a crash may leave the file with or without it."""
        if self._noted:
            self._write_note([*self._noted[-1:], _kept_digest(connection)])

    def settle(self, connection: sqlite3.Connection) -> None:
        """After a change is committed: empty the write-ahead log, and see that the change is where it will be found.

        Damage to a log that is left behind by a crash would lose its changes without a trace. While others read, the
        log stays; then the digest of what was confirmed is noted beside the file, and compared when it is opened.
        """
        connection.execute("PRAGMA busy_timeout = 0")
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {MILLISECONDS_TO_WAIT}")
        if busy:
            self._write_note([_kept_digest(connection)])
        elif self._noted:
            self._note.unlink(missing_ok=True)
            self._noted = []
        self.check_in_place()

    def _write_note(self, digests: list[int]) -> None:
        try:
            write_record(self._note, {"digests": digests})
        except HireError as error:
            raise UnsettledError(error.problems[0].message, remedy="try again in a moment") from error
        self._noted = digests

    def _identities(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_identity(f"{self.path}{suffix}") for suffix in ("", "-wal"))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (before and after every change)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _kept_digest(connection: sqlite3.Connection) -> int:
    (total,) = connection.execute(f"SELECT total FROM {DIGEST}").fetchone()
    return int(total)


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
