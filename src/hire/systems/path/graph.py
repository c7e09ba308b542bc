"""The graph as evidence: known facts as edges in both directions, made to be walked from many entities at once.

A kind of edge is a relation, or its inverse: relation r has the kinds r and r + relations. While a relation is a task
it is hidden: none of its edges is walked or counted, so that a task cannot see its own facts.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.data.facts import Facts
from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.systems.path.settings import EvidenceSettings
from hire.util.arrays import FloatArray, IntArray, expand_rows, positions_in, row_offsets

PAIRS_AT_ONCE = 1 << 22  # bounds the memory of counting what occurs together


class Edges(NamedTuple):
    """Edges that leave some entities."""

    owners: NDArray[np.int64]  # [n]: the index of the entity that each leaves
    numbers: NDArray[np.int64]  # [n]: of the edge


class EvidenceGraph:
    """Facts as edges, compressed by entity, with what is counted of them."""

    def __init__(
        self,
        triples: IntArray,
        entity_count: int,
        relation_count: int,
        types: Types | None = None,
        settings: EvidenceSettings | None = None,
    ) -> None:
        self.settings = settings or EvidenceSettings()
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.kind_count = 2 * relation_count
        self.types = types
        self.task_facts: IntArray = np.zeros((0, 3), np.int32)  # what is known besides the background graph
        keys = Facts.of(triples, entity_count, relation_count).keys
        rest, tails = np.divmod(keys, entity_count)
        heads, relations = np.divmod(rest, relation_count)
        sources = np.concatenate([heads, tails])
        pairs = sources * self.kind_count + np.concatenate([relations, relations + relation_count])
        order = np.argsort(pairs, kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        inverse = position[(order + len(keys)) % max(1, len(order))]  # of each edge, the number of its inverse
        sources, pairs = sources[order], pairs[order]
        targets = np.concatenate([tails, heads])[order]
        self._compress_profiles(pairs)
        fans = np.repeat(self.profile_counts, self.profile_counts).astype(np.float32)
        limit = self.settings.max_fan_out
        kept = (fans <= limit) | (_noise(pairs, targets) < limit / np.maximum(fans, 1))
        starts = np.concatenate([[0], np.cumsum(kept)])
        ends = np.concatenate([[0], np.cumsum(self.profile_counts)])
        self._profile_starts = starts[ends]  # [profile + 1]: where the edges of each profile's entry start
        self.offsets = self._profile_starts[self.profile_offsets]  # [entities + 1]
        self.kinds = (pairs[kept] % self.kind_count).astype(np.int32)  # [edges]
        self.targets = targets[kept].astype(np.int32)  # [edges]
        self.log_fans = np.log(np.stack([fans[kept], fans[inverse[kept]]], axis=1))  # [edges, 2]: of source, of target

    @classmethod
    def of(cls, dataset: FewShotDataset, settings: EvidenceSettings | None = None) -> EvidenceGraph:
        """The background graph of a dataset, with the facts of its train tasks unless they are not wanted."""
        settings = settings or EvidenceSettings()
        tasks = dataset.split("train") if settings.train_facts else []
        facts = [np.insert(task.pairs, 1, task.relation, axis=1) for task in tasks]
        return cls._of(dataset.graph, np.concatenate([np.zeros((0, 3), np.int32), *facts]), settings)

    @classmethod
    def _of(cls, graph: KnowledgeGraph, task_facts: IntArray, settings: EvidenceSettings) -> EvidenceGraph:
        triples = np.concatenate([graph.triples, task_facts])
        found = cls(triples, len(graph.entities), len(graph.relations), graph.types, settings)
        found.task_facts = task_facts
        return found

    def extended(self, graph: KnowledgeGraph) -> EvidenceGraph:
        """The same with a larger background graph."""
        return self._of(graph, self.task_facts, self.settings)

    def _compress_profiles(self, pairs: NDArray[np.int64]) -> None:
        """Of each entity, the kinds of edges that leave it and how many there are of each."""
        firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
        self.profile_keys = pairs[firsts]  # [profile]: entity * kinds + kind, sorted
        self.profile_counts = np.diff(firsts, append=len(pairs))
        self.profile_kinds = (self.profile_keys % self.kind_count).astype(np.int32)
        self.profile_offsets = row_offsets(self.profile_keys // self.kind_count, self.entity_count)

    def inverse(self, kinds: IntArray) -> IntArray:
        """The kinds of edges that lead back."""
        return (kinds + self.relation_count) % self.kind_count

    def leaving(self, entities: IntArray, hidden: int | None = None) -> Edges:
        """The edges that leave some entities, but those of a hidden relation."""
        numbers, owners = expand_rows(self.offsets, entities)
        if hidden is None:
            return Edges(owners, numbers)
        seen = self.kinds[numbers] % self.relation_count != hidden
        return Edges(owners[seen], numbers[seen])

    def leaving_over(self, entities: IntArray, kinds: IntArray | int) -> Edges:
        """The edges of one kind, of each its own or of all the same, that leave some entities."""
        places = self._entries(entities, kinds)
        found = np.flatnonzero(places >= 0)
        numbers, owners = expand_rows(self._profile_starts, places[found])
        return Edges(found[owners], numbers)

    def passed(self, entities: IntArray, hidden: int | None = None) -> NDArray[np.bool_]:
        """Which entities are no such hubs that the middle hop of a walk leaves them out."""
        degrees = self.degrees_of(entities)
        if hidden is not None:
            degrees = degrees - self.counts(entities, hidden) - self.counts(entities, hidden + self.relation_count)
        return np.asarray(degrees <= self.settings.max_degree)

    def profiles(self, entities: IntArray, hidden: int | None = None) -> Edges:
        """The entries of some entities' profiles, but those of a hidden relation."""
        numbers, owners = expand_rows(self.profile_offsets, entities)
        if hidden is None:
            return Edges(owners, numbers)
        seen = self.profile_kinds[numbers] % self.relation_count != hidden
        return Edges(owners[seen], numbers[seen])

    def counts(self, entities: IntArray, kinds: IntArray | int) -> NDArray[np.int64]:
        """How many edges of a kind leave each entity."""
        places = self._entries(entities, kinds)
        counts = np.zeros(places.shape, np.int64)
        counts[places >= 0] = self.entry_counts(places[places >= 0])
        return counts

    def entry_counts(self, entries: IntArray) -> NDArray[np.int64]:
        """How many edges some entries of profiles stand for."""
        return self.profile_counts[entries]

    def log_fans_of(self, edges: IntArray) -> FloatArray:
        """Of each edge the logarithm of the fan-out at its source and at its target, [edges, 2]."""
        return self.log_fans[edges]

    def degrees_of(self, entities: IntArray) -> NDArray[np.int64]:
        """The number of edges that leave some entities."""
        return self.degrees[entities]

    def _entries(self, entities: IntArray, kinds: IntArray | int) -> NDArray[np.int64]:
        """The number of the profile's entry of each entity and kind, or -1."""
        return positions_in(self.profile_keys, np.asarray(entities, np.int64) * self.kind_count + kinds)

    def tuple_rarity(self, edges: NDArray[np.int64]) -> FloatArray:
        """How much it says of an entity that an edge leaves it for just this target: as `rarity`, of the tuple."""
        rarity: FloatArray = np.log((self.entity_count + 1) / (np.exp(self.log_fans_of(edges)[:, 1]) + 1))
        return rarity

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of edges that leave each entity, [entities]."""
        owners = self.profile_keys // self.kind_count
        return np.bincount(owners, self.profile_counts, minlength=self.entity_count).astype(np.int64)

    @cached_property
    def kind_sizes(self) -> NDArray[np.int64]:
        """The number of facts of each kind, [kinds]."""
        return np.bincount(self.profile_kinds, self.profile_counts, minlength=self.kind_count).astype(np.int64)

    @cached_property
    def kind_sources(self) -> NDArray[np.int64]:
        """From how many entities edges of each kind leave, [kinds]."""
        return np.bincount(self.profile_kinds, minlength=self.kind_count)

    @cached_property
    def rarity(self) -> FloatArray:
        """How much it says of an entity that a kind of edge leaves it, [kinds]: the logarithm of 1 / its share."""
        return np.log((self.entity_count + 1) / (self.kind_sources + 1)).astype(np.float32)

    @cached_property
    def _sample(self) -> NDArray[np.int64]:
        """All entities of a small graph, or of a large one every so many."""
        return np.arange(0, self.entity_count, -(-self.entity_count // self.settings.sample))

    @cached_property
    def company(self) -> FloatArray:
        """How likely an entity with the one kind of edge has the other, times the rarity of that, [kinds, kinds]."""
        numbers, owners = expand_rows(self.profile_offsets, self._sample)
        offsets = row_offsets(owners, len(self._sample))
        together = _counted_together(offsets, self.profile_kinds[numbers], self.kind_count)
        sources = np.maximum(np.diag(together), 1)
        np.fill_diagonal(together, 0)
        return (together / sources[:, None] * self.rarity).astype(np.float32)

    @cached_property
    def company_squares(self) -> FloatArray:
        """The squared lengths of the rows of `company`, [kinds]."""
        return np.asarray(np.einsum("ij,ij->i", self.company, self.company))

    @cached_property
    def agreement(self) -> FloatArray:
        """How often two kinds link the same pairs, [kinds, kinds]: the cosine of their sets of pairs."""
        numbers, owners = expand_rows(self.offsets, self._sample)
        links = np.sort((owners * self.entity_count + self.targets[numbers]) * self.kind_count + self.kinds[numbers])
        firsts = np.flatnonzero(np.diff(links // self.kind_count, prepend=-1))
        kinds = (links % self.kind_count).astype(np.int32)
        together = _counted_together(np.append(firsts, len(links)), kinds, self.kind_count)
        sizes = np.sqrt(np.maximum(np.diag(together), 1))
        return (together / sizes / sizes[:, None]).astype(np.float32)

    @cached_property
    def type_shares(self) -> tuple[NDArray[np.int64], IntArray, FloatArray]:
        """Of each type, in compressed rows, the kinds that its entities have, and the share they make up there."""
        if self.types is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        owners = self.profile_keys // self.kind_count
        numbers, entries = expand_rows(self.types.offsets, owners)
        keys = self.types.members[numbers].astype(np.int64) * self.kind_count + self.profile_kinds[entries]
        weights = self.profile_counts[entries]
        found, places = np.unique(keys, return_inverse=True)
        kinds = (found % self.kind_count).astype(np.int32)
        sums = np.bincount(places, weights, minlength=len(found))
        offsets = row_offsets(found // self.kind_count, len(self.types.names))
        return offsets, kinds, (sums / np.maximum(self.kind_sizes[kinds], 1)).astype(np.float32)


def _counted_together(offsets: NDArray[np.int64], kinds: IntArray, kind_count: int) -> NDArray[np.float64]:
    """In how many rows two kinds both are, [kinds, kinds]."""
    counted = np.zeros(kind_count * kind_count)
    work = np.cumsum(np.diff(offsets) ** 2)
    start = 0
    while start < len(work):
        done = work[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(work, done + PAIRS_AT_ONCE)))
        rows = np.arange(start, end)
        first, owners = expand_rows(offsets, rows)
        second, entries = expand_rows(offsets, rows[owners])
        counted += np.bincount(
            kinds[first][entries].astype(np.int64) * kind_count + kinds[second], minlength=kind_count * kind_count
        )
        start = end
    return counted.reshape(kind_count, kind_count)


def _noise(pairs: NDArray[np.int64], targets: NDArray[np.int64]) -> FloatArray:
    """A number between 0 and 1 for each edge that depends on nothing but the edge (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = pairs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + targets.astype(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
