"""Which entities may stand where some examples do: those of like types, and of too many the most alike."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.graph import KnowledgeGraph
from hire.util.arrays import IntArray, distinct, expand_rows

LIKE = 0.5  # cosine of the profiles of two types from which on they are alike
TIE = 1e-9  # far below any likeness


class _Profiles(NamedTuple):
    """How many entities of each type have each kind of edge, as entries of rows of length one."""

    types: IntArray  # [entries]
    kinds: IntArray  # [entries]
    values: NDArray[np.float64]  # [entries]: log(1 + how many), times how rare the kind is


class Likeness:
    """Entities of a graph that are like others, by their types and by the kinds of edges that they have."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph

    def entities(self, examples: IntArray, most: int, hidden: int | None = None) -> IntArray:
        """At most so many entities, sorted, that have a type like one of the examples', and the examples.

        Where the graph knows no types, all entities have. Of too many, the most alike; see `most_alike`.
        """
        everything = np.arange(len(self.graph.entities))
        if self.graph.types is None:
            return self.most_alike(everything, examples, most, hidden)
        types = self.types(self.graph.types.of_entities(examples))
        alike = distinct(np.concatenate([self.graph.types.entities_with(types).astype(np.int64), examples]))
        return self.most_alike(alike, examples, most, hidden)

    def types(self, examples: IntArray) -> IntArray:
        """The types, sorted, whose entities have the kinds of edges that those of some types have, and these."""
        profiles = self._profiles
        names = [] if self.graph.types is None else self.graph.types.names
        alike = np.zeros(len(names), bool)
        alike[examples] = True
        for example in examples:
            own = profiles.types == example
            weights = np.zeros(2 * len(self.graph.relations))
            weights[profiles.kinds[own]] = profiles.values[own]
            products = profiles.values * weights[profiles.kinds]
            alike |= np.bincount(profiles.types, products, minlength=len(names)) >= LIKE
        return np.flatnonzero(alike)

    @cached_property
    def _profiles(self) -> _Profiles:
        graph, types = self.graph, self.graph.types
        if types is None:
            return _Profiles(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        kind_count = 2 * len(graph.relations)
        owners = np.repeat(np.arange(len(graph.entities)), graph.degrees)
        sources, kinds = np.divmod(distinct(owners * kind_count + graph.neighbors[:, 0]), kind_count)
        rarity = np.log((len(graph.entities) + 1) / (np.bincount(kinds, minlength=kind_count) + 1))
        members, entries = expand_rows(types.offsets, sources)
        keys, counts = np.unique(
            types.members[members].astype(np.int64) * kind_count + kinds[entries], return_counts=True
        )
        of_types, of_kinds = np.divmod(keys, kind_count)
        values = np.log1p(counts) * rarity[of_kinds]
        norms = np.sqrt(np.bincount(of_types, values**2, minlength=len(types.names)))
        return _Profiles(of_types, of_kinds, values / np.maximum(norms[of_types], 1e-12))

    def most_alike(self, members: IntArray, examples: IntArray, most: int, hidden: int | None = None) -> IntArray:
        """Of some entities, sorted, the so many that are most like some examples, and the examples among them; sorted.

        An entity is like the examples as far as its edges are of kinds that many of the examples, but few others have.
        No edge of a hidden relation counts.
        """
        graph = self.graph
        if len(members) <= most:
            return members
        shares = np.zeros(2 * len(graph.relations))
        for example in examples:
            shares[np.unique(graph.neighbors_of(int(example), None)[:, 0])] += 1 / len(examples)
        weights = shares * np.log(len(graph.neighbors) / np.maximum(graph.kind_sizes, 1))
        if hidden is not None:
            weights[[hidden, hidden + len(graph.relations)]] = 0
        sums = np.concatenate([[0], np.cumsum(weights[graph.neighbors[:, 0]])])[graph.offsets]
        degrees = graph.degrees[members] + 1
        likeness = (sums[members + 1] - sums[members]) / degrees - TIE / degrees  # of equals, the better connected
        places = np.searchsorted(members, examples)
        present = members[np.minimum(places, len(members) - 1)] == examples
        likeness[places[present]] = np.inf
        return np.sort(members[np.argpartition(-likeness, most)[:most]])
