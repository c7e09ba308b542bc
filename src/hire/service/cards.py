"""The heads of a relation as cards: in the order of a queue, filtered as a table, counted by facets."""

from __future__ import annotations

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hire.errors import HireError
from hire.service.log import Log
from hire.service.relations import NotFoundError, StoredRelation
from hire.service.review_schemas import Bin, Card, Cards, Count, Facets
from hire.service.schemas import Answer
from hire.service.store import Row, Store, in_parts, marks
from hire.service.teaching import Teaching
from hire.service.views import entry_of

BINS = 10
MAX_FACET = 50  # values of a facet
ORDERS = {  # what heads are ordered by, and then by their number
    "useful": "usefulness",
    "confident": "-coalesce(confidence, score, -1e9)",
    "head": "head",
    "audit": "shuffle",
}
AUDITED = "(state = 'open' OR (state = 'accepted' AND NOT audited))"


@dataclass(frozen=True)
class Filter:
    """Which heads to show."""

    states: tuple[str, ...] = ("open",)
    types: tuple[str, ...] = ()
    min_confidence: float | None = None
    max_confidence: float | None = None
    tail: str | None = None
    text: str | None = None  # in the id of the head
    audit: bool = False

    def where(self, relation: str) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        parts, values = ["relation = ?"], [relation]
        if self.audit:
            parts.append(AUDITED)
        elif self.states:
            parts.append(f"state IN ({marks(len(self.states))})")
            values += self.states
        if self.types:
            parts.append(f"coalesce(type, '') IN ({marks(len(self.types))})")
            values += self.types
        for condition, value in (
            ("confidence >= ?", self.min_confidence),
            ("confidence < ?", self.max_confidence),
            ("tail = ?", self.tail),
            ("instr(lower(head), lower(?)) > 0", self.text),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)  # type: ignore[arg-type]
        return " AND ".join(parts), values

    def to_audit(self, head: Row, suggestions: Sequence[Row]) -> Row:
        """A random pair of a head among those that a batch has accepted, or would accept."""
        unchecked = [row for row in suggestions if not row["checked"] and row["verdict"] in (None, "accept")]
        if head["state"] == "accepted":
            unchecked = [row for row in unchecked if row["verdict"] == "accept"]
        within = [row for row in unchecked if (row["confidence"] or 0.0) >= (self.min_confidence or 0.0)]
        return within[int(head["shuffle"] * 1e9) % len(within)] if within else head


