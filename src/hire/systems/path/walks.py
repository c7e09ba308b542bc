"""All walks of up to three hops from heads to tails, as layers of edges for message passing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.systems.path.features import FEATURE, HEAD, TAIL, ReferenceEvidence
from hire.systems.path.graph import Edges
from hire.util.arrays import FloatArray, IntArray, expand_rows, positions_in, row_offsets

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

    sources: Tensor  # [edges] int64: position among the nodes of the previous layer
    edge_types: Tensor  # [edges] int64: index of the task * number of edge types + edge type
    targets: Tensor  # [edges] int64: position among the nodes of this layer; after the last hop, among reached pairs
    log_fan_outs: Tensor  # [edges, 2]: at the source, at the target


@dataclass(frozen=True)
class TailInputs:
    """The inputs of a network that depend on the tails, but not on the heads."""

    features: Tensor  # [tails, features]: those of the entity, then those of the references as a whole
    profile_owners: Tensor  # [entries] int64: the tail that each profile entry belongs to
    profile_edge_types: Tensor  # [entries] int64: index of the task * number of edge types + edge type
    profile_counts: Tensor  # [entries]: log(1 + number of edges)

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


@dataclass(frozen=True)
class Tails:
    """Some entities as possible tails of a task."""

    entities: NDArray[np.int64]  # [tails]
    back: Edges  # the edges that leave them; walks arrive over their inverses
    similarities: FloatArray  # [2, tails, shots]: to the reference tails, by profile and by shared tuples
    inputs: TailInputs
    ends: NDArray[np.int64]  # the tails and their neighbors: where the last hop of a walk can start, or a walk can end
    position: NDArray[np.int32]  # [entities]: the position of each entity in `ends`, or -1

    @classmethod
    def of(cls, evidence: ReferenceEvidence, entities: IntArray) -> Tails:
        """Some entities as tails."""
        graph = evidence.graph
        entities = np.asarray(entities, np.int64)
        back = graph.leaving(entities, evidence.hidden)
        position = np.full(graph.entity_count, -1, np.int32)
        position[graph.targets[back.ids]] = 0
        position[entities] = 0
        ends = np.flatnonzero(position == 0)
        position[ends] = np.arange(len(ends))
        entries = graph.profiles(entities, evidence.hidden)
        of_task = np.broadcast_to(evidence.summary, (len(entities), len(evidence.summary)))
        inputs = TailInputs(
            _float(np.concatenate([evidence.entity_features(entities), of_task], axis=1)),
            _long(entries.owners),
            _long(graph.profile_edge_types[entries.ids]),
            _float(np.log1p(graph.entry_counts(entries.ids))),
        )
        return cls(entities, back, evidence.similarities(entities, TAIL), inputs, ends, position)


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
                torch.cat([layer.log_fan_outs for layer in layers]),
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


class _Hop(NamedTuple):
    """Edges that are walked."""

    sources: IntArray  # [edges]: position in one layer
    targets: IntArray  # [edges]: position in the next layer
    edges: IntArray  # [edges]: ids


class _Reached(NamedTuple):
    """A layer: the nodes that walks have reached."""

    queries: IntArray  # [n]: the query whose walks reach the node
    nodes: IntArray  # [n]
    stays: IntArray  # [n]: position in the previous layer if the node is there too, or -1


def walks(evidence: ReferenceEvidence, heads: IntArray, tails: Tails, chosen: IntArray | None = None) -> Walks:
    """The walks from each head [queries] to all tails, or to those at chosen positions [queries, width].

    Pairs of head and tail are in row-major order.
    """
    graph = evidence.graph
    heads = np.asarray(heads, np.int64)
    queries = np.arange(len(heads))
    everything = np.broadcast_to(np.arange(len(tails.entities)), (len(heads), len(tails.entities)))
    columns = everything if chosen is None else chosen
    arrivals, wanted = _arrivals(evidence, tails, chosen, len(heads))
    first, near = _first_hop(evidence, heads)
    second, far, positions = _second_hop(evidence, near, tails, wanted)
    if arrivals is None:
        rows, edges = np.nonzero(positions[:, tails.position[graph.targets[tails.back.ids]]] >= 0)
        arrivals = _Hop(np.zeros(0, np.int64), rows * columns.shape[1] + tails.back.owners[edges], edges)
    third = _third_hop(evidence, arrivals, tails, positions, columns.shape[1])
    ends_in = positions[queries[:, None], tails.position[tails.entities[columns]]].ravel()
    ends = ends_in >= 0
    ends[third.targets] = True
    reached = np.flatnonzero(ends)
    of_heads, of_near = (_float(evidence.entity_features(nodes)) for nodes in (heads, near.nodes))
    degrees = (of_heads[:, FEATURE["degree"]], of_near[:, FEATURE["degree"]], _float(evidence.degrees(far.nodes)))
    last = third._replace(targets=np.searchsorted(reached, third.targets))
    return Walks(
        (_layer(evidence, first), _layer(evidence, second), _layer(evidence, last, backwards=True)),
        (heads, near.nodes, far.nodes),
        of_heads,
        of_near,
        degrees,
        (_long(near.stays), _long(far.stays), _long(ends_in[reached])),
        _long(reached),
        _long(columns.ravel()),
        _float(_pair_features(evidence, heads, tails, columns, first, third, near, far)),
    )


def _arrivals(
    evidence: ReferenceEvidence, tails: Tails, chosen: IntArray | None, queries: int
) -> tuple[_Hop | None, NDArray[np.bool_]]:
    """Possible last hops to chosen tails, as positions among the edges that leave the tails, and what they start from.

    The second result is [queries, ends]: which nodes should be reached before the last hop.
    """
    if chosen is None:
        return None, np.ones((queries, len(tails.ends)), bool)
    edges, pairs = expand_rows(row_offsets(tails.back.owners, len(tails.entities)), chosen.ravel())
    wanted = np.zeros((queries, len(tails.ends)), bool)
    sources = tails.position[evidence.graph.targets[tails.back.ids[edges]]]
    wanted[pairs // chosen.shape[1], sources] = True
    wanted[np.arange(queries)[:, None], tails.position[tails.entities[chosen]]] = True
    return _Hop(np.zeros(0, np.int64), pairs, edges), wanted


def _first_hop(evidence: ReferenceEvidence, heads: IntArray) -> tuple[_Hop, _Reached]:
    graph = evidence.graph
    edges = graph.leaving(heads, evidence.hidden)
    keys = edges.owners * graph.entity_count + graph.targets[edges.ids]
    own = np.arange(len(heads)) * graph.entity_count + heads
    near = np.unique(np.concatenate([keys, own]))
    stays = np.full(len(near), -1)
    stays[np.searchsorted(near, own)] = np.arange(len(heads))
    queries, nodes = np.divmod(near, graph.entity_count)
    return _Hop(edges.owners, np.searchsorted(near, keys), edges.ids), _Reached(queries, nodes, stays)


def _second_hop(
    evidence: ReferenceEvidence, near: _Reached, tails: Tails, wanted: NDArray[np.bool_]
) -> tuple[_Hop, _Reached, NDArray[np.int32]]:
    """The hop to wanted nodes, the layer of nodes reached by now, and their positions in it, [queries, ends]."""
    graph = evidence.graph
    passed = np.flatnonzero(graph.passable(near.nodes, evidence.hidden))
    edges = graph.leaving(near.nodes[passed], evidence.hidden)
    starts = passed[edges.owners]
    cells = _cells(near.queries[starts], tails.position[graph.targets[edges.ids]], wanted)
    leads = np.flatnonzero(cells >= 0)
    stay_cells = _cells(near.queries, tails.position[near.nodes], wanted)
    staying = np.flatnonzero(stay_cells >= 0)
    positions = np.full(wanted.size, -1, np.int32)
    positions[cells[leads]] = 0
    positions[stay_cells[staying]] = 0
    far = np.flatnonzero(positions == 0)
    positions[far] = np.arange(len(far))
    stays = np.full(len(far), -1)
    stays[positions[stay_cells[staying]]] = staying
    queries, ends = np.divmod(far, max(1, wanted.shape[1]))
    hop = _Hop(starts[leads], positions[cells[leads]], edges.ids[leads])
    return hop, _Reached(queries, tails.ends[ends], stays), positions.reshape(wanted.shape)


def _third_hop(
    evidence: ReferenceEvidence, arrivals: _Hop, tails: Tails, positions: NDArray[np.int32], width: int
) -> _Hop:
    """The last hops whose start was reached; their edges are those that leave the tails, to be inverted."""
    edges = tails.back.ids[arrivals.edges]
    sources = positions[arrivals.targets // width, tails.position[evidence.graph.targets[edges]]]
    arrives = np.flatnonzero(sources >= 0)
    return _Hop(sources[arrives], arrivals.targets[arrives], edges[arrives])


def _cells(rows: IntArray, columns: IntArray, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The flat index of each cell of a table, or -1 where the column is -1 or the cell is not wanted."""
    cells = rows * wanted.shape[1] + columns
    return np.where((columns >= 0) & wanted.ravel()[np.where(columns >= 0, cells, 0)], cells, -1)


