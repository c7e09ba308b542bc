"""All walks of up to three hops from heads to tails, as layers of edges for message passing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.evidence import EvidenceGraph, FloatArray
from hire.graph import expand_rows, row_offsets
from hire.references import ENTITY_FEATURES, HEAD, TAIL, ReferenceEvidence
from hire.vocabulary import IntArray

PAIR_FEATURES = (  # of a head and a tail
    "is the head",
    "links",
    "rule support",  # the best of the two-hop rules that lead from head to tail
    "rule confidence",
    "rule confidence, sum",
    "like one reference",  # head like its head and tail like its tail, by profile
    "shares with one reference",
    "references",  # how many there are; the same for all pairs of a task, like the next two
    "distinct tails",
    "distinct heads",
)
HOPS = 3


@dataclass(frozen=True)
class Layer:
    """Edges between the entities of a layer and those of the next."""

    sources: Tensor  # [edges] int64: place among the entities of the layer before
    kinds: Tensor  # [edges] int64: with the number of the task times the number of kinds added
    targets: Tensor  # [edges] int64: place among the entities of this layer
    log_fans: Tensor  # [edges, 2]


@dataclass(frozen=True)
class Walks:
    """What a network needs to score pairs of heads and tails of one or several tasks."""

    layers: tuple[Layer, Layer, Layer]
    entities: tuple[Tensor, Tensor, Tensor]  # features of the entities in layer 0 (the heads), 1 and 2
    stays: tuple[Tensor, Tensor, Tensor]  # place in the layer before of what stays from there, or -1; [entities] each
    tails: Tensor  # [pairs, features] of the tail
    pairs: Tensor  # [pairs, features]
    profile_pairs: Tensor  # [entries] int64: the kinds of edges that leave each pair's tail: of which pair,
    profile_kinds: Tensor  # [entries] int64: which kind,
    profile_counts: Tensor  # [entries]: and the logarithm of 1 + how many

    @classmethod
    def joined(cls, parts: list[Walks], kind_count: int) -> Walks:
        """The walks of several tasks behind one another."""
        if len(parts) == 1:
            return parts[0]
        sizes = [[len(features) for features in part.entities] + [len(part.pairs)] for part in parts]
        starts = np.cumsum([[0] * (HOPS + 1), *sizes[:-1]], axis=0).tolist()
        kinds = [task * kind_count for task in range(len(parts))]

        def moved(tensors: list[Tensor], by: list[int]) -> Tensor:
            return torch.cat([tensor + shift for tensor, shift in zip(tensors, by, strict=True)])

        def shifts(layer: int) -> list[int]:
            return [start[layer] for start in starts]

        layers = [
            Layer(
                moved([part.layers[hop].sources for part in parts], shifts(hop)),
                moved([part.layers[hop].kinds for part in parts], kinds),
                moved([part.layers[hop].targets for part in parts], shifts(hop + 1)),
                torch.cat([part.layers[hop].log_fans for part in parts]),
            )
            for hop in range(HOPS)
        ]
        stays = [
            torch.cat(
                [
                    torch.where(part.stays[hop] >= 0, part.stays[hop] + shift, -1)
                    for part, shift in zip(parts, shifts(hop), strict=True)
                ]
            )
            for hop in range(HOPS)
        ]
        entities = [torch.cat([part.entities[hop] for part in parts]) for hop in range(HOPS)]
        return cls(
            (layers[0], layers[1], layers[2]),
            (entities[0], entities[1], entities[2]),
            (stays[0], stays[1], stays[2]),
            torch.cat([part.tails for part in parts]),
            torch.cat([part.pairs for part in parts]),
            moved([part.profile_pairs for part in parts], shifts(HOPS)),
            moved([part.profile_kinds for part in parts], kinds),
            torch.cat([part.profile_counts for part in parts]),
        )


def walks(evidence: ReferenceEvidence, heads: IntArray, tails: IntArray) -> Walks:
    """The walks from each head [queries] to its tails [queries, width]; the pairs are numbered row by row."""
    graph, hidden = evidence.graph, evidence.hidden
    queries, width = tails.shape
    flat = tails.ravel()
    # Walked backwards from the tails, to know which entities can be the last but one.
    back = graph.leaving(flat, hidden)
    sources = graph.targets[back.numbers]
    place = np.full(graph.entity_count, -1, np.int32)
    place[sources] = 0
    place[flat] = 0
    ends = np.flatnonzero(place == 0)
    place[ends] = np.arange(len(ends))
    back_queries = back.owners // width
    wanted = np.zeros((queries, len(ends)), bool)
    wanted[back_queries, place[sources]] = True
    wanted[np.repeat(np.arange(queries), width), place[flat]] = True
    # The first hop.
    first = graph.leaving(heads, hidden)
    keys = first.owners * graph.entity_count + graph.targets[first.numbers]
    own = np.arange(queries) * graph.entity_count + heads
    near = np.unique(np.concatenate([keys, own]))
    near_queries, near_entities = np.divmod(near, graph.entity_count)
    from_heads = np.full(len(near), -1)
    from_heads[np.searchsorted(near, own)] = np.arange(queries)
    first_targets = np.searchsorted(near, keys)
    # The second, where it leads to what is wanted.
    second = graph.leaving(near_entities, hidden)
    second_queries = near_queries[second.owners]
    second_places = place[graph.targets[second.numbers]]
    fits = second_places >= 0
    fits[fits] = wanted[second_queries[fits], second_places[fits]]
    owners, numbers = second.owners[fits], second.numbers[fits]
    second_queries, second_places = second_queries[fits], second_places[fits]
    reached = np.full((queries, len(ends)), -1, np.int32)
    reached[second_queries, second_places] = 0
    near_places = place[near_entities]
    staying = np.flatnonzero(near_places >= 0)
    staying = staying[wanted[near_queries[staying], near_places[staying]]]
    reached[near_queries[staying], near_places[staying]] = 0
    far_queries, far_places = np.nonzero(reached == 0)
    reached[far_queries, far_places] = np.arange(len(far_queries))
    from_near = np.full(len(far_queries), -1)
    from_near[reached[near_queries[staying], near_places[staying]]] = staying
    # The third, which was walked backwards.
    third_sources = reached[back_queries, place[sources]]
    arrives = np.flatnonzero(third_sources >= 0)
    third_sources, third_targets = third_sources[arrives], back.owners[arrives]
    third_numbers = back.numbers[arrives]
    third_kinds = graph.inverse(graph.kinds[third_numbers])
    layers = (
        _layer(first.owners, graph.kinds[first.numbers], first_targets, graph.log_fans[first.numbers]),
        _layer(
            owners, graph.kinds[numbers], reached[second_queries, second_places], graph.log_fans[numbers]
        ),
        _layer(third_sources, third_kinds, third_targets, graph.log_fans[third_numbers][:, ::-1]),
    )
    ends_in = reached[np.repeat(np.arange(queries), width), place[flat]]
    features = np.zeros((queries * width, len(PAIR_FEATURES)), np.float32)
    features[:, 0] = np.repeat(heads, width) == flat
    is_head = (from_near >= 0) & (from_heads[from_near] >= 0)  # of what is reached in two hops or fewer
    features[:, 1] = np.log1p(np.bincount(third_targets[is_head[third_sources]], minlength=len(flat)))
    features[:, 2:5] = _rule_features(
        evidence,
        (first_targets, graph.kinds[first.numbers], len(near)),
        (from_near[third_sources], third_kinds, third_targets, len(flat)),
    )
    features[:, 5:7] = _alike(evidence, heads, tails)
    features[:, 7] = len(evidence.pairs) / 5
    features[:, 8] = len(np.unique(evidence.pairs[:, TAIL])) / len(evidence.pairs)
    features[:, 9] = len(np.unique(evidence.pairs[:, HEAD])) / len(evidence.pairs)
    entries = graph.profiles(flat, hidden)
    describe = evidence.entity_features
    return Walks(
        layers,
        (_float(describe(heads)), _float(describe(near_entities)), _float(describe(ends[far_places]))),
        (_long(from_heads), _long(from_near), _long(ends_in)),
        _float(describe(flat)),
        _float(features),
        _long(entries.owners),
        _long(graph.profile_kinds[entries.numbers]),
        _float(np.log1p(graph.profile_counts[entries.numbers])),
    )


def _rule_features(
    evidence: ReferenceEvidence,
    first: tuple[NDArray[np.int64], IntArray, int],
    last: tuple[NDArray[np.int64], IntArray, NDArray[np.int64], int],
) -> FloatArray:
    """Support and confidence of the two-hop rules that lead to each pair's tail, [pairs, 3]."""
    rules = evidence.rules
    first_targets, first_kinds, near_count = first
    middles, last_kinds, pairs, pair_count = last
    via = np.flatnonzero(middles >= 0)
    order = np.argsort(first_targets, kind="stable")
    numbers, owners = expand_rows(row_offsets(first_targets, near_count), middles[via])
    keys = first_kinds[order[numbers]].astype(np.int64) * evidence.graph.kind_count + last_kinds[via[owners]]
    found = rules.find(keys)
    hits = np.flatnonzero(found < len(rules.keys))
    targets, found = torch.from_numpy(pairs[via[owners[hits]]].astype(np.int64)), found[hits]
    features = torch.zeros(pair_count, 3)
    support, confidence = torch.from_numpy(rules.support[found]), torch.from_numpy(rules.confidence[found])
    features[:, 0].scatter_reduce_(0, targets, support, "amax")
    features[:, 1].scatter_reduce_(0, targets, confidence, "amax")
    features[:, 2].index_add_(0, targets, confidence)
    features[:, 2] = torch.asinh(features[:, 2])
    return np.asarray(features.numpy())


def _alike(evidence: ReferenceEvidence, heads: IntArray, tails: IntArray) -> FloatArray:
    """How far one reference is like head and tail at once, by profile and by shared tuples, [pairs, 2]."""
    of_heads = evidence.similarities(heads)[:, HEAD]  # [2, queries, shots]
    distinct, places = np.unique(tails, return_inverse=True)
    of_tails = evidence.similarities(distinct)[:, TAIL]
    best = np.zeros((2, *tails.shape), np.float32)
    for shot in range(len(evidence.pairs)):
        both = of_heads[:, :, shot, None] * of_tails[:, :, shot][:, places.reshape(tails.shape)]
        np.maximum(best, both, out=best)
    return best.reshape(2, -1).T


def _layer(sources: IntArray, kinds: IntArray, targets: IntArray, log_fans: FloatArray) -> Layer:
    return Layer(_long(sources), _long(kinds), _long(targets), _float(log_fans))


def _long(numbers: IntArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.int64))


def _float(numbers: FloatArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.float32))
