"""Known facts as sorted keys: whether facts are known, and the known tails of a head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError
from hire.util.arrays import IntArray, contains, distinct


class Facts:
    """A set of known facts (head, relation, tail) as sorted keys, for looking up many at once."""

    def __init__(self, keys: NDArray[np.int64], entity_count: int, relation_count: int) -> None:
        self.keys = keys
        self.entity_count = entity_count
        self.relation_count = relation_count

    @classmethod
    def of(cls, triples: IntArray, entity_count: int, relation_count: int) -> Facts:
        """The facts of an array of triples [n, 3], with or without repetitions."""
        if entity_count**2 * relation_count >= 2**63:
            raise HireError(
                f"{entity_count:,} entities and {relation_count:,} relations are too many for 64-bit keys",
                remedy="remove relations or entities that are not needed",
            )
        facts = cls(np.zeros(0, np.int64), entity_count, relation_count)
        facts.keys = distinct(facts.keys_of(*triples.T))
        return facts

    def extended(self, triples: IntArray, entity_count: int) -> Facts:
        """The facts with more facts and entities added."""
        more = Facts.of(triples, entity_count, self.relation_count)
        pairs, tails = np.divmod(self.keys, self.entity_count)
        more.keys = distinct(np.concatenate([pairs * entity_count + tails, more.keys]))
        return more

    def keys_of(self, heads: Any, relations: Any, tails: Any) -> Any:
        """One integer key per fact; facts with the same head and relation are adjacent."""
        pairs = np.asarray(heads, np.int64) * self.relation_count + relations
        return pairs * self.entity_count + tails

    def contain(self, heads: Any, relations: Any, tails: Any) -> NDArray[np.bool_]:
        """Whether facts are known; the arguments are broadcast."""
        return contains(self.keys, self.keys_of(heads, relations, tails))

    def of_relations(self, relations: IntArray) -> Facts:
        """The facts of some relations only: fewer keys are faster to search."""
        wanted = np.zeros(self.relation_count, bool)
        wanted[relations] = True
        kept = self.keys[wanted[self.keys // self.entity_count % self.relation_count]]
        return Facts(kept, self.entity_count, self.relation_count)

    def saturated_heads(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The (head, relation) pairs for which every entity is a known tail."""
        count = self.entity_count
        if len(self.keys) < count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        firsts = self.keys[: len(self.keys) - count + 1]
        full = (self.keys[count - 1 :] - firsts == count - 1) & (firsts % count == 0)
        heads, relations = np.divmod(firsts[full] // count, self.relation_count)
        return heads, relations

    def all_tails(self, heads: Any, relations: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All known tails of some heads [n] and relations: the index of the head, and the tail, of each."""
        firsts = self.keys_of(heads, relations, 0)
        starts = np.searchsorted(self.keys, firsts)
        lengths = np.searchsorted(self.keys, firsts + self.entity_count) - starts
        rows = np.repeat(np.arange(len(firsts)), lengths)
        positions = np.arange(len(rows)) + (starts - np.cumsum(lengths) + lengths)[rows]
        return rows, np.asarray(self.keys[positions] - firsts[rows])

    def tails(self, head: int, relation: int) -> IntArray:
        """All known tails, sorted, of a head and a relation."""
        return self.all_tails([head], relation)[1]


def first_occurrences(triples: IntArray, entity_count: int, relation_count: int) -> NDArray[np.int64]:
    """For each triple [n, 3], the index of the first triple equal to it."""
    keys = Facts.of(triples[:0], entity_count, relation_count).keys_of(*triples.T)
    order = np.argsort(keys, kind="stable")
    is_first = np.concatenate([[True], np.diff(keys[order]) != 0])[: len(keys)]
    firsts = np.empty(len(keys), np.int64)
    firsts[order] = order[is_first][np.cumsum(is_first) - 1]
    return firsts
