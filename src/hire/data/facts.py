"""Known facts as sorted keys: whether facts are known, and the known tails of a head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import IntArray, contains, distinct
from hire.util.keys import Keying


class Facts:
    """A set of known facts (head, relation, tail) as sorted keys, for looking up many at once.

    A key is that of a (head, relation) pair and a tail; pairs are numbered head * relations + relation. In a graph
    where such keys exceed 64 bits, `pairs` are the numbers of the pairs that have facts, and keys have their ranks.
    """

    def __init__(
        self,
        keys: NDArray[np.int64],
        entity_count: int,
        relation_count: int,
        pairs: NDArray[np.int64] | None = None,
    ) -> None:
        self.keys = keys
        self.entity_count = entity_count
        self.relation_count = relation_count
        self._keying = Keying(entity_count, pairs)

    @classmethod
    def of(cls, triples: IntArray, entity_count: int, relation_count: int) -> Facts:
        """The facts of an array of triples [n, 3], with or without repetitions."""
        keys, pairs = _keys(triples, entity_count, relation_count)
        return cls(distinct(keys), entity_count, relation_count, pairs)

    @property
    def pairs(self) -> NDArray[np.int64] | None:
        """The numbers of all pairs that have facts, sorted, if keys have their ranks; otherwise None."""
        return self._keying.rows

    def extended(self, triples: IntArray, entity_count: int) -> Facts:
        """The facts with more facts and entities added."""
        more = Facts.of(triples, entity_count, self.relation_count)
        if more.pairs is not None:
            return Facts.of(np.concatenate([self.triples(), triples]), entity_count, self.relation_count)
        pairs, tails = self._keying.split(self.keys)
        more.keys = distinct(np.concatenate([pairs * entity_count + tails, more.keys]))
        return more

    def triples(self) -> NDArray[np.int64]:
        """The facts as triples [n, 3], sorted."""
        pairs, tails = self._keying.split(self.keys)
        return np.column_stack([*np.divmod(pairs, self.relation_count), tails])

    def keys_of(self, heads: Any, relations: Any, tails: Any) -> Any:
        """One integer key per fact; facts with the same head and relation are adjacent.

        Negative for a head and a relation that have no facts, where pairs have ranks.
        """
        return self._keying.keys(np.asarray(heads, np.int64) * self.relation_count + relations, tails)

    def contain(self, heads: Any, relations: Any, tails: Any) -> NDArray[np.bool_]:
        """Whether facts are known; the arguments are broadcast."""
        return contains(self.keys, self.keys_of(heads, relations, tails))

    def of_relations(self, relations: IntArray) -> Facts:
        """The facts of some relations only: fewer keys are faster to search."""
        wanted = np.zeros(self.relation_count, bool)
        wanted[relations] = True
        kept = self.keys[wanted[self._keying.rows_of(self.keys) % self.relation_count]]
        found = Facts(kept, self.entity_count, self.relation_count, self.pairs)
        if self.pairs is None:
            return found
        return Facts.of(found.triples(), self.entity_count, self.relation_count)  # fewer pairs, too

    def saturated_heads(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The (head, relation) pairs for which every entity is a known tail."""
        count = self.entity_count
        if len(self.keys) < count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        firsts = self.keys[: len(self.keys) - count + 1]
        full = (self.keys[count - 1 :] - firsts == count - 1) & (firsts % count == 0)
        heads, relations = np.divmod(self._keying.rows_of(firsts[full]), self.relation_count)
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
    keys, _ = _keys(triples, entity_count, relation_count)
    order = np.argsort(keys, kind="stable")
    is_first = np.concatenate([[True], np.diff(keys[order]) != 0])[: len(keys)]
    firsts = np.empty(len(keys), np.int64)
    firsts[order] = order[is_first][np.cumsum(is_first) - 1]
    return firsts


def _keys(
    triples: IntArray, entity_count: int, relation_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """The key of each triple [n, 3], and the numbers of the pairs whose ranks keys have, if they do."""
    heads, relations, tails = triples.T
    pairs = np.asarray(heads, np.int64) * relation_count + relations
    keying, keys = Keying.of(pairs, tails, entity_count * relation_count, entity_count)
    return keys, keying.rows
