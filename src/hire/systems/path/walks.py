"""All walks of up to three hops from heads to tails, as layers of edges for message passing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.systems.path import kernels, walk_kernels
from hire.systems.path.features import FEATURE, HEAD, TAIL, ReferenceEvidence
from hire.systems.path.graph import Edges
from hire.systems.path.positions import Positions
from hire.util.arrays import FloatArray, IntArray, distinct, row_offsets

PAIR_FEATURES = (  # of a head and a tail
    "is the head",
    "links",
    "rule support",  # the best of the two-hop rules that lead from head to tail
    "rule confidence",
    "rule confidence, sum",
    "like one reference",  # head similar to its head and tail similar to its tail, by profile
    "shares with one reference",
)
HOPS = 3


@dataclass(frozen=True)
class Layer:
    """The edges of one hop, from the nodes of a layer to those of the next."""

    sources: Tensor  # [edges] int32: position among the nodes of the previous layer
    edge_types: Tensor  # [edges] int32: index of the task * number of edge types + edge type
    targets: Tensor  # [edges] int32: position among the nodes of this layer; after the last hop, among reached pairs
    levels: Tensor  # [edges, 2] int16: of the fan-outs at the source and at the target


@dataclass(frozen=True)
class TailInputs:
    """The inputs of a network that depend on the tails, but not on the heads."""

    features: Tensor  # [tails, features]: those of the entity, then those of the references as a whole
    profile_owners: Tensor  # [entries] int64: the tail that each profile entry belongs to
    profile_edge_types: Tensor  # [entries] int64: index of the task * number of edge types + edge type
    profile_counts: Tensor  # [entries]: log(1 + number of edges)

    @classmethod
    def of(cls, evidence: ReferenceEvidence, entities: IntArray, features: FloatArray) -> TailInputs:
        """Some entities as tails of a task, and their features."""
        graph = evidence.graph
        entries = graph.profiles(entities, evidence.hidden)
        of_task = np.broadcast_to(evidence.summary, (len(entities), len(evidence.summary)))
        return cls(
            _float(np.concatenate([features, of_task], axis=1)),
            _long(entries.owners),
            _long(graph.profile_edge_types[entries.ids]),
            _float(np.log1p(graph.entry_counts(entries.ids))),
        )

    @classmethod
    def joined(cls, parts: list[TailInputs], edge_type_count: int) -> TailInputs:
        """The tails of several tasks, concatenated."""
        starts = np.cumsum([0, *(len(part.features) for part in parts[:-1])]).tolist()
        return cls(
            torch.cat([part.features for part in parts]),
            _shifted([part.profile_owners for part in parts], starts),
            _shifted(
                [part.profile_edge_types for part in parts], [task * edge_type_count for task in range(len(parts))]
            ),
            torch.cat([part.profile_counts for part in parts]),
        )


class ByEnd(NamedTuple):
    """The edges that arrive at tails, in compressed rows by the end that they start from."""

    offsets: NDArray[np.int64]  # [ends + 2]
    tails: NDArray[np.int32]  # [edges]
    edge_types: NDArray[np.int32]
    levels: NDArray[np.int16]  # [edges, 2]


@dataclass(frozen=True)
class Tails:
    """Some entities as possible tails of a task."""

    entities: NDArray[np.int64]  # [tails]
    offsets: NDArray[np.int64]  # [tails + 1]: where the edges that arrive at each tail start
    edge_types: NDArray[np.int32]  # [edges]
    levels: NDArray[np.int16]  # [edges, 2]: of the fan-outs at the source and at the target
    sources: NDArray[np.int32]  # [edges]: position of the source among the ends
    own: NDArray[np.int32]  # [tails]: position of the tail among the ends
    similarities: FloatArray  # [2, tails, shots]: to the reference tails, by profile and by shared tuples
    inputs: TailInputs
    end_count: int  # of ends: the tails and their neighbors, where the last hop of a walk can start, or a walk can end
    position: Positions  # of the ends

    @classmethod
    def of(cls, evidence: ReferenceEvidence, entities: IntArray) -> Tails:
        """Some entities as tails."""
        graph = evidence.graph
        entities = np.asarray(entities, np.int64)
        back = graph.leaving(entities, evidence.hidden)  # walks arrive over their inverses
        ends = np.concatenate([entities, graph.targets[back.ids]])
        position, of_ends, end_count = Positions.of(ends, graph.entity_count)
        features, similarities = evidence.described(entities)
        return cls(
            entities,
            row_offsets(back.owners, len(entities)),
            graph.inverse(graph.edge_types[back.ids]).astype(np.int32),
            np.ascontiguousarray(graph.levels_of(back.ids)[:, ::-1]),
            of_ends[len(entities) :],
            of_ends[: len(entities)],
            similarities[TAIL].copy(),  # the other half is not needed
            TailInputs.of(evidence, entities, features),
            end_count,
            position,
        )

    @cached_property
    def _everything(self) -> Tensor:
        return torch.arange(len(self.entities))

    def columns(self, heads: int) -> Tensor:
        """The position of each pair's tail, for pairs of so many heads with all tails, [pairs]."""
        return self._everything if heads == 1 else self._everything.repeat(heads)

    @cached_property
    def by_end(self) -> ByEnd:
        """The edges by where they start: from few ends, that is quicker than to look at all tails."""
        found = ByEnd(
            np.zeros(self.end_count + 2, np.int64),
            np.empty(len(self.sources), np.int32),
            np.empty_like(self.edge_types),
            np.empty_like(self.levels),
        )
        walk_kernels.order_by_end(self.offsets, self.edge_types, self.levels, self.sources, *found)
        return found


