from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.service.database import StateFile
from hire.service.store import RelationStore, StoredRelation
from hire.util.locks import InUseError

SCHEMA = """
CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT NOT NULL, note TEXT);
CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (id) ON DELETE CASCADE, "by" REAL, data BLOB);
"""


def taught(path: Path, relations: int = 12) -> list[StoredRelation]:
    """A file of relations, and what is in it."""
    store = RelationStore(path)
    for number in range(relations):
        relation = store.add(f"relation {number}", [(f"head {number} {i}", f"tail {i}") for i in range(20)])
        store.set_kind(relation.id, (f"head {number} 1", "tail 1"), "rejected")
    found = store.all()
    store.close()
    return found


@contextmanager
def opened(path: Path, *, log: bool = False) -> Iterator[tuple[sqlite3.Connection, StateFile]]:
    """A file of another schema, opened as a store does."""
    file, new = StateFile(path), not path.exists()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        file.register(connection)
        connection.execute(f"PRAGMA journal_mode = {'WAL' if log else 'TRUNCATE'}")
        connection.execute("PRAGMA foreign_keys = ON")
        if new:
            connection.executescript(SCHEMA)
            file.create(connection)
        else:
            file.check(connection, SCHEMA)
        file.opened()
        yield connection, file
    finally:
        connection.close()
        file.close()


def test_any_kind_of_change_keeps_the_digest_right(tmp_path: Path) -> None:
    generator = random.Random(0)
    for _ in range(6):
        with opened(tmp_path / "state") as (connection, _):  # which checks the digest
            for _ in range(20):
                number = generator.randrange(5)
                connection.execute("INSERT OR REPLACE INTO parents VALUES (?, ?, ?)", (number, f"é{number}\x00", None))
                connection.execute("INSERT INTO children VALUES (?, ?, ?)", (number, 0.1 * number, b"\x00\xff"))
                connection.execute('UPDATE children SET "by" = "by" + 1, data = NULL WHERE parent = ?', (number,))
                if generator.random() < 0.3:
                    connection.execute("DELETE FROM parents WHERE id = ?", (number,))


def test_an_error_undoes_the_change(tmp_path: Path) -> None:
    store = RelationStore(tmp_path / "state")

    def fail() -> None:
        with store._changing() as connection:
            connection.execute("INSERT INTO relations (id, name) VALUES ('a', 'b')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.all() == []
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE relations SET name = 'x' WHERE number = 3",
        "UPDATE pairs SET kind = 'accepted' WHERE number = 5",
        "DELETE FROM pairs WHERE number = 7",
        "INSERT INTO relations (id, name) VALUES ('a', 'b')",
        "UPDATE digest SET total = total + 1",
        "DELETE FROM digest",
        "CREATE TABLE another (x)",
        "DROP TRIGGER digest_insert_pairs",
    ],
)
def test_rows_that_are_not_those_that_were_written_are_told(tmp_path: Path, change: str) -> None:
    path = tmp_path / "state"
    taught(path)
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for _, sql in triggers:
        connection.execute(sql) if change.startswith("DROP") else None
    connection.execute(change)
    for _, sql in triggers:
        connection.execute(sql) if not change.startswith("DROP") else None
    connection.commit()
    connection.close()
    with pytest.raises(HireError, match="is damaged") as caught:
        RelationStore(path)
    assert "restore it from a backup" in str(caught.value.problems[0].remedy)


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    original, path = tmp_path / "original", tmp_path / "state"
    written = taught(original)
    whole, generator = original.read_bytes(), random.Random(0)
    told = 0
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        try:
            store = RelationStore(path)
        except HireError as error:
            told += 1
            assert str(path) in str(error)
            continue
        assert store.all() == written  # a bit of space that is not in use
        store.close()
    assert told > 100


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_confirms_nothing(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "state"
    taught(path)
    store = RelationStore(path)
    if replaced:
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").rename(path)
    else:
        path.unlink()
    with pytest.raises(HireError, match="was removed or replaced while it was in use"):
        store.add("late", [("a", "b")])
    store.close()


def test_a_file_that_goes_during_a_change_confirms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state"
    store = RelationStore(path)

    def change() -> None:
        with store._changing() as connection:
            connection.execute("INSERT INTO relations (id, name) VALUES ('a', 'b')")
            path.unlink()

    with pytest.raises(HireError, match="removed or replaced"):
        change()
    store.close()


def test_a_write_ahead_log_that_is_gone_is_noticed_too(tmp_path: Path) -> None:
    with opened(tmp_path / "state", log=True) as (connection, file):
        connection.execute("INSERT INTO parents VALUES (1, 'a', 'b')")
        file.check_in_place()
        (tmp_path / "state-wal").unlink()
        with pytest.raises(HireError, match="removed or replaced"):
            file.check_in_place()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = RelationStore(tmp_path / "state")
    with pytest.raises(InUseError, match=rf"state: is in use by process {os.getpid()}"):
        RelationStore(tmp_path / "state")
    first.close()
    RelationStore(tmp_path / "state").close()
    assert {path.name for path in tmp_path.iterdir()} <= {"state", "state-journal"}
