"""The inner loops that walk the graph, hop by hop; `walks` says what they mean."""

from __future__ import annotations

from hire.systems.path.kernels import Flags, find
from hire.systems.path.positions import Positions, position_of
from hire.util.arrays import IntArray
from hire.util.compiled import compiled


@compiled
def second_hop(
    offsets: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    hidden: Flags,
    removed: IntArray,
    near_queries: IntArray,
    near_nodes: IntArray,
    passable: Flags,
    position: Positions,
    wanted: Flags,
    cells: IntArray,
    sources: IntArray,
    ends: IntArray,
    ids: IntArray,
    far: IntArray,
) -> tuple[int, int]:
    """Walk on from the near layer to wanted ends; returns the numbers of edges and of nodes reached.

    `cells` [queries, ends], all -1, takes the position of each reached end in the far layer; `sources`, `ends` and
    `ids` [edges] the source and target of each edge, as positions in the two layers, and its id; `far` [nodes, 2] the
    node at each position, and the same node's position in the near layer, or -1. An empty `wanted` asks for all ends.
    """
    nodes = edges = 0
    everything = len(wanted) == 0
    for start in range(len(near_nodes)):
        query, end = near_queries[start], position_of(position, near_nodes[start])
        if end >= 0 and (everything or wanted[query, end]):
            cells[query, end] = nodes
            far[nodes, 0], far[nodes, 1] = near_nodes[start], start
            nodes += 1
    for start in range(len(near_nodes)):
        if not passable[start]:
            continue
        query = near_queries[start]
        for edge in range(offsets[near_nodes[start]], offsets[near_nodes[start] + 1]):
            if hidden[edge_types[edge]]:
                continue
            end = position_of(position, targets[edge])
            if end < 0 or not (everything or wanted[query, end]):
                continue
            if len(removed) and find(removed, edge) >= 0:
                continue
            if cells[query, end] < 0:
                cells[query, end] = nodes
                far[nodes, 0], far[nodes, 1] = targets[edge], -1
                nodes += 1
            sources[edges], ends[edges], ids[edges] = start, cells[query, end], edge
            edges += 1
    return edges, nodes


@compiled
def last_hop(
    tail_offsets: IntArray,
    tail_edge_types: IntArray,
    tail_levels: IntArray,
    tail_sources: IntArray,
    tail_ends: IntArray,
    chosen: IntArray,
    cells: IntArray,
    sources: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    levels: IntArray,
    reached: IntArray,
    stays: IntArray,
) -> tuple[int, int]:
    """Arrive at the tails; returns the numbers of edges and of pairs reached.

    The edges that arrive at each tail are in compressed rows, `tail_sources` are the ends that they start from.
    `sources` takes the position of each walked edge's source in the far layer, `targets` that of its pair in
    `reached`; `reached` takes pairs of head and tail, `stays` the tail's own position in the far layer, or -1. An empty
    `chosen` asks for all tails.
    """
    pairs = edges = 0
    everything = len(chosen) == 0
    width = len(tail_ends) if everything else chosen.shape[1]
    for query in range(len(cells)):
        for column in range(width):
            tail = column if everything else chosen[query, column]
            before = edges
            for entry in range(tail_offsets[tail], tail_offsets[tail + 1]):
                source = cells[query, tail_sources[entry]]
                if source >= 0:
                    sources[edges], edge_types[edges], targets[edges] = source, tail_edge_types[entry], pairs
                    levels[edges, 0], levels[edges, 1] = tail_levels[entry, 0], tail_levels[entry, 1]
                    edges += 1
            own = cells[query, tail_ends[tail]]
            if own >= 0 or edges > before:
                reached[pairs], stays[pairs] = query * width + column, own
                pairs += 1
    return edges, pairs


