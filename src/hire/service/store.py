"""The relations that were taught, in one SQLite file: what was answered with success is there after any crash."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hire.errors import HireError

Kind = Literal["reference", "accepted", "rejected"]
Pair = tuple[str, str]  # head, tail

VERSION = 1
SECONDS_TO_WAIT = 5.0  # for another process that is writing
SCHEMA = """
CREATE TABLE relations (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL
);
CREATE TABLE pairs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  relation TEXT NOT NULL REFERENCES relations (id) ON DELETE CASCADE,
  head TEXT NOT NULL,
  tail TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('reference', 'accepted', 'rejected')),
  UNIQUE (relation, head, tail)
);
"""


@dataclass(frozen=True)
class StoredRelation:
    """What a person said about a relation, in the order in which it was said."""

    id: str
    name: str
    pairs: dict[Pair, Kind] = field(default_factory=dict)

    def of_kind(self, kind: Kind) -> list[Pair]:
        """The pairs of one kind."""
        return [pair for pair, of_pair in self.pairs.items() if of_pair == kind]

    def with_pair(self, pair: Pair, kind: Kind | None) -> StoredRelation:
        """The same with a pair said anew, or with None, unsaid."""
        pairs = {other: of_other for other, of_other in self.pairs.items() if other != pair}
        return StoredRelation(self.id, self.name, pairs if kind is None else {**pairs, pair: kind})


class RelationStore:
    """Relations by id; each change is on the disk when its method returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._explained():
            self._connection = sqlite3.connect(
                path, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
        with self._changing():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version == 0 and not tables:
                for statement in SCHEMA.split(";\n"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise HireError(
                    "is not a file of taught relations that this version reads",
                    file=path,
                    remedy="name another file with --state",
                )

    def close(self) -> None:
        """Write what is in the journal into the file itself, and close it."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            remedy = "check that it may be written to, or name another file with --state"
            raise HireError(f"cannot be used ({error})", file=self.path, remedy=remedy) from error

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def add(self, name: str, references: Iterable[Pair]) -> StoredRelation:
        """Keep a new relation."""
        relation = StoredRelation(secrets.token_hex(8), name, dict.fromkeys(references, "reference"))
        with self._changing() as connection:
            connection.execute("INSERT INTO relations (id, name) VALUES (?, ?)", (relation.id, name))
            connection.executemany(
                "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)",
                [(relation.id, *pair, kind) for pair, kind in relation.pairs.items()],
            )
        return relation

    def say(self, relation: str, pair: Pair, kind: Kind | None) -> None:
        """Keep what is said of a pair, in place of what was said before; None keeps nothing of it."""
        with self._changing() as connection:
            connection.execute("DELETE FROM pairs WHERE relation = ? AND head = ? AND tail = ?", (relation, *pair))
            if kind is not None:
                connection.execute(
                    "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)", (relation, *pair, kind)
                )

    def delete(self, relation: str) -> None:
        """Forget a relation."""
        with self._changing() as connection:
            connection.execute("DELETE FROM relations WHERE id = ?", (relation,))

    def all(self) -> list[StoredRelation]:
        """Every relation, in the order in which they were taught."""
        with self._lock, self._explained():
            rows = self._connection.execute("SELECT id, name FROM relations ORDER BY number").fetchall()
            found = {row[0]: StoredRelation(*row) for row in rows}
            for relation, head, tail, kind in self._connection.execute(
                "SELECT relation, head, tail, kind FROM pairs ORDER BY number"
            ):
                found[relation].pairs[head, tail] = kind
        return list(found.values())
