"""Taught relations in one SQLite file: a change that was confirmed survives any crash."""

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
from hire.service.database import StateFile

Kind = Literal["reference", "accepted", "rejected"]
Pair = tuple[str, str]  # head, tail

VERSION = 2
SECONDS_TO_WAIT = 5.0  # for a program that looks at the file, such as a backup
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
    """A taught relation: its references and the verdicts on other pairs, in the order they were given."""

    id: str
    name: str
    pairs: dict[Pair, Kind] = field(default_factory=dict)

    def of_kind(self, kind: Kind) -> list[Pair]:
        """The pairs of one kind."""
        return [pair for pair, of_pair in self.pairs.items() if of_pair == kind]

    def with_pair(self, pair: Pair, kind: Kind | None) -> StoredRelation:
        """The same relation with a pair of another kind or, with None, without the pair."""
        pairs = {other: of_other for other, of_other in self.pairs.items() if other != pair}
        return StoredRelation(self.id, self.name, pairs if kind is None else {**pairs, pair: kind})


class RelationStore:
    """Relations by id; each change is on disk when its method returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = StateFile(path)
        try:
            with self._file.explained():
                self._connection = sqlite3.connect(
                    path, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False
                )
                self._file.register(self._connection)
                # Without a write-ahead log: a damaged one would lose the latest changes without a trace.
                self._connection.execute("PRAGMA journal_mode = TRUNCATE")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA foreign_keys = ON")
            with self._changing() as connection:
                self._create_or_check(connection)
            self._file.opened()
        except BaseException:
            self.close()
            raise

    def _create_or_check(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version == 0 and not tables:
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            self._file.create(connection)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise HireError(
                "is not a file of taught relations, or was written by another version",
                file=self.path,
                remedy="choose another file with --state",
            )
        else:
            self._file.check(connection, SCHEMA)

    def close(self) -> None:
        """Close the file, for another process to open."""
        with self._lock:
            if hasattr(self, "_connection"):
                self._connection.close()
            self._file.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._file.explained():
            self._file.check_in_place()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            self._file.check_in_place()

    def add(self, name: str, references: Iterable[Pair]) -> StoredRelation:
        """Save a new relation."""
        relation = StoredRelation(secrets.token_hex(8), name, dict.fromkeys(references, "reference"))
        with self._changing() as connection:
            connection.execute("INSERT INTO relations (id, name) VALUES (?, ?)", (relation.id, name))
            connection.executemany(
                "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)",
                [(relation.id, *pair, kind) for pair, kind in relation.pairs.items()],
            )
        return relation

    def set_kind(self, relation: str, pair: Pair, kind: Kind | None) -> None:
        """Save the kind of a pair in place of its previous one; None removes the pair."""
        with self._changing() as connection:
            connection.execute("DELETE FROM pairs WHERE relation = ? AND head = ? AND tail = ?", (relation, *pair))
            if kind is not None:
                connection.execute(
                    "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)", (relation, *pair, kind)
                )

    def delete(self, relation: str) -> None:
        """Delete a relation."""
        with self._changing() as connection:
            connection.execute("DELETE FROM relations WHERE id = ?", (relation,))

    def all(self) -> list[StoredRelation]:
        """All relations, in the order they were taught."""
        with self._lock, self._file.explained():
            rows = self._connection.execute("SELECT id, name FROM relations ORDER BY number").fetchall()
            found = {row[0]: StoredRelation(*row) for row in rows}
            for relation, head, tail, kind in self._connection.execute(
                "SELECT relation, head, tail, kind FROM pairs ORDER BY number"
            ):
                found[relation].pairs[head, tail] = kind
        return list(found.values())
