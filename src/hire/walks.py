"""All walks of up to three hops from heads to tails, as layers of edges for message passing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.evidence import Edges, FloatArray
from hire.graph import expand_rows, row_offsets
from hire.references import FEATURE, HEAD, TAIL, ReferenceEvidence
from hire.vocabulary import IntArray

PAIR_FEATURES = (  # of a head and a tail
    "is the head",
    "links",
    "rule support",  # the best of the two-hop rules that lead from head to tail
    "rule confidence",
    "rule confidence, sum",
    "like one reference",  # head like its head and tail like its tail, by profile
    "shares with one reference",
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
class TailInputs:
    """What a network is told of tails before a head is known."""

    features: Tensor  # [tails, features]: those of an entity, then those of the references as a whole
    profile_owners: Tensor  # [entries] int64: of the kinds of edges that leave the tails, which tail,
    profile_kinds: Tensor  # [entries] int64: which kind, with the number of the task times that of kinds added,
    profile_counts: Tensor  # [entries]: and the logarithm of 1 + how many

    @classmethod
    def joined(cls, parts: list[TailInputs], kind_count: int) -> TailInputs:
        """The tails of several tasks behind one another."""
        starts = np.cumsum([0, *(len(part.features) for part in parts[:-1])]).tolist()
        return cls(
            torch.cat([part.features for part in parts]),
            _moved([part.profile_owners for part in parts], starts),
            _moved([part.profile_kinds for part in parts], [task * kind_count for task in range(len(parts))]),
            torch.cat([part.profile_counts for part in parts]),
        )


@dataclass(frozen=True)
class Tails:
    """Some entities as possible tails of a task."""

    entities: NDArray[np.int64]  # [tails], distinct
    back: Edges  # the edges that leave them, which walks arrive on the other way round
    similarities: FloatArray  # [2, tails, shots]: to the reference tails, by profile and by shared tuples
    inputs: TailInputs

    @classmethod
    def of(cls, evidence: ReferenceEvidence, entities: IntArray) -> Tails:
        """Some distinct entities as tails."""
        graph = evidence.graph
        entities = np.asarray(entities, np.int64)
        entries = graph.profiles(entities, evidence.hidden)
        features = evidence.entity_features(entities)
        of_task = np.broadcast_to(evidence.summary, (len(entities), len(evidence.summary)))
        inputs = TailInputs(
            _float(np.concatenate([features, of_task], axis=1)),
            _long(entries.owners),
            _long(graph.profile_kinds[entries.numbers]),
            _float(np.log1p(graph.profile_counts[entries.numbers])),
        )
        back = graph.leaving(entities, evidence.hidden)
        return cls(entities, back, evidence.similarities(entities, TAIL), inputs)


@dataclass(frozen=True)
class Walks:
    """What a network needs to score pairs of heads and tails of one or several tasks."""

    layers: tuple[Layer, Layer, Layer]
    numbers: tuple[IntArray, IntArray, IntArray]  # of the entities in layer 0 (the heads), 1 and 2
    heads: Tensor  # [heads, features]
    near: Tensor  # [entities of layer 1, features]
    degrees: tuple[Tensor, Tensor, Tensor]  # log(1 + degree) / 5 of the entities of each layer
    stays: tuple[Tensor, Tensor, Tensor]  # place in the layer before of what stays from there, or -1; [entities] each
    tails: Tensor  # [pairs] int64: place of each pair's tail among the tails
    pairs: Tensor  # [pairs, features]

    @classmethod
    def joined(cls, parts: list[Walks], tail_counts: list[int], kind_count: int) -> Walks:
        """The walks of several tasks behind one another."""
        sizes = [[*map(len, part.numbers), len(part.pairs)] for part in parts]
        starts = np.cumsum([[0] * (HOPS + 1), *sizes[:-1]], axis=0).T.tolist()  # of each layer, in each part
        kinds = [task * kind_count for task in range(len(parts))]

        def layer(hop: int) -> Layer:
            layers = [part.layers[hop] for part in parts]
            return Layer(
                _moved([layer.sources for layer in layers], starts[hop]),
                _moved([layer.kinds for layer in layers], kinds),
                _moved([layer.targets for layer in layers], starts[hop + 1]),
                torch.cat([layer.log_fans for layer in layers]),
            )

        def stays(hop: int) -> Tensor:
            return _moved([part.stays[hop] for part in parts], starts[hop])

        numbers = [np.concatenate([part.numbers[hop] for part in parts]) for hop in range(HOPS)]
        degrees = [torch.cat([part.degrees[hop] for part in parts]) for hop in range(HOPS)]
        return cls(
            (layer(0), layer(1), layer(2)),
            (numbers[0], numbers[1], numbers[2]),
            torch.cat([part.heads for part in parts]),
            torch.cat([part.near for part in parts]),
            (degrees[0], degrees[1], degrees[2]),
            (stays(0), stays(1), stays(2)),
            _moved([part.tails for part in parts], np.cumsum([0, *tail_counts[:-1]]).tolist()),
            torch.cat([part.pairs for part in parts]),
        )


def _moved(tensors: list[Tensor], by: list[int]) -> Tensor:
    """Numbers of several parts behind one another, each part's moved by a number; -1 stays."""
    return torch.cat([torch.where(part >= 0, part + shift, part) for part, shift in zip(tensors, by, strict=True)])


