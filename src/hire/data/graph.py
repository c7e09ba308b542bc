"""The knowledge graph: triples of ids, and the neighbors of each entity in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.types import Types
from hire.data.vocabulary import MOST_IDS, StringTable, Vocabulary, too_many_ids
from hire.util.arrays import IntArray, row_offsets
from hire.util.files import open_array, save_array

INVERSE_SUFFIX = "_inv"
MAX_NEIGHBORS = 50  # the paper's limit on the neighbors of an entity in a context


class KnowledgeGraph:
    """Entities, relations and triples as ids, with the neighbors of each entity in file order.

    Relation r followed from tail to head is the inverse relation with the id r + len(relations), whose name ends in
    `_inv`.
    """

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        triples: IntArray,
        offsets: NDArray[np.int64],
        neighbors: IntArray,
        labels: StringTable | None = None,
        types: Types | None = None,
    ) -> None:
        self.entities = entities
        self.relations = relations
        self.triples = triples  # [triples, 3]: head, relation, tail
        self.offsets = offsets  # [entities + 1]: entity e has neighbors[offsets[e]:offsets[e + 1]]
        self.neighbors = neighbors  # [2 * triples, 2]: relation (or its inverse), entity
        self.labels = labels  # one for each entity, empty where it has none
        self.types = types

    @classmethod
    def of(
        cls,
        entities: Vocabulary,
        relations: Vocabulary,
        triples: IntArray,
        labels: StringTable | None = None,
        types: Types | None = None,
    ) -> KnowledgeGraph:
        """A graph from its triples [n, 3]; collects the neighbors of each entity, over inverse edges too."""
        if 2 * len(relations) > MOST_IDS:
            raise too_many_ids(2 * len(relations), "relation or inverse")
        triples = np.ascontiguousarray(triples, dtype=np.int32).reshape(-1, 3)
        heads, kinds, tails = triples.T
        # A triple gives its head an edge, then its tail an inverse edge: a stable sort keeps file order in each row.
        sources = np.stack([heads, tails], axis=1).ravel()
        order = np.argsort(sources, kind="stable")
        offsets = row_offsets(sources, len(entities))
        neighbors = np.empty((len(sources), 2), np.int32)
        neighbors[:, 0] = np.stack([kinds, kinds + len(relations)], axis=1).ravel()[order]
        neighbors[:, 1] = np.stack([tails, heads], axis=1).ravel()[order]
        return cls(entities, relations, triples, offsets, neighbors, labels, types)

    def extended(self, names: Sequence[str], triples: IntArray) -> KnowledgeGraph:
        """The graph with new entities, without labels or types, and more triples appended."""
        labels = None if self.labels is None else self.labels.extended([""] * len(names))
        types = self.types
        if types is not None:
            offsets = np.append(types.offsets, np.full(len(names), types.offsets[-1]))
            types = Types(types.names, offsets, types.members)
        everything = np.concatenate([self.triples, triples])
        return KnowledgeGraph.of(self.entities.extended(names), self.relations, everything, labels, types)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of neighbors of each entity, over inverse edges too."""
        return np.diff(self.offsets)

    @cached_property
    def edge_counts(self) -> NDArray[np.int64]:
        """The number of edges of each relation, then of each inverse."""
        sizes = np.bincount(self.triples[:, 1], minlength=len(self.relations))
        return np.concatenate([sizes, sizes])

    @cached_property
    def background_relations(self) -> IntArray:
        """The ids of the relations that have triples in the graph, sorted."""
        return np.flatnonzero(self.edge_counts[: len(self.relations)])

    def neighbors_of(self, entity: int, limit: int | None = MAX_NEIGHBORS) -> IntArray:
        """The (relation, entity) tuples around an entity, [n, 2], in file order; all of them if limit is None."""
        start, end = self.offsets[entity : entity + 2]
        return self.neighbors[start : end if limit is None else min(end, start + limit)]

    def relation_name(self, relation: int) -> str:
        """The name of a relation, with `_inv` appended for an inverse one."""
        count = len(self.relations)
        name: str = self.relations[relation % count]
        return name + INVERSE_SUFFIX if relation >= count else name

    def label(self, entity: int) -> str:
        """The label of an entity, or its name if it has none."""
        label: str = self.labels[entity] if self.labels is not None else ""
        return label or self.entities[entity]

    def save(self, directory: Path) -> None:
        """Write the graph into a directory that `open` maps."""
        directory.mkdir(parents=True, exist_ok=True)
        self.entities.save(directory, "entities")
        self.relations.save(directory, "relations")
        save_array(directory / "triples.npy", self.triples)
        save_array(directory / "offsets.npy", self.offsets)
        save_array(directory / "neighbors.npy", self.neighbors)
        if self.labels is not None:
            self.labels.save(directory, "labels")
        if self.types is not None:
            self.types.names.save(directory, "types")
            save_array(directory / "type_offsets.npy", self.types.offsets)
            save_array(directory / "type_members.npy", self.types.members)

    @classmethod
    def open(cls, directory: Path) -> KnowledgeGraph:
        """Map a graph written by `save`; nothing is read before it is used."""

        def array(name: str) -> Any:
            return open_array(directory / f"{name}.npy")

        types = None
        if (directory / "type_offsets.npy").exists():
            names = Vocabulary.open(directory, "types", "type")
            types = Types(names, array("type_offsets"), array("type_members"))
        return cls(
            Vocabulary.open(directory, "entities", "entity"),
            Vocabulary.open(directory, "relations", "relation"),
            array("triples"),
            array("offsets"),
            array("neighbors"),
            StringTable.open(directory, "labels") if (directory / "labels.text.npy").exists() else None,
            types,
        )
