"""What people do with suggestions: verdicts, undo, batches, imports."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from typing import Any

from hire.errors import HireError
from hire.service.log import NO_TAIL, Author, Log, NewEntry
from hire.service.relations import ConflictError, NotFoundError, Pair, StoredRelation
from hire.service.store import Row, Store, in_parts, marks, new_id, now
from hire.service.teaching import Teaching
from hire.service.views import entry_of
from hire.util.arrays import IntArray

# Pairs that a batch may accept: undecided ones of heads that no person has closed.
UNDECIDED = (
    "FROM suggestions s JOIN heads h ON h.relation = s.relation AND h.head = s.head "
    "LEFT JOIN judged j ON j.relation = s.relation AND j.head = s.head AND j.tail = s.tail "
    "WHERE s.relation = :relation AND s.confidence >= :threshold AND j.verdict IS NULL "
    "AND (h.state = 'open' OR (h.state = 'accepted' AND NOT h.audited)) AND (:type IS NULL OR h.type = :type)"
)


class Review:
    """The review of relations: every change is an entry of the log."""

    def __init__(self, store: Store, teaching: Teaching) -> None:
        self.store = store
        self.teaching = teaching
        self.log = Log(store)

    def author(self, by: str, client: str = "") -> Author:
        """Someone who makes entries now."""
        return Author(by, client, self.teaching.model_name)

    def enter_heads(self, relation: StoredRelation, ids: IntArray, job: str | None) -> None:
        """Put heads into the queue, unless they are there; a job will answer those that nobody has decided."""
        dataset = self.teaching.of_graph(relation.graph).dataset
        graph = dataset.graph
        rows = [
            (relation.id, graph.entities[entity], type_of(graph.types, entity), random.random())
            for entity in ids.tolist()
        ]
        with self.store.changing() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO heads (relation, head, type, shuffle) VALUES (?, ?, ?, ?)", rows
            )
            if job is None:
                return
            for some in in_parts(row[1] for row in rows):
                connection.execute(
                    "UPDATE heads SET pending = ? WHERE relation = ? AND state NOT IN ('accepted', 'no_tail') "
                    f"AND head IN ({marks(len(some))})",
                    (job, relation.id, *some),
                )
            connection.execute(
                "DELETE FROM heads WHERE relation = ? AND pending IS NOT ? AND version = 0", (relation.id, job)
            )
            connection.execute(
                "DELETE FROM suggestions WHERE relation = ? "
                "AND head NOT IN (SELECT head FROM heads WHERE relation = ?)",
                (relation.id, relation.id),
            )

    def confidence(self, relation: StoredRelation, head: str, tail: str) -> float | None:
        """The confidence of a pair as it is shown: the stored one, or else the model's."""
        with self.store.reading() as connection:
            row = connection.execute(
                "SELECT confidence FROM suggestions WHERE relation = ? AND head = ? AND (tail = ? OR ? = '') "
                "ORDER BY place LIMIT 1",
                (relation.id, head, tail, tail),
            ).fetchone()
        if row is not None:
            found: float | None = row["confidence"]
            return found
        return None if tail == NO_TAIL else self.teaching.scores(relation, [(head, tail)])[0].confidence

    def judge(
        self,
        relation: StoredRelation,
        entry: NewEntry,
        author: Author,
        *,
        version: int | None = None,
        force: bool = False,
    ) -> int:
        """Add a verdict to the log, unless it holds already; returns the number of its entry."""
        with self.store.changing() as connection:
            held = _held(connection, relation.id, entry.head, entry.tail)
            if held is not None and held["verdict"] == entry.verdict and held["checked"]:
                return int(held["entry"])
            if version is not None and not force:
                self._check_conflict(relation, entry, author, version)
            known = connection.execute(
                "SELECT 1 FROM heads WHERE relation = ? AND head = ?", (relation.id, entry.head)
            ).fetchone()
            if known is None:
                model = self.teaching.of_graph(relation.graph)
                self.enter_heads(relation, model.names.ids([entry.head]), None)
            (number,) = self.log.append(relation.id, [entry], author)
            self._tell(relation, number)
        return number

    def _check_conflict(self, relation: StoredRelation, entry: NewEntry, author: Author, version: int) -> None:
        for row in self.log.since(relation.id, entry.head, version):
            same = row["tail"] == entry.tail
            against = (
                row["verdict"] != entry.verdict and row["verdict"] != "unsure" if same else row["verdict"] in CLOSING
            )
            if row["client"] != author.client and against:
                raise ConflictError(
                    f"{row['by']} decided otherwise: {row['verdict']}"
                    + (f" for {row['tail']!r}" if row["tail"] else ""),
                    remedy="look at it again; send the verdict with force to overrule it",
                    entry=entry_of(self.teaching, relation, row).model_dump(),
                )

    def undo(self, relation: StoredRelation, number: int, author: Author) -> int:
        """Undo an entry by another one; returns the number of that."""
        with self.store.changing():
            row = self.log.entry(number)
            if row is None or row["relation"] != relation.id or row["verdict"] == "undo":
                raise NotFoundError(f"there is no verdict {number} to undo", remedy="reload the history")
            if row["undone_by"] is not None:
                raise ConflictError(
                    f"verdict {number} has already been undone",
                    remedy="reload the history",
                    entry=entry_of(self.teaching, relation, row).model_dump(),
                )
            undo = NewEntry(row["head"], row["tail"], "undo", row["confidence"], number)
            (made,) = self.log.append(relation.id, [undo], author)
            self._tell(relation, made)
        return made

    def _tell(self, relation: StoredRelation, number: int) -> None:
        row = self.log.entry(number)
        if row is None:
            raise LookupError(number)
        with self.store.reading() as connection:
            state = connection.execute(
                "SELECT state FROM heads WHERE relation = ? AND head = ?", (relation.id, row["head"])
            ).fetchone()
        told = entry_of(self.teaching, relation, row).model_dump()
        self.store.emit("verdict", relation.id, told | {"state": None if state is None else state["state"]})

    def undecided(self, relation: str, threshold: float, type_: str | None = None) -> list[Row]:
        """The pairs that a batch would accept."""
        values = {"relation": relation, "threshold": threshold, "type": type_}
        with self.store.reading() as connection:
            return connection.execute(f"SELECT s.head, s.tail, s.confidence, s.place {UNDECIDED}", values).fetchall()

    def accept(
        self,
        relation: StoredRelation,
        threshold: float,
        author: Author,
        *,
        type_: str | None = None,
        expected: int | None = None,
    ) -> str:
        """Accept all undecided pairs at or above a threshold as one batch; returns its id."""
        with self.store.changing():
            pairs = self.undecided(relation.id, threshold, type_)
            if expected is not None and len(pairs) != expected:
                raise ConflictError(
                    f"{len(pairs):,} facts would be accepted now, not {expected:,}", remedy="look at the number again"
                )
            entries = [NewEntry(row["head"], row["tail"], "accept", row["confidence"]) for row in pairs]
            return self._batch(relation.id, "accept", entries, author, threshold=threshold)

    def take_in(self, relation: StoredRelation, verdicts: Sequence[tuple[Pair, str]], author: Author) -> str:
        """Import verdicts as one batch; those that hold already are left out. Returns its id."""
        with self.store.changing() as connection:
            new = []
            for (head, tail), verdict in verdicts:
                held = _held(connection, relation.id, head, tail)
                if held is None or held["verdict"] != verdict or not held["checked"]:
                    new.append(NewEntry(head, tail, verdict, _stored_confidence(connection, relation.id, head, tail)))
            model = self.teaching.of_graph(relation.graph)
            self.enter_heads(relation, model.names.ids(list(dict.fromkeys(entry.head for entry in new))), None)
            return self._batch(relation.id, "import", new, author)

    def revert(self, batch: str, author: Author) -> str:
        """Undo what still holds of a batch, as a batch of its own; returns its id."""
        with self.store.changing() as connection:
            row = self.batch(batch)
            if row["kind"] == "revert":
                raise HireError("this batch is itself a revert", remedy="accept the facts again instead")
            if row["reverted"]:
                raise ConflictError("the batch has already been reverted", remedy="reload the history")
            held = connection.execute(
                "SELECT e.* FROM entries e JOIN judged j ON j.entry = e.entry AND j.relation = e.relation "
                "AND j.head = e.head AND j.tail = e.tail WHERE e.batch = ?",
                (batch,),
            ).fetchall()
            entries = [NewEntry(e["head"], e["tail"], "undo", e["confidence"], e["entry"]) for e in held]
            return self._batch(row["relation"], "revert", entries, author, reverts=batch)

    def _batch(
        self,
        relation: str,
        kind: str,
        entries: Sequence[NewEntry],
        author: Author,
        *,
        threshold: float | None = None,
        reverts: str | None = None,
    ) -> str:
        batch = new_id()
        with self.store.changing() as connection:
            connection.execute(
                "INSERT INTO batches (id, relation, kind, by, at, threshold, entries, reverts) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (batch, relation, kind, author.by, now(), threshold, len(entries), reverts),
            )
            self.log.append(relation, entries, author, batch)
            self.store.emit("batch", relation, self.batch(batch))
        return batch

    def batch(self, batch: str) -> dict[str, Any]:
        """A batch by its id."""
        with self.store.reading() as connection:
            row = connection.execute(f"{BATCH} WHERE b.id = ?", (batch,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no batch {batch!r}", remedy="list the batches of the relation")
        return dict(row)

    def batches(self, relation: str, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """At most so many batches of a relation, newest first."""
        with self.store.reading() as connection:
            rows = connection.execute(
                f"{BATCH} WHERE b.relation = ? AND (? IS NULL OR b.number < ?) ORDER BY b.number DESC LIMIT ?",
                (relation, before, before, limit),
            ).fetchall()
        return [dict(row) for row in rows]


CLOSING = ("accept", "no_tail")
BATCH = "SELECT b.*, r.id IS NOT NULL AS reverted FROM batches b LEFT JOIN batches r ON r.reverts = b.id"


def _held(connection: sqlite3.Connection, relation: str, head: str, tail: str) -> Row | None:
    found: Row | None = connection.execute(
        "SELECT * FROM judged WHERE relation = ? AND head = ? AND tail = ?", (relation, head, tail)
    ).fetchone()
    return found


def _stored_confidence(connection: sqlite3.Connection, relation: str, head: str, tail: str) -> float | None:
    row = connection.execute(
        "SELECT confidence FROM suggestions WHERE relation = ? AND head = ? AND tail = ?", (relation, head, tail)
    ).fetchone()
    return None if row is None else row["confidence"]


def type_of(types: Any, entity: int) -> str | None:
    """The most specific type of an entity: the one that the fewest entities have."""
    if types is None:
        return None
    members = types.of_entity(entity)
    if not len(members):
        return None
    offsets, _ = types.by_type
    sizes = offsets[members + 1] - offsets[members]
    found: str = types.names[int(members[sizes.argmin()])]
    return found