def _pair_features(
    evidence: ReferenceEvidence,
    heads: IntArray,
    tails: Tails,
    columns: IntArray,
    first: _Hop,
    third: _Hop,
    near: _Reached,
    far: _Reached,
) -> FloatArray:
    """The features of each pair of head and tail, [pairs, PAIR_FEATURES]."""
    features = np.zeros((columns.size, len(PAIR_FEATURES)), np.float32)
    features[:, 0] = (heads[:, None] == tails.entities[columns]).ravel()
    is_head = (far.stays >= 0) & (near.stays[far.stays] >= 0)
    features[:, 1] = np.log1p(np.bincount(third.targets[is_head[third.sources]], minlength=len(features)))
    features[:, 2:5] = _rule_features(evidence, first, third, far.stays, len(features))
    features[:, 5:] = _reference_similarities(evidence, heads, tails, columns)
    return features


def _rule_features(
    evidence: ReferenceEvidence, first: _Hop, third: _Hop, stays: IntArray, pair_count: int
) -> FloatArray:
    """Support and confidence of the two-hop rules that lead to each pair's tail, [pairs, 3].

    A path of two hops is a first hop followed by a last hop.
    """
    graph, rules = evidence.graph, evidence.rules
    middles = stays[third.sources]
    via = np.flatnonzero(middles >= 0)
    order = np.argsort(first.targets, kind="stable")
    offsets = row_offsets(first.targets, int(max(first.targets.max(initial=-1), middles.max(initial=-1))) + 1)
    positions, owners = expand_rows(offsets, middles[via])
    edge_types = graph.edge_types[first.edges[order[positions]]].astype(np.int64)
    last_edge_types = graph.inverse(graph.edge_types[third.edges[via[owners]]])
    found = positions_in(rules.keys, edge_types * graph.edge_type_count + last_edge_types)
    hits = np.flatnonzero(found >= 0)
    targets, found = third.targets[via[owners[hits]]], found[hits]
    best = torch.zeros(pair_count, 2)
    values = _float(np.stack([rules.support[found], rules.confidence[found]], axis=1))
    best.scatter_reduce_(0, _long(targets)[:, None].expand(-1, 2), values, "amax")
    total = np.bincount(targets, rules.confidence[found], minlength=pair_count)
    return np.column_stack([best.numpy(), np.arcsinh(total)]).astype(np.float32)


