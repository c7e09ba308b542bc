from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.service.database import StateFile, StateGoneError
from hire.service.errors import problem_of
from hire.service.relations import Draft, RelationTable
from hire.service.store import Store
from hire.util.checksums import write_record
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


@pytest.mark.parametrize("length", [1, 15, 16, 99, 100, 300, 511, 512, 4_095, 4_096, 8_192])
def test_a_file_that_was_cut_is_never_taken_for_a_new_one(tmp_path: Path, length: int) -> None:
    taught(tmp_path / "state")
    os.truncate(tmp_path / "state", length)
    with pytest.raises(HireError, match="is damaged, or not a file of taught relations"):
        Store(tmp_path / "state")
    assert (tmp_path / "state").stat().st_size == length


@pytest.mark.parametrize("content", [b"x", b"a note\n" * 10, b"SQLite format 3\0" + bytes(84)])
def test_another_file_is_not_made_a_state_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(HireError, match="not a file of taught relations"):
        Store(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == content


def test_nothing_that_was_confirmed_is_in_the_write_ahead_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    taught(path)
    store = Store(path)
    RelationTable(store).add(Draft("late", [("a", "b")]))
    assert (tmp_path / "state-wal").stat().st_size == 0
    shutil.copy(path, tmp_path / "copy")  # without the log, as if that had been damaged
    store.close()
    assert "late" in {row[2] for row in everything_in(tmp_path / "copy")["relations"]}


def names_in(path: Path) -> set[str]:
    return {row[2] for row in everything_in(path)["relations"]}


def test_damage_to_a_log_that_had_to_stay_is_told(tmp_path: Path) -> None:
    """While others read, a confirmed change is in the log; a crash may come then, and damage after it."""
    live = tmp_path / "live"
    live.mkdir()
    taught(live / "state", 3)
    store = Store(live / "state")
    table = RelationTable(store)
    with closing(sqlite3.connect(live / "state")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM relations").fetchone()  # has the file as it is now, until it ends
        for name in ("late", "later"):
            table.add(Draft(name, [("a", "b")]))
        log = (live / "state-wal").read_bytes()
        assert log and {"late", "later"} <= names_in(shutil.copytree(live, tmp_path / "undamaged") / "state")
        damaged = [log[:length] for length in (0, 32, len(log) // 2, len(log) - 1)]
        generator = random.Random(0)
        for _ in range(40):
            flipped = bytearray(log)
            flipped[generator.randrange(len(log))] ^= 1 << generator.randrange(8)
            damaged.append(bytes(flipped))
        told = sum(_is_told(live, tmp_path / "damaged", content) for content in damaged)
        assert told > len(damaged) // 2
        reader.execute("COMMIT")
    table.add(Draft("last", [("a", "b")]))
    assert not (live / "state-confirmed").exists()
    store.close()
    assert {"late", "later", "last"} <= names_in(live / "state")


def test_the_note_of_a_file_that_was_removed_does_not_matter(tmp_path: Path) -> None:
    write_record(tmp_path / "state-confirmed", {"digests": [1]})
    taught(tmp_path / "state", 1)
    assert names_in(tmp_path / "state") == {"relation 0"}
    write_record(tmp_path / "state-confirmed", {"digests": [1]})
    with pytest.raises(HireError, match="changes that were confirmed are missing") as caught:
        names_in(tmp_path / "state")
    assert str(tmp_path / "state-confirmed") in str(caught.value.problems[0].remedy)
    (tmp_path / "state-confirmed").unlink()
    assert names_in(tmp_path / "state") == {"relation 0"}


def _is_told(live: Path, copy: Path, log: bytes) -> bool:
    """Whether a file with such a log is refused; if not, nothing may be missing."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(live, copy)
    (copy / "state-wal").write_bytes(log)
    try:
        found = names_in(copy / "state")
    except HireError as error:
        assert error.problems[0].file == str(copy / "state") and error.problems[0].remedy
        with pytest.raises(HireError):  # not only once
            names_in(copy / "state")
        return True
    assert {"late", "later"} <= found
    return False


def test_a_crash_while_the_log_is_in_use_leaves_a_file_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for committed in (False, True):
        with opened(path, log=True) as (connection, file), closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM parents").fetchone()
            connection.execute("INSERT INTO parents (name) VALUES ('first')")
            file.settle(connection)
            connection.execute("BEGIN")
            connection.execute("INSERT INTO parents (name) VALUES ('second')")
            file.announce(connection)
            if committed:
                connection.execute("COMMIT")
            copy = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{committed}"))
            if not committed:
                connection.execute("COMMIT")
            reader.execute("COMMIT")
            file.settle(connection)
        with opened(copy / "state", log=True) as (connection, _):
            names = [name for (name,) in connection.execute("SELECT name FROM parents ORDER BY id")]
            assert names == (["first", "second", "first", "second"] if committed else ["first"])
        assert sorted(found.name for found in copy.iterdir()) == ["state"]


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