@compiled
def order_by_end(
    tail_offsets: IntArray,
    tail_edge_types: IntArray,
    tail_levels: IntArray,
    tail_sources: IntArray,
    offsets: IntArray,
    tails: IntArray,
    edge_types: IntArray,
    levels: IntArray,
) -> None:
    """Put the edges that arrive at tails into compressed rows by the end that they start from.

    `offsets` [ends + 2] are zero now; those of the rows are its elements but the last.
    """
    for entry in range(len(tail_sources)):
        offsets[tail_sources[entry] + 2] += 1
    for end in range(2, len(offsets)):
        offsets[end] += offsets[end - 1]
    for tail in range(len(tail_offsets) - 1):
        for entry in range(tail_offsets[tail], tail_offsets[tail + 1]):
            place = offsets[tail_sources[entry] + 1]
            offsets[tail_sources[entry] + 1] += 1
            tails[place], edge_types[place] = tail, tail_edge_types[entry]
            levels[place, 0], levels[place, 1] = tail_levels[entry, 0], tail_levels[entry, 1]


@compiled
def last_hop_of_one(
    end_offsets: IntArray,
    end_tails: IntArray,
    end_edge_types: IntArray,
    end_levels: IntArray,
    far_ends: IntArray,
    cells: IntArray,
    tail_ends: IntArray,
    places: IntArray,
    sources: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    levels: IntArray,
    reached: IntArray,
    stays: IntArray,
) -> int:
    """As `last_hop` for one head and all tails, over the edges that leave the far layer; returns the pairs reached.

    `far_ends` are the ends of the far layer's nodes, `cells` [ends] their positions in it; `places` [tails] is zero.
    Pairs whose tails are in the far layer come first.
    """
    for source in range(len(far_ends)):
        for entry in range(end_offsets[far_ends[source]], end_offsets[far_ends[source] + 1]):
            places[end_tails[entry]] += 1
    pairs = edges = 0
    for before in (True, False):
        for tail in range(len(places)):
            count, own = places[tail], cells[tail_ends[tail]]
            if before != (own >= 0) or (own < 0 and count == 0):
                continue
            reached[pairs], stays[pairs], places[tail] = tail, own, edges
            for _ in range(count):
                targets[edges] = pairs
                edges += 1
            pairs += 1
    for source in range(len(far_ends)):
        for entry in range(end_offsets[far_ends[source]], end_offsets[far_ends[source] + 1]):
            place = places[end_tails[entry]]
            places[end_tails[entry]] += 1
            sources[place], edge_types[place] = source, end_edge_types[entry]
            levels[place, 0], levels[place, 1] = end_levels[entry, 0], end_levels[entry, 1]
    return pairs


@compiled
def count_last_edges(tail_offsets: IntArray, chosen: IntArray) -> int:
    """The number of edges that leave chosen tails."""
    count = 0
    for query in range(chosen.shape[0]):
        for column in range(chosen.shape[1]):
            count += tail_offsets[chosen[query, column] + 1] - tail_offsets[chosen[query, column]]
    return count


@compiled
def count_walks(
    near_queries: IntArray,
    near_nodes: IntArray,
    passable: Flags,
    offsets: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    hidden: Flags,
    position: Positions,
    once: IntArray,
    twice: IntArray,
) -> None:
    """Count the walks of one and of two hops from each query to the entities at positions, [queries, positions].

    The edges of the first hop are given by query and target; there may be millions of the second, which are not kept.
    """
    for start in range(len(near_nodes)):
        query, node = near_queries[start], near_nodes[start]
        place = position_of(position, node)
        if place >= 0:
            once[query, place] += 1
        if not passable[start]:
            continue
        for edge in range(offsets[node], offsets[node + 1]):
            place = position_of(position, targets[edge])
            if place >= 0 and not hidden[edge_types[edge]]:
                twice[query, place] += 1


@compiled
def want_ends(
    tail_offsets: IntArray, tail_sources: IntArray, tail_ends: IntArray, chosen: IntArray, wanted: Flags
) -> None:
    """Mark the ends from which a chosen tail can be reached, and the tails themselves, [queries, ends]."""
    for query in range(chosen.shape[0]):
        for column in range(chosen.shape[1]):
            tail = chosen[query, column]
            wanted[query, tail_ends[tail]] = True
            for entry in range(tail_offsets[tail], tail_offsets[tail + 1]):
                wanted[query, tail_sources[entry]] = True