class CardTable:
    """The cards of relations."""

    def __init__(self, store: Store, teaching: Teaching) -> None:
        self.store = store
        self.teaching = teaching
        self.log = Log(store)

    def page(self, relation: StoredRelation, chosen: Filter, order: str, limit: int, cursor: str | None) -> Cards:
        """A page of cards in an order."""
        chosen = replace(chosen, audit=order == "audit")
        where, values = chosen.where(relation.id)
        key = ORDERS[order]
        after, also = "", list[Any]()
        if cursor is not None:
            after, also = f" AND ({key}, number) > (?, ?)", decoded(cursor, 2)
        with self.store.reading() as connection:
            (total,) = connection.execute(f"SELECT count(*) FROM heads WHERE {where}", values).fetchone()
            rows = connection.execute(
                f"SELECT *, {key} AS key FROM heads WHERE {where}{after} ORDER BY {key}, number LIMIT ?",
                (*values, *also, limit + 1),
            ).fetchall()
        more = encoded([rows[limit - 1]["key"], rows[limit - 1]["number"]]) if len(rows) > limit else None
        return Cards(cards=self._cards(relation, rows[:limit], chosen), next=more, total=total)

    def card(self, relation: StoredRelation, head: str) -> Card:
        """The card of a head."""
        with self.store.reading() as connection:
            row = connection.execute(
                "SELECT * FROM heads WHERE relation = ? AND head = ?", (relation.id, head)
            ).fetchone()
        if row is None:
            raise NotFoundError(f"{head!r} is not among the relation's heads", remedy="complete the relation first")
        return self._cards(relation, [row], Filter())[0]

    def _cards(self, relation: StoredRelation, rows: Sequence[Row], chosen: Filter) -> list[Card]:
        suggestions: dict[str, list[Row]] = defaultdict(list)
        last: dict[str, Row] = {}
        for heads in in_parts(row["head"] for row in rows):
            last |= self.log.last(relation.id, heads)
            with self.store.reading() as connection:
                for row in connection.execute(
                    "SELECT s.*, j.verdict, j.checked FROM suggestions s LEFT JOIN judged j "
                    "ON j.relation = s.relation AND j.head = s.head AND j.tail = s.tail "
                    f"WHERE s.relation = ? AND s.head IN ({marks(len(heads))}) ORDER BY s.head, s.place",
                    (relation.id, *heads),
                ):
                    suggestions[row["head"]].append(row)
        return [
            self._card(
                relation,
                row,
                chosen.to_audit(row, suggestions[row["head"]]) if chosen.audit else row,
                suggestions[row["head"]],
                last.get(row["head"]),
            )
            for row in rows
        ]

    def _card(
        self, relation: StoredRelation, row: Row, shown: Row, suggestions: Sequence[Row], last: Row | None
    ) -> Card:
        def ref(name: str) -> Any:
            return self.teaching.ref(name, relation.graph)

        known = self.teaching.known_tails(relation, row["head"])
        return Card(
            head=ref(row["head"]),
            type=row["type"],
            state=row["state"],
            version=row["version"],
            tail=None if shown["tail"] is None else ref(shown["tail"]),
            score=shown["score"],
            confidence=shown["confidence"],
            suggestions=[
                Answer(
                    tail=ref(each["tail"]),
                    score=each["score"],
                    confidence=each["confidence"],
                    known=each["tail"] in known,
                    verdict=each["verdict"],
                )
                for each in suggestions
            ],
            known=[ref(name) for name in known],
            last=None if last is None else entry_of(self.teaching, relation, last),
        )

    def facets(self, relation: StoredRelation, chosen: Filter) -> Facets:
        """How many heads have each type, confidence and state; a facet ignores its own filter."""
        by_type = self._counts(relation, replace(chosen, types=()), "coalesce(type, '')")
        by_state = self._counts(relation, replace(chosen, states=()), "state")
        anything = replace(chosen, min_confidence=None, max_confidence=None)
        bins = self._counts(relation, anything, f"min({BINS - 1}, cast(confidence * {BINS} AS INTEGER))")
        return Facets(
            total=sum(count for _, count in self._counts(relation, chosen, "1")),
            types=[Count(value=str(value), count=count) for value, count in by_type[:MAX_FACET]],
            states=[Count(value=str(value), count=count) for value, count in by_state],
            confidence=[
                Bin(low=place / BINS, high=(place + 1) / BINS, count=count)
                for place, count in sorted((value, count) for value, count in bins if value is not None)
            ],
        )

    def _counts(self, relation: StoredRelation, chosen: Filter, value: str) -> list[tuple[Any, int]]:
        where, values = chosen.where(relation.id)
        with self.store.reading() as connection:
            rows = connection.execute(
                f"SELECT {value} AS value, count(*) AS count FROM heads WHERE {where} GROUP BY 1 ORDER BY 2 DESC, 1",
                values,
            ).fetchall()
        return [(row["value"], row["count"]) for row in rows]


def encoded(values: Sequence[Any]) -> str:
    """A cursor: where the next page begins."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def decoded(cursor: str, count: int) -> list[Any]:
    """The values in a cursor."""
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise HireError("the cursor is not one of this service", remedy="start again without it") from error
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(isinstance(v, str | int | float) for v in values)
    ):
        raise HireError("the cursor is not one of this service", remedy="start again without it")
    return values


def number_in(cursor: str | None) -> int | None:
    """The single number in a cursor, if there is one."""
    if cursor is None:
        return None
    (number,) = decoded(cursor, 1)
    if not isinstance(number, int) or abs(number) > 1 << 62:
        raise HireError("the cursor is not one of this service", remedy="start again without it")
    return number
