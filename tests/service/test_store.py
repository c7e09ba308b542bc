from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.service.log import Author, Log, NewEntry
from hire.service.relations import Draft, RelationTable
from hire.service.store import KeyReusedError, Recorded, Store

HOSTILE = "x'); DROP TABLE relations; --\x00\n"
AUTHOR = Author("ana", "one", "path")


def test_what_was_said_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    relations, log = RelationTable(store), Log(store)
    first = relations.add(Draft("kind_of", [("a", "b"), ("c", "d")]))
    second = relations.add(Draft(HOSTILE, [(HOSTILE, HOSTILE)], by=HOSTILE))
    log.append(first.id, [NewEntry(HOSTILE, "f", "accept", 0.5)], AUTHOR)
    gone = relations.add(Draft("gone", [("a", "b")]))
    relations.delete(gone.id)
    store.close()
    store = Store(tmp_path / "state")
    relations, log = RelationTable(store), Log(store)
    assert [relation for relation, _ in relations.page(10)] == [second, first]
    (rows, total) = log.page(first.id, {}, 10)
    assert total == 1 and (rows[0]["head"], rows[0]["confidence"]) == (HOSTILE, 0.5)
    store.close()


def test_the_log_is_append_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    relation = RelationTable(store).add(Draft("r", [("a", "b")])).id
    Log(store).append(relation, [NewEntry("c", "d", "accept")], AUTHOR)
    for statement in ("UPDATE entries SET verdict = 'reject'", "DELETE FROM entries"):
        with pytest.raises(HireError), store.changing() as connection:
            connection.execute(statement)
    assert Log(store).entry(1)["verdict"] == "accept"  # type: ignore[index]
    store.close()


def test_a_killed_process_loses_nothing_that_was_said(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from hire.service.store import Store\n"
        "from hire.service.relations import Draft, RelationTable; from hire.service.log import *\n"
        "store = Store(Path(sys.argv[1]))\n"
        "relation = RelationTable(store).add(Draft('r', [('a', 'b')]))\n"
        "Log(store).append(relation.id, [NewEntry('c', 'd', 'accept')], Author('ana', '', 'm'))\n"
        "store._connection.execute('BEGIN IMMEDIATE'); store._connection.execute('DELETE FROM pairs')\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "state"], check=False, timeout=120)
    assert done.returncode == -9
    store = Store(tmp_path / "state")
    ((relation, _),) = RelationTable(store).page(10)
    assert relation.references == (("a", "b"),)
    assert [row["verdict"] for row in Log(store).page(relation.id, {}, 10)[0]] == ["accept"]
    store.close()


def test_a_change_and_its_key_are_saved_together_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    relations = RelationTable(store)

    def teach() -> Recorded:
        return Recorded(201, {}, relations.add(Draft("r", [("a", "b")])).id)

    def fail() -> Recorded:
        teach()
        raise HireError("no")

    with pytest.raises(HireError):
        store.once("key", "f", lambda: fail)
    assert relations.count() == 0
    done = store.once("key", "f", lambda: teach)
    assert store.once("key", "f", lambda: teach) == done._replace(replayed=True) and relations.count() == 1
    with pytest.raises(KeyReusedError):
        store.once("key", "other", lambda: teach)
    store.close()


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    relations = RelationTable(store)
    seen: list[int] = []
    with store.changing():
        relations.add(Draft("r", [("a", "b")]))
        assert relations.count() == 1  # the change sees itself
        reader = threading.Thread(target=lambda: seen.append(relations.count()))
        reader.start()
        reader.join(10)
    assert seen == [0] and relations.count() == 1
    store.close()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="no such file or directory"):
        Store(tmp_path / "missing" / "state")
    text = tmp_path / "text"
    text.write_text("not a database, and long enough to be told from one " * 20)
    with pytest.raises(HireError, match="not a file of taught relations") as caught:
        Store(text)
    assert "--state" in str(caught.value.problems[0].remedy)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    with pytest.raises(HireError, match="not a file of taught relations"):
        Store(tmp_path / "other")