@dataclass(frozen=True)
class Walks:
    """The inputs of a network that depend on the heads, for pairs of heads and tails of one or several tasks."""

    layers: tuple[Layer, Layer, Layer]
    nodes: tuple[IntArray, IntArray, IntArray]  # entity ids in layer 0 (the heads), 1 and 2
    heads: Tensor  # [heads, features]
    near: Tensor  # [nodes of layer 1, features]
    degrees: tuple[Tensor, Tensor, Tensor]  # log(1 + degree) / 5 of the nodes of each layer
    stays: tuple[Tensor, Tensor, Tensor]  # [targets] each: position of the same node in the previous layer, or -1
    reached: Tensor  # [reached] int64: the pairs whose tail is reached by a walk; often few
    tails: Tensor  # [pairs] int64: position of each pair's tail among the tails
    pairs: Tensor  # [pairs, features]
    one_by_one: bool = False  # whether the pairs are one head with all tails, in their order

    @cached_property
    def kept(self) -> tuple[Tensor, Tensor, Tensor]:
        """`stays`, with the number of nodes in the previous layer in place of -1."""
        first, second, third = (
            torch.where(stays >= 0, stays, len(nodes)) for stays, nodes in zip(self.stays, self.nodes, strict=True)
        )
        return first, second, third

    @classmethod
    def joined(cls, parts: list[Walks], tail_counts: list[int], edge_type_count: int) -> Walks:
        """The walks of several tasks, concatenated."""
        sizes = [[*map(len, part.nodes), len(part.reached), len(part.pairs)] for part in parts]
        starts = np.cumsum(
            [[0] * (HOPS + 2), *sizes[:-1]], axis=0
        ).T.tolist()  # of each layer and of the pairs, per part
        first_types = [task * edge_type_count for task in range(len(parts))]

        def layer(hop: int) -> Layer:
            layers = [part.layers[hop] for part in parts]
            return Layer(
                _shifted([layer.sources for layer in layers], starts[hop]),
                _shifted([layer.edge_types for layer in layers], first_types),
                _shifted([layer.targets for layer in layers], starts[hop + 1]),
                torch.cat([layer.levels for layer in layers]),
            )

        def stays(hop: int) -> Tensor:
            return _shifted([part.stays[hop] for part in parts], starts[hop])

        nodes = [np.concatenate([part.nodes[hop] for part in parts]) for hop in range(HOPS)]
        degrees = [torch.cat([part.degrees[hop] for part in parts]) for hop in range(HOPS)]
        return cls(
            (layer(0), layer(1), layer(2)),
            (nodes[0], nodes[1], nodes[2]),
            torch.cat([part.heads for part in parts]),
            torch.cat([part.near for part in parts]),
            (degrees[0], degrees[1], degrees[2]),
            (stays(0), stays(1), stays(2)),
            _shifted([part.reached for part in parts], starts[-1]),
            _shifted([part.tails for part in parts], np.cumsum([0, *tail_counts[:-1]]).tolist()),
            torch.cat([part.pairs for part in parts]),
        )


