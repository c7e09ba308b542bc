"""A state file with something in it, for the tests that damage it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hire.service.database import _rows, _tables
from hire.service.log import Author, Log, NewEntry
from hire.service.relations import Draft, RelationTable
from hire.service.store import Store


def taught(path: Path, relations: int = 12) -> None:
    """Write a state file with some relations and verdicts."""
    store = Store(path)
    table, log = RelationTable(store), Log(store)
    for number in range(relations):
        pairs = [(f"head {number} {i}", f"tail {i}") for i in range(20)]
        relation = table.add(Draft(f"relation {number}", pairs))
        log.append(relation.id, [NewEntry(f"head {number}", "tail", "reject", 0.25)], Author("ana", "one", "path"))
    store.close()


def everything_in(path: Path) -> dict[str, list[Any]]:
    """All rows of all tables of a state file."""
    store = Store(path)
    try:
        with store.reading() as connection:
            return {name: [tuple(row) for row in _rows(connection, name)] for name in _tables(connection)}
    finally:
        store.close()
