"""Entities that are probably the same: what is known of one is evidence for the other, at the cost of no hop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.graph import KnowledgeGraph
from hire.util.arrays import IntArray, distinct, expand_rows, row_offsets

PREFIX = r"^.*[/#:]"  # of an id; what comes after it is a name
IS_NAME = r"[^\W\d_]{3}"  # three letters in a row: numbers and short codes are no names
SAME = ("sameAs", "exactMatch")  # how relations end that say so themselves


def same_name_groups(graph: KnowledgeGraph, most: int) -> NDArray[np.int64] | None:
    """A group for each entity, -1 for most; None if there are no groups.

    Entities of a group have the same label, or ids with the same last part, or are linked by owl:sameAs. Groups of more
    than `most` entities are left out: so many share a word, not an identity.
    """
    names = _names(graph)
    groups = np.asarray(names.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    unnamed = np.flatnonzero(groups < 0)
    groups[unnamed] = groups.max(initial=-1) + 1 + np.arange(len(unnamed))
    relations = [number for number, name in enumerate(graph.relations) if name.endswith(SAME)]
    if relations:
        _merge(groups, graph.triples[np.isin(graph.triples[:, 1], relations)][:, [0, 2]])
    sizes = np.bincount(groups)[groups]
    groups[(sizes == 1) | (sizes > most)] = -1
    return groups if (groups >= 0).any() else None


def _names(graph: KnowledgeGraph) -> Any:
    """The name of each entity in lower case, or null, as a pyarrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = graph.entities.arrow().cast(pa.large_string())
    names = pc.replace_substring_regex(ids, PREFIX, "")
    if graph.labels is not None:
        labels = graph.labels.arrow().cast(pa.large_string())
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


def facts_by_name(triples: IntArray, groups: NDArray[np.int64], relation_count: int) -> NDArray[np.int64]:
    """The facts [n, 3] that are true if entities of a group are the same, with head or tail replaced by another one.

    A relation r becomes r + relation_count there; the last relation, 2 * relation_count, links entities of a group.
    """
    triples = np.asarray(triples, np.int64)
    order = np.argsort(groups, kind="stable")
    order = order[groups[order] >= 0]
    offsets = row_offsets(groups[order], int(groups.max()) + 1)

    def others(entities: IntArray) -> tuple[IntArray, IntArray]:
        """For each entity the others of its group: positions of the former, and the latter."""
        grouped = np.flatnonzero(groups[entities] >= 0)
        positions, owners = expand_rows(offsets, groups[entities[grouped]])
        found, owners = order[positions], grouped[owners]
        apart = found != entities[owners]
        return owners[apart], found[apart]

    parts = []
    for side in (0, 2):
        owners, found = others(triples[:, side])
        part = triples[owners]
        part[:, 1] += relation_count
        part[:, side] = found
        parts.append(part[part[:, 0] != part[:, 2]])
    first = np.sort(order)
    owners, second = others(first)
    pairs = np.column_stack([first[owners], np.full(len(owners), 2 * relation_count), second])
    parts.append(pairs[pairs[:, 0] < pairs[:, 2]])
    found = np.concatenate(parts)
    count = len(groups)
    keys = distinct((found[:, 0] * (2 * relation_count + 1) + found[:, 1]) * count + found[:, 2])
    rest, tails = np.divmod(keys, count)
    return np.column_stack([*np.divmod(rest, 2 * relation_count + 1), tails])
