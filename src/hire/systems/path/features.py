"""What the graph says about a few references: features of each edge type, two-hop rules, and features of any entity."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.systems.path import kernels
from hire.systems.path.graph import Edges, EvidenceGraph
from hire.systems.path.reduced import ReducedGraph
from hire.systems.path.rules import PATH_FEATURES, PairPaths, Rules, paths_between
from hire.util.arrays import FloatArray, IntArray, distinct, expand_rows, read_only

EDGE_FEATURES = (  # of each edge type
    "head similarity",  # between its sources and the reference heads, by profile
    "tail similarity",  # between its targets and the reference tails
    "head types",  # share of its sources that have a type of the reference heads
    "tail types",
    *PATH_FEATURES,
    "agreement",  # with the edge types that link the references
    "size",
    "fan-out",
    "fan-in",
    "by name",  # it holds only if entities of the same name are the same
)
ENTITY_FEATURES = (  # of an entity, whether it is a head or a tail
    "is a tail",
    "like the tails, mean",  # cosine of the profiles: the edge types that leave an entity
    "like the tails, best",
    "shares with the tails, mean",  # the share of a tail's neighborhood tuples, by idf, that the entity has too
    "shares with the tails, best",
    "has the tails' types",
    "is a head",
    "like the heads, mean",
    "like the heads, best",
    "shares with the heads, mean",
    "shares with the heads, best",
    "has the heads' types",
    "degree",
    "popularity",  # as a tail of relations that are similar to that of the references
)
TASK_FEATURES = (  # of the references as a whole
    "references",
    "distinct tails",
    "distinct heads",
    "linked",  # share of references whose head and tail are linked
    "linked by two hops",
    "linked by three hops",
    "degree of the tails",
    "popularity of the tails",
    "degree of the heads",
    "tails alike",  # among one another, by profile
    "tails share",  # tuples among one another
)
FEATURE = {name: column for column, name in enumerate(ENTITY_FEATURES)}
HEAD, TAIL = 0, 1
RECOMPUTED = (  # cached attributes that are computed again if the facts of a reference have changed
    "edge_features",
    "summary",
    "_profiles",
    "_profile_columns",
    "_shares",
    "_similar_edge_types",
    "_popularity",
    "_log_fan_outs",
)


class ReferenceEvidence:
    """References [shots, 2] in a graph from which their relation is hidden."""

    def __init__(self, graph: EvidenceGraph, pairs: IntArray, hidden: int | None = None) -> None:
        self.graph = graph
        self.pairs = np.asarray(pairs, np.int64)
        self.hidden = hidden
        self._set_paths([paths_between(graph, int(head), int(tail), hidden) for head, tail in self.pairs])

    def _set_paths(self, paths: list[PairPaths]) -> None:
        """Compute rules and path features from the paths of each reference."""
        self._paths = paths
        self.rules = Rules.of(paths)
        self._path_features = np.stack([of_pair.features for of_pair in paths]).mean(
            axis=0
        )  # [path features, edge types]
        self._linked = np.stack([of_pair.linked for of_pair in paths]).mean(axis=0)  # [3]

    def without(self, facts: IntArray) -> ReferenceEvidence:
        """The same references in the graph without some facts [n, 3]."""
        _ = self.summary, self._shares  # cached first: the copy shares them where nothing changes
        graph = ReducedGraph(self.graph, facts)
        found = copy(self)
        found.graph = graph
        touched = np.isin(self.pairs, graph.ends)
        if touched.any() or graph.shrinks:
            found._update_references(touched, self)
            return found
        found._shares = [self._shares_without(graph, side) for side in (HEAD, TAIL)]
        return found

    def _update_references(self, touched: NDArray[np.bool_], before: ReferenceEvidence) -> None:
        """Recompute what depends on the references' heads and tails that were touched, [shots, 2]."""
        for name in RECOMPUTED:
            self.__dict__.pop(name, None)
        paths = [
            paths_between(self.graph, int(head), int(tail), self.hidden) if changed.any() else known
            for (head, tail), changed, known in zip(self.pairs, touched, before._paths, strict=True)
        ]
        self._set_paths(paths)
        if (self._path_features[0] != before._path_features[0]).any():
            self.__dict__.pop("_agreement", None)
        self._co_occurrence_with = [
            known + self._co_occurrence_change(self._profiles[side], before._profiles[side])
            for side, known in enumerate(before._co_occurrence_with)
        ]

    def _co_occurrence_change(self, profiles: FloatArray, before: FloatArray) -> FloatArray:
        """The change of `_co_occurrence_with` [edge types] for profiles [shots, edge types] that are mostly equal."""
        change = (profiles - before).mean(axis=0)
        edge_types = np.flatnonzero(change)
        return np.asarray(self.graph.co_occurrence[:, edge_types] @ change[edge_types])

    @cached_property
    def edge_features(self) -> FloatArray:
        """The features of each edge type, [edge types, EDGE_FEATURES], scaled to about one."""
        graph = self.graph
        inverse = graph.inverse(np.arange(graph.edge_type_count))
        of_heads, of_tails = (self._similarity(side) for side in (HEAD, TAIL))
        head_types, tail_types = self._type_shares
        fan_outs = self._log_fan_outs
        columns = [of_heads, of_tails[inverse], head_types, tail_types[inverse], *self._path_features, self._agreement]
        scaled = np.stack(columns, axis=1) * graph.settings.similarity_scale
        general = np.stack(
            [np.log1p(graph.edge_counts) / 2 - 3, fan_outs - 0.7, fan_outs[inverse] - 0.7, graph.by_name], axis=1
        )
        features: FloatArray = np.concatenate([scaled, general], axis=1).astype(np.float32)
        if self.hidden is not None:
            features[self._hidden_edge_types] = 0
        return features

    @cached_property
    def _agreement(self) -> FloatArray:
        """How well each edge type agrees with those that link the references, [edge types]."""
        links = self._path_features[0]
        return np.asarray(self.graph.agreement @ (links / max(1e-6, float(np.linalg.norm(links)))))

    def _similarity(self, side: int) -> FloatArray:
        """The similarity of each edge type's sources to the reference heads or tails, by profile, [edge types]."""
        graph = self.graph
        co_occurrence, squares = graph.co_occurrence, graph.co_occurrence_squares
        if self.hidden is not None:
            squares = squares - (co_occurrence[:, self._hidden_edge_types] ** 2).sum(axis=1)
        norms = np.sqrt(np.maximum(squares, 0)) * np.linalg.norm(self._profiles[side].mean(axis=0))
        return np.asarray(self._co_occurrence_with[side] / np.maximum(norms, 1e-6))

    @cached_property
    def _co_occurrence_with(self) -> list[FloatArray]:
        """The product of co-occurrence with the mean profile of the reference heads, and of the tails, [edge types]."""
        return [np.asarray(self.graph.co_occurrence @ self._profiles[side].mean(axis=0)) for side in (HEAD, TAIL)]

    @cached_property
    def _type_shares(self) -> list[FloatArray]:
        """The share of each edge type's sources that have types of the reference heads, and of the tails."""
        return [self._type_shares_of(side) for side in (HEAD, TAIL)]

    def _type_shares_of(self, side: int) -> FloatArray:
        graph, types = self.graph, self.graph.types
        if types is None:
            return np.zeros(graph.edge_type_count, np.float32)
        offsets, edge_types, shares = graph.type_shares
        members, owners = expand_rows(types.offsets, self.pairs[:, side])
        positions, rows = expand_rows(offsets, types.members[members])
        weights = shares[positions] / np.bincount(owners, minlength=len(self.pairs))[owners[rows]]
        return (np.bincount(edge_types[positions], weights, minlength=graph.edge_type_count) / len(self.pairs)).astype(
            np.float32
        )

    @property
    def _hidden_edge_types(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.graph.hides(self.hidden))

    @cached_property
    def _profiles(self) -> FloatArray:
        """The profiles of the reference heads and tails, normalized to length 1, [2, shots, edge types]."""
        graph = self.graph
        profiles = np.zeros((2, len(self.pairs), graph.edge_type_count), np.float32)
        for side in (HEAD, TAIL):
            entries = graph.profiles(self.pairs[:, side], self.hidden)
            edge_types = graph.profile_edge_types[entries.ids]
            profiles[side][entries.owners, edge_types] = (
                np.log1p(graph.entry_counts(entries.ids)) * graph.idf[edge_types]
            )
        return np.asarray(profiles / np.maximum(np.linalg.norm(profiles, axis=-1, keepdims=True), 1e-6))

    @cached_property
    def _shares(self) -> list[tuple[NDArray[np.int64], FloatArray]]:
        """For each side, the entities that share neighborhood tuples with a reference, and the share of its tuples.

        Entities are given as sorted keys: index of the reference * number of entities + entity.
        """
        graph = self.graph
        found = []
        for side in (HEAD, TAIL):
            edges, idf, whole = self._tuples(side)
            targets, edge_types = graph.targets[edges.ids], graph.edge_types[edges.ids]
            back = graph.leaving_over(targets, graph.inverse(edge_types))
            owners = edges.owners[back.owners]
            parts = idf[back.owners] / np.maximum(1e-6, whole[owners])
            keys, positions = np.unique(owners * graph.entity_count + graph.targets[back.ids], return_inverse=True)
            found.append((keys, np.bincount(positions, parts, minlength=len(keys)).astype(np.float32)))
        return found

    @property
    def sharing_entities(self) -> NDArray[np.int64]:
        """The heads and tails of the references, and all entities that share a tuple with one of them, sorted."""
        shared = [keys % self.graph.entity_count for keys, _ in self._shares]
        return np.asarray(distinct(np.concatenate([self.pairs.ravel(), *shared])))

    def _tuples(self, side: int) -> tuple[Edges, FloatArray, NDArray[Any]]:
        """The edges that leave the reference heads or tails, the idf of their tuples, and its sum, [shots]."""
        edges = self.graph.leaving(self.pairs[:, side], self.hidden)
        idf = self.graph.tuple_idf(edges.ids)
        return edges, idf, np.bincount(edges.owners, idf, minlength=len(self.pairs))

    def _shares_without(self, graph: ReducedGraph, side: int) -> tuple[NDArray[np.int64], FloatArray]:
        """`_shares` in a graph where entities, but not the references themselves, have lost edges."""
        keys, parts = self._shares[side]
        edges, idf, whole = self._tuples(side)
        targets, edge_types, entities = graph.removed  # tuples are looked up from their targets
        lost = graph.inverse(edge_types).astype(np.int64) * graph.entity_count + targets
        tuples = graph.edge_types[edges.ids].astype(np.int64) * graph.entity_count + graph.targets[edges.ids]
        rows, columns = np.nonzero(lost[:, None] == tuples)
        owners = edges.owners[columns]
        positions = np.searchsorted(keys, owners * graph.entity_count + entities[rows])
        parts = parts.copy()
        np.subtract.at(parts, positions, (idf[columns] / np.maximum(1e-6, whole[owners])).astype(np.float32))
        return keys, np.maximum(parts, 0)

    @cached_property
    def _similar_edge_types(self) -> FloatArray:
        """The similarity of each edge type to the relation of the references, normalized to sum 1, [edge types]."""
        settings = self.graph.settings
        alike = self.edge_features[:, :4].sum(axis=1) / settings.similarity_scale
        weights = np.exp(settings.sharpness * (alike - alike.max())) * (self.graph.edge_counts > 0)
        weights[self._hidden_edge_types] = 0
        shares: FloatArray = (weights / max(1e-6, float(weights.sum()))).astype(np.float32)
        return shares

    @cached_property
    def _popularity(self) -> FloatArray:
        """What an edge of each type adds to the popularity of its source as a tail, [edge types]."""
        back = self._similar_edge_types[self.graph.inverse(np.arange(self.graph.edge_type_count))]
        return np.asarray(back / np.maximum(self.graph.edge_counts, 1), np.float32)

    @cached_property
    def summary(self) -> FloatArray:
        """The features of the references as a whole, [TASK_FEATURES]."""
        shots = len(self.pairs)
        distinct = [len(np.unique(self.pairs[:, side])) / shots for side in (TAIL, HEAD)]
        heads, tails = (self.entity_features(self.pairs[:, side]) for side in (HEAD, TAIL))
        means = [
            of[:, FEATURE[name]].mean() for of, name in ((tails, "degree"), (tails, "popularity"), (heads, "degree"))
        ]
        alike = [self._mean_similarity(of_all) for of_all in self.similarities(self.pairs[:, TAIL], TAIL)]
        return np.array([shots / 5, *distinct, *self._linked, *means, *alike], np.float32)

    def _mean_similarity(self, similarities: FloatArray) -> float:
        """The mean of similarities [shots, shots] between different references; 0 for a single reference."""
        shots = len(similarities)
        return float((similarities.sum() - np.trace(similarities)) / max(1, shots * (shots - 1)))

    @cached_property
    def _log_fan_outs(self) -> FloatArray:
        """The logarithm of each edge type's mean fan-out, [edge types]."""
        sizes = np.maximum(self.graph.edge_counts, 1)
        return np.log(sizes / np.maximum(self.graph.source_counts, 1)).astype(np.float32)

    def similarities(self, entities: IntArray, side: int) -> FloatArray:
        """The similarity of entities to the reference heads or tails, [2, entities, shots].

        By the cosine of profiles, and by shared tuples.
        """
        found: FloatArray = self._compare(entities)[0][side]
        return found

    def entity_features(self, entities: IntArray) -> FloatArray:
        """The features of some entities, [entities, ENTITY_FEATURES]."""
        return self.described(entities)[0]

    def described(self, entities: IntArray) -> tuple[FloatArray, FloatArray]:
        """The features of some entities, and their similarities to the reference heads, and tails.

        [entities, ENTITY_FEATURES] and [2, 2, entities, shots].
        """
        entities = np.ascontiguousarray(entities, np.int64)
        similarities, counted = self._compare(entities)
        features = np.empty((len(entities), len(ENTITY_FEATURES)), np.float32)
        settings = self.graph.settings
        kernels.describe_entities(
            entities,
            self.pairs,
            similarities,
            counted,
            np.float32(settings.least_popularity),
            np.float32(settings.log_scale),
            features,
        )
        return features, similarities

    def _compare(self, entities: IntArray) -> tuple[FloatArray, FloatArray]:
        """Similarities to the reference heads, and tails, [2, 2, entities, shots], and four values of each entity.

        These are the share of the reference heads, and tails, with which it has a type in common, its popularity as a
        tail and its degree.
        """
        graph, shots = self.graph, len(self.pairs)
        type_offsets, types, has_type = self._reference_types
        found = np.zeros((2, 2, len(entities), shots), np.float32)
        counted = np.zeros((len(entities), 4), np.float32)
        kernels.compare(
            np.ascontiguousarray(entities, np.int64),
            graph.profile_offsets,
            graph.profile_edge_types,
            graph.profile_counts,
            *graph.fewer_entries,
            graph.hides(self.hidden),
            graph.idf,
            self._popularity,
            self._profile_columns,
            *self._shares[HEAD],
            *self._shares[TAIL],
            graph.entity_count,
            type_offsets,
            types,
            has_type,
            found,
            counted,
        )
        return found, counted

    @cached_property
    def _profile_columns(self) -> FloatArray:
        """The profiles of the reference heads, then of the tails, [edge types, 2 * shots]."""
        return np.ascontiguousarray(self._profiles.reshape(2 * len(self.pairs), -1).T)

    @cached_property
    def _reference_types(self) -> tuple[NDArray[np.int64], IntArray, NDArray[np.bool_]]:
        """The types of entities in compressed rows, and which type each reference head, and tail, has.

        The last is [types, 2 * shots].
        """
        types, shots = self.graph.types, len(self.pairs)
        if types is None:
            offsets, none = np.zeros(self.graph.entity_count + 1, np.int64), np.zeros(0, np.int32)
            return read_only(offsets), read_only(none), np.zeros((0, 2 * shots), bool)
        members, owners = expand_rows(types.offsets, self.pairs.T.ravel())
        has = np.zeros((len(types.names), 2 * shots), bool)
        has[types.members[members], owners] = True
        return read_only(types.offsets), read_only(types.members), has

    def degrees(self, entities: IntArray) -> FloatArray:
        """The feature "degree" of some entities: log(1 + degree) / 5, without the edges of the hidden relation."""
        degrees = self.graph.visible_degrees(entities, self.hidden)
        return (np.log1p(degrees) / self.graph.settings.log_scale).astype(np.float32)
