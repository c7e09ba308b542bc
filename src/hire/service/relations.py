"""Taught relations as they are stored: what they are called, what they are for, and their references."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hire.errors import HireError
from hire.service.store import Row, Store, new_id, now

Pair = tuple[str, str]  # head, tail

MAX_RELATIONS = 10_000
MAX_PAIRS = 1_000  # references of one relation


class NotFoundError(HireError):
    """There is no such thing."""


class StaleError(HireError):
    """A change was based on an older version."""


class ConflictError(HireError):
    """A change contradicts what was decided since."""

    def __init__(self, message: str, *, remedy: str, entry: dict[str, Any] | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.entry = entry


@dataclass(frozen=True)
class StoredRelation:
    """A taught relation and its references, in the order they were given."""

    id: str
    name: str
    predicate: str | None
    graph: str | None
    scope: dict[str, Any]
    candidates: list[str] | None
    version: int
    created: str
    by: str
    references: tuple[Pair, ...]


@dataclass(frozen=True)
class Draft:
    """A relation that is about to be taught."""

    name: str
    references: Sequence[Pair]
    predicate: str | None = None
    scope: dict[str, Any] | None = None
    candidates: list[str] | None = None
    graph: str | None = None
    by: str = "anonymous"


class RelationTable:
    """Relations by id; each change is told to those who listen."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def add(self, draft: Draft) -> StoredRelation:
        """Save a new relation."""
        relation = new_id()
        with self.store.changing() as connection:
            if self.count() >= MAX_RELATIONS:
                raise HireError(f"there are already {MAX_RELATIONS:,} relations", remedy="delete some first")
            scope, candidates = draft.scope or {"kind": "similar"}, draft.candidates
            connection.execute(
                "INSERT INTO relations (id, name, predicate, graph, scope, candidates, created, by) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    relation,
                    draft.name,
                    draft.predicate,
                    draft.graph,
                    json.dumps(scope),
                    None if candidates is None else json.dumps(candidates),
                    now(),
                    draft.by,
                ),
            )
            _insert_pairs(connection, relation, draft.references)
            self._tell(relation, 1, "created")
        return self.get(relation)

    def count(self) -> int:
        """The number of relations."""
        with self.store.reading() as connection:
            (count,) = connection.execute("SELECT count(*) FROM relations WHERE deleted IS NULL").fetchone()
        return int(count)

    def get(self, relation: str) -> StoredRelation:
        """The relation with this id."""
        with self.store.reading() as connection:
            row = connection.execute("SELECT * FROM relations WHERE id = ? AND deleted IS NULL", (relation,)).fetchone()
            if row is None:
                raise NotFoundError(
                    f"there is no relation {relation!r}",
                    remedy="it may have been deleted; list the relations to see which exist",
                )
            return _stored(connection, row)

    def named(self, name: str) -> StoredRelation:
        """The relation with this id or, if just one has it, this name."""
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM relations WHERE (id = ? OR name = ?) AND deleted IS NULL", (name, name)
            ).fetchall()
            if len(rows) == 1:
                return _stored(connection, rows[0])
        if rows:
            ids = " or ".join(row["id"] for row in rows[:3])
            raise NotFoundError(f"several relations are called {name!r}", remedy=f"give the id of one of them: {ids}")
        known = ", ".join(relation.name for relation, _ in self.page(5))
        remedy = f"there are {known}" if known else "teach one with hire serve first"
        raise NotFoundError(f"there is no relation {name!r}", remedy=remedy)

    def page(self, limit: int, before: int | None = None) -> list[tuple[StoredRelation, int]]:
        """At most so many relations with their numbers, newest first, taught before the one with a number."""
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM relations WHERE deleted IS NULL AND (? IS NULL OR number < ?) "
                "ORDER BY number DESC LIMIT ?",
                (before, before, limit),
            ).fetchall()
            return [(_stored(connection, row), row["number"]) for row in rows]

    def change(self, relation: str, fields: dict[str, Any], expected: int | None = None) -> StoredRelation:
        """Change the name, the predicate or the scope of a relation."""
        with self.store.changing() as connection:
            before = self._checked(relation, expected)
            values = {"name": before.name, "predicate": before.predicate, "scope": before.scope} | fields
            connection.execute(
                "UPDATE relations SET name = ?, predicate = ?, scope = ? WHERE id = ?",
                (values["name"], values["predicate"], json.dumps(values["scope"]), relation),
            )
            self._advance(connection, relation)
            return self.get(relation)

    def add_references(self, relation: str, pairs: Sequence[Pair], expected: int | None = None) -> StoredRelation:
        """Add references to a relation; those it has already stay as they are."""
        with self.store.changing() as connection:
            self._checked(relation, expected)
            _insert_pairs(connection, relation, pairs)
            self._advance(connection, relation)
            return self.get(relation)

    def remove_reference(self, relation: str, pair: Pair, expected: int | None = None) -> StoredRelation:
        """Remove a reference, unless it is the last."""
        with self.store.changing() as connection:
            before = self._checked(relation, expected)
            if pair not in before.references:
                raise NotFoundError(f"{pair[0]!r} and {pair[1]!r} are not a reference", remedy="reload the references")
            if len(before.references) == 1:
                raise ConflictError("the relation would have no references left", remedy="add another reference first")
            connection.execute("DELETE FROM pairs WHERE relation = ? AND head = ? AND tail = ?", (relation, *pair))
            self._advance(connection, relation)
            return self.get(relation)

    def delete(self, relation: str, expected: int | None = None) -> None:
        """Delete a relation, its queue and its suggestions; the log of its verdicts stays."""
        with self.store.changing() as connection:
            before = self._checked(relation, expected)
            connection.execute("UPDATE relations SET deleted = ? WHERE id = ?", (now(), relation))
            for table in ("heads", "suggestions", "judged"):
                connection.execute(f"DELETE FROM {table} WHERE relation = ?", (relation,))
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', ended = ? WHERE relation = ? AND state IN ('queued', 'running')",
                (now(), relation),
            )
            self._tell(relation, before.version + 1, "deleted")

    def _checked(self, relation: str, expected: int | None) -> StoredRelation:
        found = self.get(relation)
        if expected is not None and found.version != expected:
            raise StaleError(
                f"the relation has changed: it is at version {found.version}, not {expected}",
                remedy="reload it, then change it again",
            )
        return found

    def _advance(self, connection: sqlite3.Connection, relation: str) -> None:
        connection.execute("UPDATE relations SET version = version + 1 WHERE id = ?", (relation,))
        self._tell(relation, self.get(relation).version, "changed")

    def _tell(self, relation: str, version: int, change: str) -> None:
        self.store.emit("relation", relation, {"relation": relation, "version": version, "change": change})


def _insert_pairs(connection: sqlite3.Connection, relation: str, pairs: Sequence[Pair]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO pairs (relation, head, tail) VALUES (?, ?, ?)", [(relation, *pair) for pair in pairs]
    )
    (count,) = connection.execute("SELECT count(*) FROM pairs WHERE relation = ?", (relation,)).fetchone()
    if count > MAX_PAIRS:
        raise HireError(f"a relation has at most {MAX_PAIRS:,} references", remedy="a handful is enough")


def _stored(connection: sqlite3.Connection, row: Row) -> StoredRelation:
    pairs = connection.execute("SELECT head, tail FROM pairs WHERE relation = ? ORDER BY number", (row["id"],))
    return StoredRelation(
        row["id"],
        row["name"],
        row["predicate"],
        row["graph"],
        json.loads(row["scope"]),
        None if row["candidates"] is None else json.loads(row["candidates"]),
        row["version"],
        row["created"],
        row["by"],
        tuple((head, tail) for head, tail in pairs),
    )
