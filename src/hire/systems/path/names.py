"""Entities that are probably the same: what is known of one is evidence for the other, at the cost of no hop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.facts import Facts
from hire.data.graph import KnowledgeGraph
from hire.util.arrays import IntArray, expand_rows, row_offsets

PREFIX = r"^.*[/#:]"  # of an id; what comes after it is a name
IS_NAME = r"[^\W\d_]{3}"  # three letters in a row: numbers and short codes are no names
NAMES_AT_ONCE = 1 << 20  # bounds the memory for a large graph
SAME = ("sameAs", "exactMatch")  # how relations end that say so themselves


def same_name_groups(graph: KnowledgeGraph, most: int) -> NDArray[np.int64] | None:
    """A group for each entity, -1 for most; None if there are no groups.

    Entities of a group have the same label, or ids with the same last part, or are linked by owl:sameAs. Groups of more
    than `most` entities are left out: so many share a word, not an identity.
    """
    groups = np.full(len(graph.entities), -1, np.int64)
    named, numbers = _named(graph)
    groups[named] = numbers
    relations = [number for number, name in enumerate(graph.relations) if name.endswith(SAME)]
    if relations:
        unnamed = np.flatnonzero(groups < 0)
        groups[unnamed] = groups.max(initial=-1) + 1 + np.arange(len(unnamed))
        _merge(groups, graph.triples[np.isin(graph.triples[:, 1], relations)][:, [0, 2]])
        named = np.arange(len(groups))
    sizes = np.bincount(groups[named])[groups[named]]
    groups[named[(sizes == 1) | (sizes > most)]] = -1
    return groups if (groups >= 0).any() else None


def _named(graph: KnowledgeGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The entities that have a name, and a number for each, which is the same for those of the same name."""
    import pyarrow as pa

    found, parts = [np.zeros(0, np.int64)], []
    for start in range(0, len(graph.entities), NAMES_AT_ONCE):
        names = _names(graph, start, start + NAMES_AT_ONCE)
        found.append(start + np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False)))
        parts.append(names.drop_null())
    encoded = pa.chunked_array(parts, pa.large_string()).dictionary_encode()
    numbers = [np.zeros(0, np.int64), *(chunk.indices.to_numpy() for chunk in encoded.chunks)]
    return np.concatenate(found), np.concatenate(numbers).astype(np.int64)


