"""The inner loops of the path level, over edges, pairs and rules; `walks` and `messages` say what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled

Flags = NDArray[np.bool_]


@compiled
def pass_messages(
    states: FloatArray,
    weights: FloatArray,
    at_source: FloatArray,
    at_target: FloatArray,
    sources: IntArray,
    edge_types: IntArray,
    levels: IntArray,
    targets: IntArray,
    arrived: FloatArray,
) -> None:
    """Add up what each edge carries: the state of its source, weighted by its type and its two fan-outs."""
    for edge in range(len(sources)):
        source, edge_type, target = sources[edge], edge_types[edge], targets[edge]
        near, far = levels[edge, 0], levels[edge, 1]
        for c in range(states.shape[1]):
            arrived[target, c] += states[source, c] * weights[edge_type, c] * (at_source[near, c] * at_target[far, c])


@compiled
def pass_gradients(
    states: FloatArray,
    weights: FloatArray,
    at_source: FloatArray,
    at_target: FloatArray,
    sources: IntArray,
    edge_types: IntArray,
    levels: IntArray,
    targets: IntArray,
    of_arrived: FloatArray,
    of_states: FloatArray,
    of_weights: FloatArray,
    of_at_source: FloatArray,
    of_at_target: FloatArray,
) -> None:
    """Add up the gradients of all inputs of `pass_messages`, given that of its output."""
    for edge in range(len(sources)):
        source, edge_type, target = sources[edge], edge_types[edge], targets[edge]
        near, far = levels[edge, 0], levels[edge, 1]
        for c in range(states.shape[1]):
            gradient, weight = of_arrived[target, c], weights[edge_type, c]
            thinned = at_source[near, c] * at_target[far, c]
            of_states[source, c] += gradient * weight * thinned
            of_state = gradient * states[source, c]
            of_weights[edge_type, c] += of_state * thinned
            of_at_source[near, c] += of_state * weight * at_target[far, c]
            of_at_target[far, c] += of_state * weight * at_source[near, c]


@compiled
def is_in(ordered: IntArray, value: int) -> bool:
    """Whether a value is among sorted ones."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < len(ordered) and ordered[low] == value


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
    position: IntArray,
    wanted: Flags,
    cells: IntArray,
    walked: IntArray,
    far: IntArray,
) -> tuple[int, int]:
    """Walk on from the near layer to wanted ends; returns the numbers of edges and of nodes reached.

    `cells` [queries, ends], all -1, takes the position of each reached end in the far layer; `walked` [edges, 3] the
    source, target and id of each edge; `far` [nodes, 3] the query and node of each position, and the same node's
    position in the near layer, or -1. An empty `wanted` asks for all ends.
    """
    nodes = edges = 0
    everything = len(wanted) == 0
    for start in range(len(near_nodes)):
        query, end = near_queries[start], position[near_nodes[start]]
        if end >= 0 and (everything or wanted[query, end]):
            cells[query, end] = nodes
            far[nodes, 0], far[nodes, 1], far[nodes, 2] = query, near_nodes[start], start
            nodes += 1
    for start in range(len(near_nodes)):
        if not passable[start]:
            continue
        query = near_queries[start]
        for edge in range(offsets[near_nodes[start]], offsets[near_nodes[start] + 1]):
            end = position[targets[edge]]
            if end < 0 or hidden[edge_types[edge]] or not (everything or wanted[query, end]):
                continue
            if len(removed) and is_in(removed, edge):
                continue
            if cells[query, end] < 0:
                cells[query, end] = nodes
                far[nodes, 0], far[nodes, 1], far[nodes, 2] = query, targets[edge], -1
                nodes += 1
            walked[edges, 0], walked[edges, 1], walked[edges, 2] = start, cells[query, end], edge
            edges += 1
    return edges, nodes