def _shifted(tensors: list[Tensor], by: list[int]) -> Tensor:
    """The positions of several parts, concatenated, each part shifted by its own offset; -1 stays -1."""
    return torch.cat([torch.where(part >= 0, part + shift, part) for part, shift in zip(tensors, by, strict=True)])


class _Near(NamedTuple):
    """The first hop, and the nodes that it leads to, the heads among them."""

    edges: Edges  # the first hop; owners are queries
    targets: IntArray  # [edges]: position among the nodes
    queries: IntArray  # [nodes]: the query whose walks reach the node
    nodes: IntArray  # [nodes]
    stays: IntArray  # [nodes]: position of the same node among the heads, or -1


def walks(evidence: ReferenceEvidence, heads: IntArray, tails: Tails, chosen: IntArray | None = None) -> Walks:
    """The walks from each head [queries] to all tails, or to those at chosen positions [queries, width].

    Pairs of head and tail are in row-major order.
    """
    graph = evidence.graph
    heads = np.asarray(heads, np.int64)
    some = np.zeros((0, 0), np.int64) if chosen is None else np.asarray(chosen, np.int64)
    near = _first_hop(evidence, heads)
    second, far, cells = _second_hop(evidence, near, tails, some)
    if chosen is None and len(heads) == 1:
        third, reached, stays = _last_hop_of_one(tails, far[:, 0], cells[0])
    else:
        third, reached, stays = _last_hop(tails, cells, some)
    width = len(tails.entities) if chosen is None else some.shape[1]
    features = np.zeros((len(heads) * width, len(PAIR_FEATURES)), np.float32)
    asked = tails.entities if chosen is None else tails.entities[some]
    features[:, 0] = (asked == heads[:, None]).ravel()
    near_features, similarities = evidence.described(near.nodes)
    own = np.flatnonzero(near.stays >= 0)
    own = own[np.argsort(near.stays[own])]  # the positions of the heads among the near nodes
    first_types = graph.edge_types[near.edges.ids]
    kernels.describe_walks(
        third.sources.numpy(),
        third.edge_types.numpy(),
        third.targets.numpy(),
        reached,
        far[:, 1].copy(),
        near.stays,
        row_offsets(near.targets, len(near.nodes)),
        first_types[np.argsort(near.targets, kind="stable")].astype(np.int64),
        evidence.rules.keys,
        evidence.rules.support,
        evidence.rules.confidence,
        graph.edge_type_count,
        features,
    )
    kernels.match_references(similarities[HEAD].take(own, axis=1), tails.similarities, some, features[:, 5:])
    of_near, of_heads = torch.from_numpy(near_features), torch.from_numpy(near_features[own])
    first = _layer(near.edges.owners, first_types, near.targets, graph.levels_of(near.edges.ids))
    return Walks(
        (first, second, third),
        (heads, near.nodes, far[:, 0]),
        of_heads,
        of_near,
        (of_heads[:, FEATURE["degree"]], of_near[:, FEATURE["degree"]], _float(evidence.degrees(far[:, 0]))),
        (_long(near.stays), _long(far[:, 1]), _long(stays)),
        _long(reached),
        tails.columns(len(heads)) if chosen is None else _long(some.ravel()),
        _float(features),
        chosen is None and len(heads) == 1,
    )


def nodes_within_two_hops(evidence: ReferenceEvidence, head: int) -> IntArray:
    """The nodes that a walk of at most two hops from a head leads to, the head among them, with duplicates."""
    graph, near = evidence.graph, _first_hop(evidence, np.array([head])).nodes
    passed = near[graph.passable(near, evidence.hidden)]
    return np.concatenate([near, graph.targets[graph.leaving(passed, evidence.hidden).ids]])


def _first_hop(evidence: ReferenceEvidence, heads: IntArray) -> _Near:
    graph = evidence.graph
    edges = graph.leaving(heads, evidence.hidden)
    keys = edges.owners * graph.entity_count + graph.targets[edges.ids]
    own = np.arange(len(heads)) * graph.entity_count + heads
    near = distinct(np.concatenate([keys, own]))
    stays = np.full(len(near), -1)
    stays[np.searchsorted(near, own)] = np.arange(len(heads))
    return _Near(edges, np.searchsorted(near, keys), *np.divmod(near, graph.entity_count), stays)


