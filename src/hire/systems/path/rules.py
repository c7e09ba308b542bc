"""The paths of one, two and three hops that link references, and the rules that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hire.systems.path.graph import EvidenceGraph
from hire.util.arrays import FloatArray, IntArray, positions_in

PATH_FEATURES = (  # of an edge type and a pair
    "links",  # it links the head to the tail
    "link confidence",  # the same, divided by its fan-out at the head
    "at heads",  # it leads from the head to a node other than the tail
    "at tails",  # it leads to the tail from a node other than the head
    "first of two",  # it is the first hop of a two-hop path
    "first of two, confidence",  # the share of its edges that lead on to the tail
    "last of two",
    "last of two, confidence",
    "first of three",
    "middle of three",
    "last of three",
)


@dataclass(frozen=True)
class PairPaths:
    """The paths between a head and a tail, as features of each edge type."""

    features: FloatArray  # [PATH_FEATURES, edge types]
    linked: NDArray[np.bool_]  # [3]: whether there are paths of one, two and three hops
    two_hops: NDArray[np.int64]  # [paths]: the distinct two-hop paths, first edge type * edge types + second
    ends: NDArray[np.float64]  # [paths]: the number of ends that each has from the head


def paths_between(graph: EvidenceGraph, head: int, tail: int, hidden: int | None = None) -> PairPaths:
    """Collect all paths between a head and a tail that pass neither of them in between."""
    count = graph.edge_type_count
    out, back = (graph.leaving(np.array([entity]), hidden).ids for entity in (head, tail))
    first, middles = graph.edge_types[out], graph.targets[out]
    last, sources = graph.inverse(graph.edge_types[back]), graph.targets[back]
    # Not all edges of a hub are walked, so a link may be seen from one side only.
    links = _present(np.concatenate([first[middles == tail], last[sources == head]]), count)
    fan_outs = np.maximum(graph.counts(np.full(count, head), np.arange(count)), 1)
    first, middles = first[middles != tail], middles[middles != tail]
    last, sources = last[sources != head], sources[sources != head]
    meets, met = np.isin(middles, sources), np.isin(sources, middles)
    near = np.unique(middles)
    near = near[graph.passable(near, hidden)]
    inner = graph.leaving(near, hidden)
    far = graph.targets[inner.ids]
    fits = np.isin(far, sources) & (far != head)
    rows = [links, links / fan_outs, _present(first, count), _present(last, count)]
    for edge_types, chosen in ((first, meets), (last, met)):
        hits = np.bincount(edge_types[chosen], minlength=count)
        rows += [hits > 0, hits / np.maximum(np.bincount(edge_types, minlength=count), 1)]
    rows.append(_present(first[np.isin(middles, near[inner.owners[fits]])], count))
    rows.append(_present(graph.edge_types[inner.ids[fits]], count))
    rows.append(_present(last[np.isin(sources, far[fits])], count))
    linked = np.array([links.any(), meets.any(), fits.any()])
    return PairPaths(
        np.stack(rows).astype(np.float32), linked, *_two_hops(graph, first, middles, last, sources, hidden)
    )


def _two_hops(
    graph: EvidenceGraph, first: IntArray, middles: IntArray, last: IntArray, sources: IntArray, hidden: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The distinct two-hop paths, joined from first and last hops, and the number of ends each has from the head."""
    order = np.argsort(sources, kind="stable")
    starts, stops = (np.searchsorted(sources[order], middles, side=side) for side in ("left", "right"))
    lengths = stops - starts
    owners = np.repeat(np.arange(len(middles)), lengths)
    positions = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
    keys = np.unique(first[owners].astype(np.int64) * graph.edge_type_count + last[order][positions])
    if not len(keys):
        return keys, np.zeros(0)
    entries = graph.profiles(middles, hidden)
    reached = first[entries.owners].astype(np.int64) * graph.edge_type_count + graph.profile_edge_types[entries.ids]
    found = positions_in(keys, reached)
    same = found >= 0
    ends = np.bincount(found[same], graph.entry_counts(entries.ids[same]), minlength=len(keys))
    return keys, ends.astype(np.float64)


@dataclass(frozen=True)
class Rules:
    """Two-hop paths that link references."""

    keys: NDArray[np.int64]  # [rules]: first edge type * edge types + second, sorted
    support: FloatArray  # [rules]: the share of references that the path links
    confidence: FloatArray  # [rules]: the same, divided by the number of ends that the path has from their heads

    @classmethod
    def of(cls, references: list[PairPaths]) -> Rules:
        """The rules that follow from the paths of some references."""
        keys, positions = np.unique(np.concatenate([paths.two_hops for paths in references]), return_inverse=True)
        ends = np.concatenate([paths.ends for paths in references])
        support = np.bincount(positions, minlength=len(keys)) / len(references)
        confidence = np.bincount(positions, 1 / np.maximum(ends, 1), minlength=len(keys)) / len(references)
        return cls(keys, support.astype(np.float32), confidence.astype(np.float32))


def _present(edge_types: IntArray, count: int) -> NDArray[np.bool_]:
    """Which of `count` edge types occur, [count]."""
    return np.bincount(edge_types, minlength=count) > 0