@compiled
def last_hop(
    tail_offsets: IntArray,
    tail_edges: IntArray,
    tail_sources: IntArray,
    tail_ends: IntArray,
    chosen: IntArray,
    cells: IntArray,
    walked: IntArray,
    reached: IntArray,
) -> tuple[int, int]:
    """Arrive at the tails; returns the numbers of edges and of pairs reached.

    `tail_edges` are the edges that leave the tails, in compressed rows, and `tail_sources` their targets as ends.
    `walked` takes, for each edge whose inverse is walked, its source in the far layer, its pair's position in
    `reached` and its id; `reached` the pairs of head and tail, with the tail's own position in the far layer, or -1.
    An empty `chosen` asks for all tails.
    """
    pairs = edges = 0
    everything = len(chosen) == 0
    width = len(tail_ends) if everything else chosen.shape[1]
    for query in range(len(cells)):
        for column in range(width):
            tail = column if everything else chosen[query, column]
            own = cells[query, tail_ends[tail]]
            before = edges
            for entry in range(tail_offsets[tail], tail_offsets[tail + 1]):
                source = cells[query, tail_sources[entry]]
                if source >= 0:
                    walked[edges, 0], walked[edges, 1], walked[edges, 2] = source, pairs, tail_edges[entry]
                    edges += 1
            if own >= 0 or edges > before:
                reached[pairs, 0], reached[pairs, 1] = query * width + column, own
                pairs += 1
    return edges, pairs


@compiled
def count_last_edges(tail_offsets: IntArray, chosen: IntArray) -> int:
    """The number of edges that leave chosen tails."""
    count = 0
    for query in range(chosen.shape[0]):
        for column in range(chosen.shape[1]):
            count += tail_offsets[chosen[query, column] + 1] - tail_offsets[chosen[query, column]]
    return count


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


@compiled
def describe_walks(
    walked: IntArray,
    inverse_types: IntArray,
    reached: IntArray,
    far: IntArray,
    near_stays: IntArray,
    first_offsets: IntArray,
    first_types: IntArray,
    rule_keys: IntArray,
    rule_values: FloatArray,
    edge_type_count: int,
    features: FloatArray,
) -> None:
    """Count links and rules of the pairs that walks reach, in columns 1 to 4 of `features` [pairs, features].

    A path of two hops is a first hop followed by a last hop. `rule_values` are support and confidence.
    """
    starts_rule = np.zeros(edge_type_count, np.bool_)
    for rule in range(len(rule_keys)):
        starts_rule[rule_keys[rule] // edge_type_count] = True
    for edge in range(len(walked)):
        middle = far[walked[edge, 0], 2]
        if middle < 0:
            continue
        pair = reached[walked[edge, 1], 0]
        if near_stays[middle] >= 0:
            features[pair, 1] += 1
        for entry in range(first_offsets[middle], first_offsets[middle + 1]):
            if not starts_rule[first_types[entry]]:
                continue
            key = first_types[entry] * edge_type_count + inverse_types[edge]
            rule = np.searchsorted(rule_keys, key)
            if rule < len(rule_keys) and rule_keys[rule] == key:
                features[pair, 2] = max(features[pair, 2], rule_values[rule, 0])
                features[pair, 3] = max(features[pair, 3], rule_values[rule, 1])
                features[pair, 4] += rule_values[rule, 1]
    for row in range(len(reached)):
        pair = reached[row, 0]
        features[pair, 1] = np.log1p(features[pair, 1])
        features[pair, 4] = np.arcsinh(features[pair, 4])


@compiled
def match_references(
    of_heads: FloatArray, of_tails: FloatArray, chosen: IntArray, features: NDArray[Any]
) -> None:
    """The similarity of each pair to its most similar reference, the product of both ends', in two columns.

    Similarities are [2, queries, shots] of the heads and [2, tails, shots] of the tails.
    """
    everything = len(chosen) == 0
    width = of_tails.shape[1] if everything else chosen.shape[1]
    for query in range(of_heads.shape[1]):
        for column in range(width):
            tail = column if everything else chosen[query, column]
            for measure in range(2):
                best = np.float32(0)
                for shot in range(of_heads.shape[2]):
                    best = max(best, of_heads[measure, query, shot] * of_tails[measure, tail, shot])
                features[query * width + column, measure] = best