def _second_hop(
    evidence: ReferenceEvidence, near: _Near, tails: Tails, chosen: IntArray
) -> tuple[Layer, IntArray, NDArray[np.int32]]:
    """The edges to ends from which the tails can be reached, the far layer, and each end's position in it.

    The last two are those of `walk_kernels.second_hop`.
    """
    graph, queries = evidence.graph, int(near.queries[-1]) + 1 if len(near.queries) else 0
    cells = np.full((queries, tails.end_count), -1, np.int32)
    wanted = np.zeros(cells.shape if len(chosen) else (0, 0), bool)
    if len(chosen):
        walk_kernels.want_ends(tails.offsets, tails.sources, tails.own, chosen, wanted)
    passable = graph.passable(near.nodes, evidence.hidden)
    most = int((graph.offsets[near.nodes + 1] - graph.offsets[near.nodes])[passable].sum())
    far = np.empty((min(most + len(near.nodes), cells.size), 2), np.int64)
    sources, targets, ids = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)
    count, nodes = walk_kernels.second_hop(
        graph.offsets,
        graph.edge_types,
        graph.targets,
        graph.hides(evidence.hidden),
        graph.removed_edges,
        near.queries,
        near.nodes,
        passable,
        tails.position,
        wanted,
        cells,
        sources,
        targets,
        ids,
        far,
    )
    ids = ids[:count]
    layer = _layer(sources[:count], graph.edge_types[ids], targets[:count], graph.levels_of(ids))
    return layer, far[:nodes], cells


def _last_hop(
    tails: Tails, cells: NDArray[np.int32], chosen: IntArray
) -> tuple[Layer, NDArray[np.int64], NDArray[np.int64]]:
    """The edges that arrive at tails, the pairs that are reached, and which of them were reached before."""
    most, pairs = len(cells) * len(tails.sources), len(cells) * len(tails.entities)
    if len(chosen):
        most, pairs = walk_kernels.count_last_edges(tails.offsets, chosen), chosen.size
    sources, edge_types, targets = (np.empty(most, np.int32) for _ in range(HOPS))
    levels = np.empty((most, 2), np.int16)
    reached, stays = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    count, pairs = walk_kernels.last_hop(
        tails.offsets,
        tails.edge_types,
        tails.levels,
        tails.sources,
        tails.own,
        chosen,
        cells,
        sources,
        edge_types,
        targets,
        levels,
        reached,
        stays,
    )
    return _layer(sources[:count], edge_types[:count], targets[:count], levels[:count]), reached[:pairs], stays[:pairs]


def _last_hop_of_one(
    tails: Tails, far: IntArray, cells: NDArray[np.int32]
) -> tuple[Layer, NDArray[np.int64], NDArray[np.int64]]:
    """The same for one head and all tails, from the nodes of the far layer."""
    by_end, far_ends = tails.by_end, tails.position.find(far)
    count = int((by_end.offsets[far_ends + 1] - by_end.offsets[far_ends]).sum())
    sources, edge_types, targets = (np.empty(count, np.int32) for _ in range(HOPS))
    levels = np.empty((count, 2), np.int16)
    reached, stays = np.empty(len(tails.entities), np.int64), np.empty(len(tails.entities), np.int64)
    pairs = walk_kernels.last_hop_of_one(
        *by_end,
        far_ends,
        cells,
        tails.own,
        np.zeros(len(tails.entities), np.int32),
        sources,
        edge_types,
        targets,
        levels,
        reached,
        stays,
    )
    walked, types, ends, fan_outs = (torch.from_numpy(part) for part in (sources, edge_types, targets, levels))
    return Layer(walked, types, ends, fan_outs), reached[:pairs], stays[:pairs]


def _layer(sources: IntArray, edge_types: IntArray, targets: IntArray, levels: IntArray) -> Layer:
    # Copies, because the arrays may be the beginnings of much larger ones.
    arrays = (np.array(part, np.int32) for part in (sources, edge_types, targets))
    walked, types, reached = (torch.from_numpy(array) for array in arrays)
    return Layer(walked, types, reached, torch.from_numpy(np.array(levels, np.int16)))


def _long(values: IntArray) -> Tensor:
    return torch.from_numpy(np.array(values, np.int64))


def _float(values: FloatArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))