def _names(graph: KnowledgeGraph, start: int, stop: int) -> Any:
    """The names of some entities in lower case, or null, as a pyarrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = graph.entities.arrow()[start:stop].cast(pa.large_string())
    names = pc.replace_substring_regex(ids, PREFIX, "")
    if graph.labels is not None:
        labels = graph.labels.arrow()[start:stop].cast(pa.large_string())
        names = pc.if_else(pc.equal(labels, ""), names, labels)
    names = pc.utf8_lower(names)
    return pc.if_else(pc.match_substring_regex(names, IS_NAME), names, pa.scalar(None, names.type))


def _merge(groups: NDArray[np.int64], pairs: IntArray) -> None:
    """Give both ends of each pair the same group."""
    while True:
        both = groups[pairs]
        lower, upper = both.min(axis=1), both.max(axis=1)
        if (lower == upper).all():
            return
        into = np.arange(groups.max() + 1)
        np.minimum.at(into, upper, lower)
        groups[:] = into[groups]


def same_names_of(graph: KnowledgeGraph, facts: IntArray, most: int) -> tuple[SameNames | None, NDArray[np.int64]]:
    """The groups of a graph, if there are any, and what its facts and some others [n, 3] say by them; see `twins`."""
    groups = same_name_groups(graph, most) if most > 1 else None
    if groups is None:
        return None, np.zeros((0, 3), np.int64)
    found = SameNames(groups, len(graph.relations))
    starts = range(0, len(graph.triples), NAMES_AT_ONCE)
    touched = [found.touching(graph.triples[start : start + NAMES_AT_ONCE]) for start in starts]
    return found, found.twins(np.concatenate([*touched, found.touching(np.asarray(facts))]))


class SameNames:
    """Groups of entities that have the same name, and the facts that hold if those of a group are the same."""

    def __init__(self, groups: NDArray[np.int64], relation_count: int) -> None:
        self.groups = groups  # [entities]: -1 for most
        self.relation_count = relation_count
        grouped = np.flatnonzero(groups >= 0)
        self._members = grouped[np.argsort(groups[grouped], kind="stable")]
        self._offsets = row_offsets(groups[self._members], int(groups.max()) + 1)
        self.known = self._set(np.zeros((0, 3), np.int64))  # known facts about such entities

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The groups and the known facts, as named arrays."""
        found = {
            "groups": self.groups,
            "group_members": self._members,
            "group_offsets": self._offsets,
            "known": self.known.keys,
        }
        return found if self.known.pairs is None else found | {"known_pairs": self.known.pairs}

    @classmethod
    def stored(cls, arrays: Mapping[str, NDArray[Any]], relation_count: int) -> SameNames:
        """The groups from their arrays."""
        found = cls.__new__(cls)
        found.relation_count = relation_count
        found.groups = arrays["groups"]
        found._members, found._offsets = arrays["group_members"], arrays["group_offsets"]
        found.known = Facts(arrays["known"], len(found.groups), 2 * relation_count + 1, arrays.get("known_pairs"))
        return found

    def touching(self, triples: IntArray) -> NDArray[np.int64]:
        """Those of some facts [n, 3] whose head or tail is in a group."""
        grouped = (self.groups[triples[:, 0]] >= 0) | (self.groups[triples[:, 2]] >= 0)
        return np.asarray(triples[grouped], np.int64)

    def twins(self, triples: IntArray) -> NDArray[np.int64]:
        """What known facts [n, 3] say of entities of the same name, and who has the same name, sorted.

        Head or tail of a fact are replaced by another one of the group. A relation r becomes r + relation_count there;
        the last relation, 2 * relation_count, links entities of a group.
        """
        triples = self.touching(triples)
        self.known = self._set(triples)
        found = self._twins_of(triples)
        first = np.sort(self._members)
        owners, second = self._others(first)
        pairs = np.column_stack([first[owners], np.full(len(owners), 2 * self.relation_count), second])
        return self._set(np.concatenate([found, pairs[pairs[:, 0] < pairs[:, 2]]])).triples()

    def gone_with(self, facts: IntArray) -> NDArray[np.int64]:
        """All facts [n, 3] that are gone if some are, twins among both.

        A twin is gone if and only if all known facts are that it stands for.
        """
        facts = np.asarray(facts, np.int64)
        sort = np.minimum(facts[:, 1] // self.relation_count, 2)
        _, behind = self._behind(facts[sort == 1])
        gone = self._set(np.concatenate([facts[sort == 0], behind]))
        known = gone.triples()
        twins = self._set(self._twins_of(known)).triples()
        owners, reasons = self._behind(twins)
        others = ~gone.contain(*reasons.T)
        stays = np.bincount(owners[others], minlength=len(twins)) > 0
        return np.concatenate([known, twins[~stays], facts[sort == 2]])

    def _twins_of(self, triples: NDArray[np.int64]) -> NDArray[np.int64]:
        """What facts say of entities of the same name; no entity is linked to itself by that."""
        _, found = self._replaced(triples)
        found[:, 1] += self.relation_count
        return np.asarray(found[found[:, 0] != found[:, 2]])

    def _behind(self, twins: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The known facts that twins stand for: the position of the twin, and the fact."""
        facts = twins.copy()
        facts[:, 1] -= self.relation_count
        owners, found = self._replaced(facts)
        known = self.known.contain(*found.T)
        return owners[known], found[known]

    def _replaced(self, triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Facts with head or tail replaced by another entity of its group: positions of the facts, and the others."""
        rows, parts = [], []
        for side in (0, 2):
            owners, found = self._others(triples[:, side])
            part = triples[owners]
            part[:, side] = found
            rows.append(owners)
            parts.append(part)
        return np.concatenate(rows), np.concatenate(parts)

    def _others(self, entities: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each entity the others of its group: positions of the former, and the latter."""
        grouped = np.flatnonzero(self.groups[entities] >= 0)
        positions, owners = expand_rows(self._offsets, self.groups[entities[grouped]])
        found, owners = self._members[positions], grouped[owners]
        apart = found != entities[owners]
        return owners[apart], found[apart]

    def _set(self, triples: NDArray[np.int64]) -> Facts:
        """Facts of the graph's relations, of their twins, or of "same name"."""
        return Facts.of(triples, len(self.groups), 2 * self.relation_count + 1)
