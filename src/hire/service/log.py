"""The log of verdicts, to which entries are only ever added, and what follows from it for each head."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hire.service.store import Row, Store, in_parts, marks, now

NO_TAIL = ""  # in place of a tail, for a verdict about the head alone


@dataclass(frozen=True)
class Author:
    """Who makes an entry, by which model's answers."""

    by: str
    client: str
    model: str


class NewEntry(NamedTuple):
    """An entry to be added to the log."""

    head: str
    tail: str
    verdict: str
    confidence: float | None = None
    undoes: int | None = None


class Holding(NamedTuple):
    """The verdict that holds for a pair."""

    verdict: str
    entry: int
    confidence: float | None
    checked: bool  # by a person, not just accepted with a batch


class Log:
    """The log of one state file."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, relation: str, entries: Sequence[NewEntry], author: Author, batch: str | None = None) -> list[int]:
        """Add entries, and bring what follows from them up to date; returns their numbers."""
        with self.store.changing() as connection:
            at = now()
            numbers = [
                connection.execute(
                    "INSERT INTO entries "
                    "(relation, head, tail, verdict, undoes, by, client, at, model, confidence, batch) "
                    f"VALUES ({marks(11)})",
                    (
                        relation,
                        entry.head,
                        entry.tail,
                        entry.verdict,
                        entry.undoes,
                        author.by,
                        author.client,
                        at,
                        author.model,
                        entry.confidence,
                        batch,
                    ),
                ).lastrowid
                or 0
                for entry in entries
            ]
            self.refresh(relation, dict.fromkeys(entry.head for entry in entries))
        return numbers

    def refresh(self, relation: str, heads: Iterable[str]) -> None:
        """Derive the state of some heads from the log and from their suggestions."""
        with self.store.changing() as connection:
            for some in in_parts(heads):
                _refresh(connection, relation, some)

    def entry(self, number: int) -> Row | None:
        """An entry by its number."""
        with self.store.reading() as connection:
            found: Row | None = connection.execute(f"{SELECT} WHERE e.entry = ?", (number,)).fetchone()
        return found

    def since(self, relation: str, head: str, version: int) -> list[Row]:
        """The entries about a head after a number that have not been undone, newest first."""
        with self.store.reading() as connection:
            return connection.execute(
                f"{SELECT} WHERE e.relation = ? AND e.head = ? AND e.entry > ? AND e.verdict != 'undo' "
                "AND u.entry IS NULL ORDER BY e.entry DESC",
                (relation, head, version),
            ).fetchall()

    def last(self, relation: str, heads: Sequence[str]) -> dict[str, Row]:
        """The last entry about each of some heads."""
        with self.store.reading() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE e.entry IN (SELECT max(entry) FROM entries WHERE relation = ? "
                f"AND head IN ({marks(len(heads))}) GROUP BY head)",
                (relation, *heads),
            ).fetchall()
        return {row["head"]: row for row in rows}

    def page(
        self, relation: str, filters: dict[str, str | None], limit: int, before: int | None = None
    ) -> tuple[list[Row], int]:
        """At most so many entries of a relation, newest first, before an entry; and the number of all of them."""
        given = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(["e.relation = ?", *(f"e.{name} = ?" for name in given)])
        values = [relation, *given.values()]
        with self.store.reading() as connection:
            (total,) = connection.execute(f"SELECT count(*) FROM entries e WHERE {where}", values).fetchone()
            rows = connection.execute(
                f"{SELECT} WHERE {where} AND (? IS NULL OR e.entry < ?) ORDER BY e.entry DESC LIMIT ?",
                (*values, before, before, limit),
            ).fetchall()
        return rows, int(total)


SELECT = "SELECT e.*, u.entry AS undone_by FROM entries e LEFT JOIN entries u ON u.undoes = e.entry"


def _refresh(connection: sqlite3.Connection, relation: str, heads: Sequence[str]) -> None:
    among, values = f"relation = ? AND head IN ({marks(len(heads))})", (relation, *heads)
    entries, suggestions = defaultdict(list), defaultdict(list)
    for row in connection.execute(
        "SELECT e.*, coalesce(b.kind, '') != 'accept' AS checked FROM entries e "
        "LEFT JOIN entries u ON u.undoes = e.entry LEFT JOIN batches b ON b.id = e.batch "
        f"WHERE e.relation = ? AND e.head IN ({marks(len(heads))}) AND e.verdict != 'undo' AND u.entry IS NULL "
        "ORDER BY e.entry",
        values,
    ):
        entries[row["head"]].append(row)
    for row in connection.execute(f"SELECT * FROM suggestions WHERE {among} ORDER BY head, place", values):
        suggestions[row["head"]].append(row)
    versions = dict(
        connection.execute(f"SELECT head, max(entry) FROM entries WHERE {among} GROUP BY head", values).fetchall()
    )
    holding = {head: holding_verdicts(entries[head]) for head in heads}
    connection.execute(f"DELETE FROM judged WHERE {among}", values)
    connection.executemany(
        "INSERT INTO judged (relation, head, tail, verdict, entry, confidence, checked) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (relation, head, tail, found.verdict, found.entry, found.confidence, found.checked)
            for head in heads
            for tail, found in holding[head].items()
        ],
    )
    connection.executemany(
        "UPDATE heads SET state = :state, tail = :tail, score = :score, confidence = :confidence, "
        "usefulness = :usefulness, audited = :audited, version = :version WHERE relation = :relation AND head = :head",
        [
            head_state(holding[head], suggestions[head])
            | {"relation": relation, "head": head, "version": versions.get(head, 0)}
            for head in heads
        ],
    )


def holding_verdicts(entries: Iterable[Row]) -> dict[str, Holding]:
    """The verdicts that hold for the tails of a head, given the entries about it that were not undone, in order.

    The last verdict on a pair holds. That no tail exists overrules accepted and unsure pairs, and the other way round.
    """
    found: dict[str, Holding] = {}
    for row in entries:
        tail, verdict = row["tail"], row["verdict"]
        if verdict == "no_tail":
            found = {other: held for other, held in found.items() if held.verdict == "reject"}
        elif verdict == "accept":
            found.pop(NO_TAIL, None)
        found[tail] = Holding(verdict, row["entry"], row["confidence"], bool(row["checked"]))
    return found


def head_state(holding: dict[str, Holding], suggestions: Sequence[Row]) -> dict[str, Any]:
    """The state of a head and the pair to judge: the best undecided one, or the one that was accepted."""
    accepted = [tail for tail, held in holding.items() if held.verdict == "accept"]
    unsure = [tail for tail, held in holding.items() if held.verdict == "unsure"]
    undecided = [row for row in suggestions if row["tail"] not in holding]
    shown: Row | None = suggestions[0] if suggestions else None
    state = "rejected" if holding else "empty"
    if NO_TAIL in holding:
        state = "no_tail"
    elif accepted:
        state = "accepted"
        to_audit = [tail for tail in accepted if not holding[tail].checked]
        shown = next((row for row in suggestions if row["tail"] in (to_audit or accepted)), None)
    elif unsure:
        state = "unsure"
        shown = next((row for row in suggestions if row["tail"] in unsure), None)
    elif undecided:
        state, shown = "open", undecided[0]
    tail = shown["tail"] if shown is not None else next(iter(accepted or unsure), None)
    confidence = None if shown is None else shown["confidence"]
    return {
        "state": state,
        "tail": tail,
        "score": None if shown is None else shown["score"],
        "confidence": confidence,
        "usefulness": 1.0 if confidence is None else abs(2 * confidence - 1),
        "audited": all(holding[each].checked for each in accepted),
    }
