from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.service.store import RelationStore

HOSTILE = "x'); DROP TABLE relations; --\x00\n"


def test_what_was_said_is_there_again(tmp_path: Path) -> None:
    store = RelationStore(tmp_path / "state")
    first = store.add("kind_of", [("a", "b"), ("c", "d")])
    second = store.add(HOSTILE, [(HOSTILE, HOSTILE)])
    store.set_kind(first.id, ("e", "f"), "accepted")
    store.set_kind(first.id, ("a", "b"), "rejected")
    store.set_kind(second.id, (HOSTILE, "b"), "rejected")
    store.set_kind(second.id, (HOSTILE, "b"), None)
    gone = store.add("gone", [("a", "b")])
    store.delete(gone.id)
    store.close()
    again = RelationStore(tmp_path / "state")
    assert again.all() == [first.with_pair(("e", "f"), "accepted").with_pair(("a", "b"), "rejected"), second]
    assert list(again.all()[0].pairs) == [("c", "d"), ("e", "f"), ("a", "b")]
    again.close()


def test_a_killed_process_loses_nothing_that_was_said(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from hire.service.store import RelationStore\n"
        "store = RelationStore(Path(sys.argv[1]))\n"
        "relation = store.add('r', [('a', 'b')]); store.set_kind(relation.id, ('c', 'd'), 'accepted')\n"
        "connection = store._connection\n"
        "connection.execute('BEGIN IMMEDIATE'); connection.execute('DELETE FROM pairs')\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "state"], check=False, timeout=20)
    assert done.returncode == -9
    store = RelationStore(tmp_path / "state")
    (relation,) = store.all()
    assert relation.pairs == {("a", "b"): "reference", ("c", "d"): "accepted"}
    store.close()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="no such file or directory"):
        RelationStore(tmp_path / "missing" / "state")
    text = tmp_path / "text"
    text.write_text("not a database, and long enough to be told from one " * 20)
    with pytest.raises(HireError, match="not a file of taught relations") as caught:
        RelationStore(text)
    assert "--state" in str(caught.value.problems[0].remedy)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    with pytest.raises(HireError, match="not a file of taught relations"):
        RelationStore(tmp_path / "other")
