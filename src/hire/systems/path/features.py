"""What a few references say in the light of the graph: of each kind of edge, of two-hop rules, and of any entity."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hire.systems.path.graph import Edges, EvidenceGraph
from hire.systems.path.reduced import ReducedGraph
from hire.systems.path.rules import PATH_FIGURES, PairPaths, Rules, paths_between
from hire.util.arrays import FloatArray, IntArray, expand_rows, positions_in

KIND_FEATURES = (  # of each kind of edge
    "head similarity",  # of the entities it leaves to the reference heads, by the kinds of edges they have
    "tail similarity",  # of the entities it leads to, to the reference tails
    "head types",  # share of the types of the reference heads among the entities it leaves
    "tail types",
    *PATH_FIGURES,
    "agreement",  # with the kinds that link the references
    "size",
    "fan out",
    "fan in",
)
ENTITY_FEATURES = (  # of an entity; the same of heads and tails
    "is a tail",
    "like the tails, mean",  # cosine of the profiles: the kinds of edges that leave the entity
    "like the tails, best",
    "shares with the tails, mean",  # the part of a tail's neighbourhood tuples, by rarity, that the entity has too
    "shares with the tails, best",
    "has the tails' types",
    "is a head",
    "like the heads, mean",
    "like the heads, best",
    "shares with the heads, mean",
    "shares with the heads, best",
    "has the heads' types",
    "degree",
    "popularity",  # as a tail of relations that are like the one of the references
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
MOST_KEPT = 50_000  # entities whose features are kept
OF_REFERENCES = (  # what is found out but once, and has to be again where the facts of a reference have changed
    "kind_features",
    "summary",
    "_profiles",
    "_profile_columns",
    "_shares",
    "_similar_kinds",
    "_popularity",
    "_log_fans",
)


class ReferenceEvidence:
    """References [shots, 2] in a graph from which their relation is hidden."""

    def __init__(self, graph: EvidenceGraph, pairs: IntArray, hidden: int | None = None) -> None:
        self.graph = graph
        self.pairs = np.asarray(pairs, np.int64)
        self.hidden = hidden
        self._computed = _nothing_computed()  # entities, and the features of each
        self._read([paths_between(graph, int(head), int(tail), hidden) for head, tail in self.pairs])

    def _read(self, paths: list[PairPaths]) -> None:
        """Take in the paths of each reference."""
        self._paths = paths
        self.rules = Rules.of(paths)
        self._figures = np.stack([of_one.figures for of_one in paths]).mean(axis=0)  # [figures, kinds]
        self._linked = np.stack([of_one.linked for of_one in paths]).mean(axis=0)  # [3]

    def without(self, facts: IntArray) -> ReferenceEvidence:
        """The same references in the graph without some facts [n, 3]."""
        _ = self.summary, self._shares  # they, and what they need, are not found out again where nothing changes
        graph = ReducedGraph(self.graph, facts)
        found = copy(self)
        found.graph = graph
        touched = np.isin(self.pairs, graph.ends)
        if touched.any() or graph.shrinks:
            found._read_again(touched, self)
            return found
        found._shares = [self._shares_without(graph, side) for side in (HEAD, TAIL)]
        known, features = self._computed
        stays = ~np.isin(known, graph.ends)
        found._computed = known[stays], features[stays]
        return found

    def _read_again(self, touched: NDArray[np.bool_], before: ReferenceEvidence) -> None:
        """Take in what has changed about some references' heads and tails, [shots, 2]."""
        for name in OF_REFERENCES:
            self.__dict__.pop(name, None)
        self._computed = _nothing_computed()
        paths = [
            paths_between(self.graph, int(head), int(tail), self.hidden) if changed.any() else known
            for (head, tail), changed, known in zip(self.pairs, touched, before._paths, strict=True)
        ]
        self._read(paths)
        if (self._figures[0] != before._figures[0]).any():
            self.__dict__.pop("_agreement", None)
        self._company_of = [
            known + self._company_change(self._profiles[side], before._profiles[side])
            for side, known in enumerate(before._company_of)
        ]

    def _company_change(self, profiles: FloatArray, before: FloatArray) -> FloatArray:
        """What changes in the company of some profiles [shots, kinds], most of which stay, [kinds]."""
        change = (profiles - before).mean(axis=0)
        kinds = np.flatnonzero(change)
        return np.asarray(self.graph.company[:, kinds] @ change[kinds])

    @cached_property
    def kind_features(self) -> FloatArray:
        """The features of each kind of edge, [kinds, KIND_FEATURES], scaled to about one."""
        graph = self.graph
        inverse = graph.inverse(np.arange(graph.kind_count))
        of_heads, of_tails = (self._alike(side) for side in (HEAD, TAIL))
        head_types, tail_types = self._type_shares
        fans = self._log_fans
        columns = [of_heads, of_tails[inverse], head_types, tail_types[inverse], *self._figures, self._agreement]
        scaled = np.stack(columns, axis=1) * graph.settings.similarity_scale
        general = np.stack([np.log1p(graph.kind_sizes) / 2 - 3, fans - 0.7, fans[inverse] - 0.7], axis=1)
        features: FloatArray = np.concatenate([scaled, general], axis=1).astype(np.float32)
        if self.hidden is not None:
            features[[self.hidden, self.hidden + graph.relation_count]] = 0
        return features

    @cached_property
    def _agreement(self) -> FloatArray:
        """How far each kind agrees with those that link the references, [kinds]."""
        links = self._figures[0]
        return np.asarray(self.graph.agreement @ (links / max(1e-6, float(np.linalg.norm(links)))))

    def _alike(self, side: int) -> FloatArray:
        """How similar the entities that each kind leaves are to the reference heads or tails, by profile, [kinds]."""
        graph = self.graph
        company, squares = graph.company, graph.company_squares
        if self.hidden is not None:
            squares = squares - (company[:, self._hidden_kinds] ** 2).sum(axis=1)
        norms = np.sqrt(np.maximum(squares, 0)) * np.linalg.norm(self._profiles[side].mean(axis=0))
        return np.asarray(self._company_of[side] / np.maximum(norms, 1e-6))

    @cached_property
    def _company_of(self) -> list[FloatArray]:
        """What each kind's company has in common with the reference heads and tails, in the mean, [kinds] each."""
        return [np.asarray(self.graph.company @ self._profiles[side].mean(axis=0)) for side in (HEAD, TAIL)]

    @cached_property
    def _type_shares(self) -> list[FloatArray]:
        """What share the types of reference heads, and of tails, make up of the entities that each kind leaves."""
        return [self._type_shares_of(side) for side in (HEAD, TAIL)]

    def _type_shares_of(self, side: int) -> FloatArray:
        graph, types = self.graph, self.graph.types
        if types is None:
            return np.zeros(graph.kind_count, np.float32)
        offsets, kinds, shares = graph.type_shares
        members, owners = expand_rows(types.offsets, self.pairs[:, side])
        numbers, rows = expand_rows(offsets, types.members[members])
        weights = shares[numbers] / np.bincount(owners, minlength=len(self.pairs))[owners[rows]]
        return (np.bincount(kinds[numbers], weights, minlength=graph.kind_count) / len(self.pairs)).astype(np.float32)

    @property
    def _hidden_kinds(self) -> list[int]:
        return [] if self.hidden is None else [self.hidden, self.hidden + self.graph.relation_count]

    @cached_property
    def _profiles(self) -> FloatArray:
        """The profiles of the reference heads and tails, of length one, [2, shots, kinds]."""
        graph = self.graph
        profiles = np.zeros((2, len(self.pairs), graph.kind_count), np.float32)
        for side in (HEAD, TAIL):
            entries = graph.profiles(self.pairs[:, side], self.hidden)
            kinds = graph.profile_kinds[entries.numbers]
            profiles[side][entries.owners, kinds] = np.log1p(graph.entry_counts(entries.numbers)) * graph.rarity[kinds]
        return np.asarray(profiles / np.maximum(np.linalg.norm(profiles, axis=-1, keepdims=True), 1e-6))

    @cached_property
    def _shares(self) -> list[tuple[NDArray[np.int64], FloatArray]]:
        """Of each side the entities that have a part of a reference's neighbourhood tuples, and how large a part.

        The entities are keys, sorted: the number of the reference times the number of entities is added.
        """
        graph = self.graph
        found = []
        for side in (HEAD, TAIL):
            edges, rarity, whole = self._tuples(side)
            targets, kinds = graph.targets[edges.numbers], graph.kinds[edges.numbers]
            back = graph.leaving_over(targets, graph.inverse(kinds))
            owners = edges.owners[back.owners]
            parts = rarity[back.owners] / np.maximum(1e-6, whole[owners])
            keys, places = np.unique(owners * graph.entity_count + graph.targets[back.numbers], return_inverse=True)
            found.append((keys, np.bincount(places, parts, minlength=len(keys)).astype(np.float32)))
        return found

    def _tuples(self, side: int) -> tuple[Edges, FloatArray, NDArray[Any]]:
        """The edges that leave the reference heads or tails, the rarity of their tuples, and its sums, [shots]."""
        edges = self.graph.leaving(self.pairs[:, side], self.hidden)
        rarity = self.graph.tuple_rarity(edges.numbers)
        return edges, rarity, np.bincount(edges.owners, rarity, minlength=len(self.pairs))

    def _shares_without(self, graph: ReducedGraph, side: int) -> tuple[NDArray[np.int64], FloatArray]:
        """`_shares` where entities, but not the references themselves, have lost edges."""
        keys, parts = self._shares[side]
        edges, rarity, whole = self._tuples(side)
        targets, kinds, entities = graph.removed  # tuples are found from their targets
        lost = graph.inverse(kinds).astype(np.int64) * graph.entity_count + targets
        tuples = graph.kinds[edges.numbers].astype(np.int64) * graph.entity_count + graph.targets[edges.numbers]
        rows, columns = np.nonzero(lost[:, None] == tuples)
        owners = edges.owners[columns]
        places = np.searchsorted(keys, owners * graph.entity_count + entities[rows])
        parts = parts.copy()
        np.subtract.at(parts, places, (rarity[columns] / np.maximum(1e-6, whole[owners])).astype(np.float32))
        return keys, np.maximum(parts, 0)

    def _shares_of(self, entities: IntArray, side: int) -> FloatArray:
        """The part of each reference's neighbourhood tuples that each entity has, [entities, shots]."""
        keys, parts = self._shares[side]
        wanted = entities[:, None] + np.arange(len(self.pairs)) * self.graph.entity_count
        if not len(keys):
            return np.zeros(wanted.shape, np.float32)
        places = positions_in(keys, wanted)
        return np.where(places >= 0, parts[places], np.float32(0))

    @cached_property
    def _similar_kinds(self) -> FloatArray:
        """How similar the relation of the references is to each kind, in shares, [kinds]."""
        settings = self.graph.settings
        alike = self.kind_features[:, :4].sum(axis=1) / settings.similarity_scale
        weights = np.exp(settings.sharpness * (alike - alike.max())) * (self.graph.kind_sizes > 0)
        weights[self._hidden_kinds] = 0
        shares: FloatArray = (weights / max(1e-6, float(weights.sum()))).astype(np.float32)
        return shares

    @cached_property
    def _popularity(self) -> FloatArray:
        """What an edge of each kind that leaves an entity adds to its popularity as a tail, [kinds]."""
        back = self._similar_kinds[self.graph.inverse(np.arange(self.graph.kind_count))]
        return np.asarray(back / np.maximum(self.graph.kind_sizes, 1), np.float32)

    @cached_property
    def summary(self) -> FloatArray:
        """The features of the references as a whole, [TASK_FEATURES]."""
        shots = len(self.pairs)
        distinct = [len(np.unique(self.pairs[:, side])) / shots for side in (TAIL, HEAD)]
        heads, tails = (self.entity_features(self.pairs[:, side]) for side in (HEAD, TAIL))
        means = [
            of[:, FEATURE[name]].mean() for of, name in ((tails, "degree"), (tails, "popularity"), (heads, "degree"))
        ]
        alike = [self._among_themselves(of_all) for of_all in self.similarities(self.pairs[:, TAIL], TAIL)]
        return np.array([shots / 5, *distinct, *self._linked, *means, *alike], np.float32)

    def _among_themselves(self, similarities: FloatArray) -> float:
        """The mean similarity of different references' tails, [shots, shots] given; 0 for a single reference."""
        shots = len(similarities)
        return float((similarities.sum() - np.trace(similarities)) / max(1, shots * (shots - 1)))

    @cached_property
    def _log_fans(self) -> FloatArray:
        """The logarithm of how many edges of each kind leave an entity that has them, in the mean, [kinds]."""
        sizes = np.maximum(self.graph.kind_sizes, 1)
        return np.log(sizes / np.maximum(self.graph.kind_sources, 1)).astype(np.float32)

    def similarities(self, entities: IntArray, side: int) -> FloatArray:
        """Of each entity to the reference heads or tails: cosine of profiles, shared tuples; [2, entities, shots]."""
        return np.stack([self._profile_products(entities)[0][side], self._shares_of(entities, side)])

    def _profile_products(self, entities: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cosines with the profiles of the references, [2, entities, shots], popularity and degree, [entities]."""
        graph, shots = self.graph, len(self.pairs)
        entries = graph.profiles(entities, self.hidden)
        kinds, counts = graph.profile_kinds[entries.numbers], graph.entry_counts(entries.numbers)
        values = (np.log1p(counts) * graph.rarity[kinds]).astype(np.float32)
        products = np.empty((len(kinds), 2 * shots + 3), np.float32)
        np.multiply(values[:, None], self._profile_columns[kinds], out=products[:, :-3])
        products[:, -3] = values**2
        products[:, -2] = counts * self._popularity[kinds]
        products[:, -1] = counts
        sums = torch.zeros(len(entities), products.shape[1])
        table = sums.index_add_(0, torch.from_numpy(entries.owners), torch.from_numpy(products)).numpy()
        cosines = table[:, :-3] / np.sqrt(np.maximum(table[:, -3:-2], 1e-12))
        return cosines.reshape(len(entities), 2, shots).transpose(1, 0, 2), table[:, -2], table[:, -1]

    @cached_property
    def _profile_columns(self) -> FloatArray:
        """The profiles of the reference heads, then of the tails, [kinds, 2 * shots]."""
        return np.ascontiguousarray(self._profiles.reshape(2 * len(self.pairs), -1).T)

    def entity_features(self, entities: IntArray) -> FloatArray:
        """The features of some entities, [entities, ENTITY_FEATURES]; those that were computed last are kept."""
        known, features = self._computed
        places = positions_in(known, entities)
        new = np.unique(entities[places < 0])
        if len(new):
            of_new = self._compute_features(new)
            if len(known) + len(new) > MOST_KEPT:
                keep = np.isin(known, entities)
                known, features = known[keep], features[keep]
            known = np.concatenate([known, new])
            order = np.argsort(known)
            known, features = known[order], np.concatenate([features, of_new])[order]
            self._computed = known, features  # at once: other threads may be asking
            places = np.searchsorted(known, entities)
        return features[places]

    def _compute_features(self, entities: IntArray) -> FloatArray:
        cosines, popularity, degrees = self._profile_products(entities)
        shares = [self._shares_of(entities, side) for side in (HEAD, TAIL)]  # [entities, shots] each
        columns = []
        for side in (TAIL, HEAD):
            ours = self.pairs[:, side]
            columns += [(entities[:, None] == ours).mean(axis=1)]
            columns += [cosines[side].mean(axis=1), cosines[side].max(axis=1)]
            columns += [shares[side].mean(axis=1), shares[side].max(axis=1), self._of_types(entities, ours)]
        settings = self.graph.settings
        popularity = np.log(settings.least_popularity + popularity) / settings.log_scale + 1.5
        columns += [np.log1p(degrees) / settings.log_scale, popularity]
        return np.stack(columns, axis=1).astype(np.float32)

    def degrees(self, entities: IntArray) -> FloatArray:
        """The feature "degree" of some entities: log(1 + degree) / 5, without the edges of the hidden relation."""
        degrees = self.graph.degrees_of(entities)
        for kind in self._hidden_kinds:
            degrees = degrees - self.graph.counts(entities, kind)
        return (np.log1p(degrees) / self.graph.settings.log_scale).astype(np.float32)

    def _of_types(self, entities: IntArray, ours: IntArray) -> FloatArray:
        """The share of the references' entities with which each entity has a type in common."""
        types = self.graph.types
        if types is None:
            return np.zeros(len(entities), np.float32)
        theirs, owners = expand_rows(types.offsets, ours)
        has = np.zeros((len(types.names), len(ours)), np.float32)
        has[types.members[theirs], owners] = 1
        numbers, rows = expand_rows(types.offsets, entities)
        common = torch.zeros(len(entities), len(ours))
        common.index_add_(0, torch.from_numpy(rows), torch.from_numpy(has[types.members[numbers]]))
        return np.asarray((common > 0).float().mean(dim=1).numpy())


def _nothing_computed() -> tuple[NDArray[np.int64], FloatArray]:
    return np.zeros(0, np.int64), np.zeros((0, len(ENTITY_FEATURES)), np.float32)
