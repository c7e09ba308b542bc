"""Taught relations in one SQLite file: a change that was confirmed survives any crash."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hire.service.database import Database

Kind = Literal["reference", "accepted", "rejected"]
Pair = tuple[str, str]  # head, tail

VERSION = 2
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
        self._database = Database(path, SCHEMA, VERSION)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, name: str, references: Iterable[Pair]) -> StoredRelation:
        """Save a new relation."""
        relation = StoredRelation(secrets.token_hex(8), name, dict.fromkeys(references, "reference"))
        with self._database.changing() as connection:
            connection.execute("INSERT INTO relations (id, name) VALUES (?, ?)", (relation.id, name))
            connection.executemany(
                "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)",
                [(relation.id, *pair, kind) for pair, kind in relation.pairs.items()],
            )
        return relation

    def set_kind(self, relation: str, pair: Pair, kind: Kind | None) -> None:
        """Save the kind of a pair in place of its previous one; None removes the pair."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM pairs WHERE relation = ? AND head = ? AND tail = ?", (relation, *pair))
            if kind is not None:
                connection.execute(
                    "INSERT INTO pairs (relation, head, tail, kind) VALUES (?, ?, ?, ?)", (relation, *pair, kind)
                )

    def delete(self, relation: str) -> None:
        """Delete a relation."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM relations WHERE id = ?", (relation,))

    def all(self) -> list[StoredRelation]:
        """All relations, in the order they were taught."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT id, name FROM relations ORDER BY number").fetchall()
            found = {row[0]: StoredRelation(*row) for row in rows}
            for relation, head, tail, kind in connection.execute(
                "SELECT relation, head, tail, kind FROM pairs ORDER BY number"
            ):
                found[relation].pairs[head, tail] = kind
        return list(found.values())
