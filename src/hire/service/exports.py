"""Accepted facts and the log of a relation, in every format that is exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from hire.data.iri import PREFIX, check_prefix
from hire.inference.export import (
    Fact,
    Provenance,
    predicate_name,
    sparql_updates,
    to_ntriples,
    to_quickstatements,
    to_tsv,
    to_turtle,
)
from hire.service.log import SELECT
from hire.service.relations import StoredRelation
from hire.service.store import Store

LOGGED = ("entry", "head", "tail", "verdict", "undoes", "by", "at", "model", "confidence", "batch")


class Kind(NamedTuple):
    """A format: what it is called on the web, and the suffix of its files."""

    media_type: str
    suffix: str


KINDS = {
    "tsv": Kind("text/tab-separated-values", "tsv"),
    "ntriples": Kind("application/n-triples", "nt"),
    "turtle": Kind("text/turtle", "ttl"),
    "quickstatements": Kind("text/plain", "qs.tsv"),
    "sparql": Kind("application/sparql-update", "ru"),
    "log": Kind("application/x-ndjson", "ndjson"),
}


class Export:
    """What a relation has to export."""

    def __init__(self, store: Store, relation: StoredRelation, prefix: str = PREFIX, batch: str | None = None) -> None:
        check_prefix(prefix)
        self.store = store
        self.relation = relation
        self.prefix = prefix
        self.batch = batch

    def accepted(self, limit: int | None = None) -> list[tuple[tuple[str, str], Provenance]]:
        """The accepted pairs in the order they were accepted, with where they come from."""
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT e.* FROM judged j JOIN entries e ON e.entry = j.entry "
                "WHERE j.relation = ? AND j.verdict = 'accept' AND (? IS NULL OR e.batch = ?) ORDER BY e.entry LIMIT ?",
                (self.relation.id, self.batch, self.batch, -1 if limit is None else limit),
            ).fetchall()
        return [
            ((row["head"], row["tail"]), Provenance(row["by"], row["at"], row["model"], row["confidence"]))
            for row in rows
        ]

    def count(self) -> int:
        """The number of accepted pairs."""
        with self.store.reading() as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM judged j JOIN entries e ON e.entry = j.entry "
                "WHERE j.relation = ? AND j.verdict = 'accept' AND (? IS NULL OR e.batch = ?)",
                (self.relation.id, self.batch, self.batch),
            ).fetchone()
        return int(count)

    def facts(self, limit: int | None = None) -> list[Fact]:
        """The accepted facts, with the predicate of the relation."""
        predicate = predicate_name(self.relation.predicate, self.relation.name)
        return [(head, predicate, tail) for (head, tail), _ in self.accepted(limit)]

    def parts(self, form: str, limit: int | None = None) -> Iterator[str]:
        """A file of a format, part by part."""
        if form == "log":
            yield from self._log(limit)
        elif form == "tsv":
            yield to_tsv((head, self.relation.name, tail) for (head, tail), _ in self.accepted(limit))
        elif form == "turtle":
            predicate = predicate_name(self.relation.predicate, self.relation.name)
            facts = (((head, predicate, tail), how) for (head, tail), how in self.accepted(limit))
            yield from to_turtle(facts, self.prefix)
        elif form == "quickstatements":
            yield to_quickstatements(self.facts(limit), self.relation.predicate)
        elif form == "sparql":
            yield from sparql_updates(self.facts(limit), None, self.prefix)
        else:
            yield to_ntriples(self.facts(limit), self.prefix)

    def _log(self, limit: int | None) -> Iterator[str]:
        """The whole log, oldest entry first, as NDJSON."""
        with self.store.reading() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE e.relation = ? AND (? IS NULL OR e.batch = ?) ORDER BY e.entry LIMIT ?",
                (self.relation.id, self.batch, self.batch, -1 if limit is None else limit),
            ).fetchall()
        for row in rows:
            entry = {name: row[name] for name in LOGGED} | {"tail": row["tail"] or None, "relation": self.relation.name}
            yield json.dumps(entry, ensure_ascii=False) + "\n"

    def file_name(self, form: str) -> str:
        """A name for the file that any system takes."""
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.relation.name).strip("_") or "facts"
        return f"{name[:80]}.{KINDS[form].suffix}"