def _reference_similarities(evidence: ReferenceEvidence, heads: IntArray, tails: Tails, chosen: IntArray) -> FloatArray:
    """The similarity of each pair to its most similar reference, by profile and by shared tuples, [pairs, 2].

    That is the product of the similarities of the heads and of the tails.
    """
    of_heads = evidence.similarities(heads, HEAD)  # [2, queries, shots]
    best = np.zeros((2, *chosen.shape), np.float32)
    for shot in np.flatnonzero(of_heads.any(axis=(0, 1))):
        both = of_heads[:, :, shot, None] * tails.similarities[:, :, shot][:, chosen]
        np.maximum(best, both, out=best)
    return best.reshape(2, -1).T


def _layer(evidence: ReferenceEvidence, hop: _Hop, *, backwards: bool = False) -> Layer:
    """The edges of a hop; if they are given backwards, with the inverse edge types and swapped fan-outs."""
    graph = evidence.graph
    edge_types, log_fan_outs = graph.edge_types[hop.edges], graph.log_fan_outs_of(hop.edges)
    if backwards:
        edge_types, log_fan_outs = graph.inverse(edge_types), log_fan_outs[:, ::-1]
    return Layer(_long(hop.sources), _long(edge_types), _long(hop.targets), _float(log_fan_outs))


def _long(values: IntArray) -> Tensor:
    return torch.from_numpy(np.array(values, np.int64))


def _float(values: FloatArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))