def walks(evidence: ReferenceEvidence, heads: IntArray, tails: Tails, chosen: IntArray | None = None) -> Walks:
    """The walks from each head [queries] to all tails, or to chosen ones [queries, width] by their place among them.

    The pairs of head and tail are numbered row by row.
    """
    graph, hidden = evidence.graph, evidence.hidden
    heads = np.asarray(heads, np.int64)
    queries = len(heads)
    sources = graph.targets[tails.back.numbers]
    # Only what is linked to a tail, or is one, can be reached last but one.
    place = np.full(graph.entity_count, -1, np.int32)
    place[sources] = 0
    place[tails.entities] = 0
    ends = np.flatnonzero(place == 0)
    place[ends] = np.arange(len(ends))
    # An arrival is a last hop, walked backwards: the pair at whose tail it ends, and the edge that leaves the tail.
    if chosen is None:
        chosen = np.broadcast_to(np.arange(len(tails.entities)), (queries, len(tails.entities)))
        arrivals = None
        wanted = np.ones((queries, len(ends)), bool)
    else:
        offsets = row_offsets(tails.back.owners, len(tails.entities))
        arrivals = Arrivals(*expand_rows(offsets, chosen.ravel()))
        wanted = np.zeros((queries, len(ends)), bool)
        wanted[arrivals.pairs // chosen.shape[1], place[sources[arrivals.edges]]] = True
        wanted[np.arange(queries)[:, None], place[tails.entities[chosen]]] = True
    width = chosen.shape[1]
    # The first hop.
    first = graph.leaving(heads, hidden)
    keys = first.owners * graph.entity_count + graph.targets[first.numbers]
    own = np.arange(queries) * graph.entity_count + heads
    near = np.unique(np.concatenate([keys, own]))
    near_queries, near_entities = np.divmod(near, graph.entity_count)
    from_heads = np.full(len(near), -1)
    from_heads[np.searchsorted(near, own)] = np.arange(queries)
    first_targets = np.searchsorted(near, keys)
    # The second hop, where it leads to what is wanted; what is near already may stay.
    second = graph.leaving(near_entities, hidden)
    second_cells = _cells(near_queries[second.owners], place[graph.targets[second.numbers]], wanted)
    leads = second_cells >= 0
    stay_cells = _cells(near_queries, place[near_entities], wanted)
    stays = np.flatnonzero(stay_cells >= 0)
    reached = np.full(wanted.size, -1, np.int32)
    reached[second_cells[leads]] = 0
    reached[stay_cells[stays]] = 0
    far = np.flatnonzero(reached == 0)
    reached[far] = np.arange(len(far))
    from_near = np.full(len(far), -1)
    from_near[reached[stay_cells[stays]]] = stays
    reached = reached.reshape(wanted.shape)
    # The third hop.
    if arrivals is None:
        rows, edges = np.nonzero(reached[:, place[sources]] >= 0)
        arrivals = Arrivals(edges, rows * width + tails.back.owners[edges])
    else:
        arrives = reached[arrivals.pairs // width, place[sources[arrivals.edges]]] >= 0
        arrivals = Arrivals(arrivals.edges[arrives], arrivals.pairs[arrives])
    third_sources = reached[arrivals.pairs // width, place[sources[arrivals.edges]]]
    third_numbers = tails.back.numbers[arrivals.edges]
    third_kinds = graph.inverse(graph.kinds[third_numbers])
    second_numbers = second.numbers[leads]
    layers = (
        _layer(first.owners, graph.kinds[first.numbers], first_targets, graph.log_fans[first.numbers]),
        _layer(
            second.owners[leads],
            graph.kinds[second_numbers],
            reached.ravel()[second_cells[leads]],
            graph.log_fans[second_numbers],
        ),
        _layer(third_sources, third_kinds, arrivals.pairs, graph.log_fans[third_numbers][:, ::-1]),
    )
    features = np.zeros((queries * width, len(PAIR_FEATURES)), np.float32)
    features[:, 0] = (heads[:, None] == tails.entities[chosen]).ravel()
    is_head = (from_near >= 0) & (from_heads[from_near] >= 0)
    features[:, 1] = np.log1p(np.bincount(arrivals.pairs[is_head[third_sources]], minlength=len(features)))
    features[:, 2:5] = _rule_features(
        evidence,
        (first_targets, graph.kinds[first.numbers], len(near)),
        (from_near[third_sources], third_kinds, arrivals.pairs, len(features)),
    )
    features[:, 5:] = _alike(evidence, heads, tails, chosen)
    numbers = (heads, near_entities, ends[far % max(1, len(ends))])
    of_heads, of_near = (_float(evidence.entity_features(entities)) for entities in numbers[:2])
    column = FEATURE["degree"]
    return Walks(
        layers,
        numbers,
        of_heads,
        of_near,
        (of_heads[:, column], of_near[:, column], _float(evidence.degrees(numbers[2]))),
        (
            _long(from_heads),
            _long(from_near),
            _long(reached[np.arange(queries)[:, None], place[tails.entities[chosen]]].ravel()),
        ),
        _long(chosen.ravel()),
        _float(features),
    )


class Arrivals(NamedTuple):
    """Last hops: the place of the edge among those that leave the tails, and the pair of head and tail."""

    edges: NDArray[np.int64]
    pairs: NDArray[np.int64]


def _cells(rows: IntArray, columns: IntArray, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of each cell of a table, or -1 where the column is -1 or the cell not wanted."""
    cells = rows * wanted.shape[1] + columns
    return np.where((columns >= 0) & wanted.ravel()[np.where(columns >= 0, cells, 0)], cells, -1)


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
    targets, found = pairs[via[owners[hits]]], found[hits]
    best = _best(np.stack([rules.support[found], rules.confidence[found]]), targets, pair_count)
    total = np.bincount(targets, rules.confidence[found], minlength=pair_count)
    return np.column_stack([best, np.arcsinh(total)]).astype(np.float32)


def _best(values: FloatArray, targets: IntArray, count: int) -> FloatArray:
    """The largest of some positive values [figures, n] for each target, or zero, [count, figures]."""
    best = torch.zeros(count, len(values))
    index = _long(targets)[:, None].expand(-1, len(values))
    return np.asarray(best.scatter_reduce_(0, index, _float(values.T), "amax").numpy())


def _alike(evidence: ReferenceEvidence, heads: IntArray, tails: Tails, chosen: IntArray) -> FloatArray:
    """How far one reference is like head and tail at once, by profile and by shared tuples, [pairs, 2]."""
    of_heads = evidence.similarities(heads, HEAD)  # [2, queries, shots]
    best = np.zeros((2, *chosen.shape), np.float32)
    for shot in np.flatnonzero(of_heads.any(axis=(0, 1))):
        both = of_heads[:, :, shot, None] * tails.similarities[:, :, shot][:, chosen]
        np.maximum(best, both, out=best)
    return best.reshape(2, -1).T


def _layer(sources: IntArray, kinds: IntArray, targets: IntArray, log_fans: FloatArray) -> Layer:
    return Layer(_long(sources), _long(kinds), _long(targets), _float(log_fans))


def _long(numbers: IntArray) -> Tensor:
    return torch.from_numpy(np.array(numbers, np.int64))


def _float(numbers: FloatArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.float32))
