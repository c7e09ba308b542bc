"""Statistics of a dataset: counts, degrees, and how much context head and tail of a triplet share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import SPLITS, FewShotDataset
from hire.data.graph import MAX_NEIGHBORS, KnowledgeGraph
from hire.progress import track
from hire.util.arrays import IntArray, contains, distinct, expand_rows

PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class SharedContext:
    """What the contexts of head and tail have in common (the paper's appendix on shared context)."""

    triplets: int
    sharing_entities: int  # triplets whose head and tail have a neighbor in common
    shared_entities: int  # such neighbors, over all triplets
    sharing_tuples: int  # triplets whose head and tail have a (relation, entity) tuple in common
    shared_tuples: int


def shared_context(graph: KnowledgeGraph, pairs: IntArray, max_neighbors: int = MAX_NEIGHBORS) -> SharedContext:
    """Count what the contexts of heads and tails share, for pairs [n, 2]."""
    positions, owners = expand_rows(graph.offsets, np.arange(len(graph.entities)), max_neighbors)
    relation, entity = graph.neighbors[positions].astype(np.int64).T
    by_entity = _shared_elements(owners, entity, pairs, len(graph.entities))
    by_tuple = _shared_elements(owners, entity * (2 * len(graph.relations)) + relation, pairs, len(graph.entities))
    return SharedContext(
        len(pairs), int((by_entity > 0).sum()), int(by_entity.sum()), int((by_tuple > 0).sum()), int(by_tuple.sum())
    )


def _shared_elements(
    owners: NDArray[np.int64], elements: NDArray[np.int64], pairs: IntArray, owner_count: int
) -> NDArray[np.int64]:
    """For each pair of owners, how many distinct elements belong to both."""
    names = distinct(elements)
    elements = np.searchsorted(names, elements)
    keys = distinct(owners * len(names) + elements)
    offsets = np.searchsorted(keys, np.arange(owner_count + 1) * len(names))
    sizes = np.diff(offsets)
    counts = np.zeros(len(pairs), np.int64)
    if not len(keys):
        return counts
    with track("Comparing contexts", len(pairs)) as advance:
        for start in range(0, len(pairs), PAIRS_AT_ONCE):
            first, second = pairs[start : start + PAIRS_AT_ONCE].T
            swap = sizes[first] > sizes[second]  # the elements of the smaller side are looked up in the larger
            small, large = np.where(swap, second, first), np.where(swap, first, second)
            positions, rows = expand_rows(offsets, small)
            wanted = large[rows].astype(np.int64) * len(names) + keys[positions] % len(names)
            found = contains(keys, wanted)
            counts[start : start + len(small)] = np.bincount(rows[found], minlength=len(small))
            advance(len(small))
    return counts


def degree_histogram(degrees: IntArray) -> list[tuple[int, int, int]]:
    """Histogram of degrees in bins that double: (lowest, highest, entities); the first bin is degree 0."""
    classes = np.zeros(len(degrees), np.int64)
    connected = degrees > 0
    classes[connected] = np.floor(np.log2(degrees[connected])).astype(np.int64) + 1
    counts = np.bincount(classes)
    return [(0 if i == 0 else 2 ** (i - 1), 0 if i == 0 else 2**i - 1, int(n)) for i, n in enumerate(counts)]


def statistics(dataset: FewShotDataset) -> dict[str, Any]:
    """All statistics of a dataset, as plain data."""
    graph = dataset.graph
    train = [task.pairs for task in dataset.split("train")]
    pairs = np.concatenate([graph.triples[:, [0, 2]], *train])
    degrees = graph.degrees
    return {
        "name": dataset.name,
        "entities": len(graph.entities),
        "relations": {
            "all": len(graph.background_relations) + len(dataset.tasks),
            "background": len(graph.background_relations),
            "tasks": len(dataset.tasks),
        },
        "triples": {
            "background": len(graph.triples),
            **{split: sum(len(task.pairs) for task in dataset.split(split)) for split in SPLITS},
        },
        "entity_types": None if graph.types is None else len(graph.types.names),
        "labelled_entities": None if graph.labels is None else int((np.diff(graph.labels.offsets) > 0).sum()),
        "degrees": {
            "mean": float(degrees.mean()),
            "median": float(np.median(degrees)),
            "max": int(degrees.max()),
            "over_max_neighbors": int((degrees > MAX_NEIGHBORS).sum()),
            "histogram": degree_histogram(degrees),
        },
        "shared_context": vars(shared_context(graph, pairs)),
        "tasks": [
            {
                "relation": task.name,
                "split": task.split,
                "triples": len(task.pairs),
                "candidates": task.candidate_count,
            }
            for task in dataset.tasks
        ],
    }
