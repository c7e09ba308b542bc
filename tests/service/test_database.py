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
from hire.service.database import StateFile, StateGoneError
from hire.service.errors import problem_of
from hire.service.relations import Draft, RelationTable
from hire.service.store import Store
from hire.util.locks import InUseError
from tests.service.stored import everything_in, taught

SCHEMA = """
CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT NOT NULL, note TEXT);
CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (id) ON DELETE CASCADE, "by" REAL, data BLOB);
"""


@contextmanager
def opened(path: Path, *, log: bool = False) -> Iterator[tuple[sqlite3.Connection, StateFile]]:
    """A file of another schema, opened as a store does."""
    new, file = not path.exists(), StateFile(path)
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


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE relations SET name = 'x' WHERE number = 3",
        "UPDATE pairs SET tail = 'other' WHERE number = 5",
        "DELETE FROM pairs WHERE number = 7",
        "INSERT INTO events (kind, data) VALUES ('a', 'b')",
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
        Store(path)
    assert "restore it from a backup" in str(caught.value.problems[0].remedy)


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    original, path = tmp_path / "original", tmp_path / "state"
    taught(original)
    written, whole, generator = everything_in(original), original.read_bytes(), random.Random(0)
    told = 0
    for _ in range(200):
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        try:
            found = everything_in(path)
        except HireError as error:
            told += 1
            assert str(path) in str(error)
            continue
        assert found == written  # a bit of space that is not in use
    assert told > 50


def test_a_file_that_lost_its_content_is_told_and_a_new_one_is_never_empty(tmp_path: Path) -> None:
    StateFile(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_size and everything_in(tmp_path / "new")["relations"] == []
    (tmp_path / "state").touch()
    with pytest.raises(HireError, match="it is empty"):
        Store(tmp_path / "state")
    assert not (tmp_path / "state.lock").exists()


def test_nothing_that_was_confirmed_is_in_the_write_ahead_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    taught(path)
    store = Store(path)
    RelationTable(store).add(Draft("late", [("a", "b")]))
    assert (tmp_path / "state-wal").stat().st_size == 0
    shutil.copy(path, tmp_path / "copy")  # without the log, as if that had been damaged
    store.close()
    assert "late" in {row[2] for row in everything_in(tmp_path / "copy")["relations"]}


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", ["state", "state-wal"])
def test_a_file_that_is_gone_confirms_nothing(tmp_path: Path, replaced: bool, name: str) -> None:
    taught(tmp_path / "state")
    store = Store(tmp_path / "state")
    if replaced:
        shutil.copy(tmp_path / name, tmp_path / "copy")
        (tmp_path / "copy").rename(tmp_path / name)
    else:
        (tmp_path / name).unlink()
    with pytest.raises(StateGoneError, match="was removed or replaced while it was in use"):
        RelationTable(store).add(Draft("late", [("a", "b")]))
    store.close()


def test_a_file_that_goes_during_a_change_confirms_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")

    def change() -> None:
        with store.changing() as connection:
            connection.execute("INSERT INTO events (kind, data) VALUES ('a', 'b')")
            (tmp_path / "state").unlink()

    with pytest.raises(StateGoneError, match="removed or replaced"):
        change()
    store.close()


def test_a_store_that_is_gone_is_503_without_a_path(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    file.opened()
    (tmp_path / "state").unlink()
    with pytest.raises(StateGoneError) as caught:
        file.check_in_place()
    file.close()
    body = problem_of(caught.value)
    assert body["status"] == 503 and str(tmp_path) not in str(body)


def test_a_write_ahead_log_that_is_gone_is_noticed_too(tmp_path: Path) -> None:
    with opened(tmp_path / "state", log=True) as (connection, file):
        connection.execute("INSERT INTO parents VALUES (1, 'a', 'b')")
        file.check_in_place()
        (tmp_path / "state-wal").unlink()
        with pytest.raises(HireError, match="removed or replaced"):
            file.check_in_place()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = Store(tmp_path / "state")
    with pytest.raises(InUseError, match=rf"state: is in use by process {os.getpid()}"):
        Store(tmp_path / "state")
    first.close()
    Store(tmp_path / "state").close()
    assert {path.name for path in tmp_path.iterdir()} <= {"state"}
