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
    """Add up what each edge carries: the state of its source, weighted by its type and its two fan-outs.

    Rows are channels of all members side by side: the longer they are, the better a processor adds them up.
    """
    for edge in range(len(sources)):
        source, edge_type, target = sources[edge], edge_types[edge], targets[edge]
        near, far = levels[edge, 0], levels[edge, 1]
        for c in range(states.shape[1]):
            carried = weights[edge_type, c] * (at_source[near, c] * at_target[far, c])
            arrived[target, c] += states[source, c] * carried


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
            of_carried = gradient * states[source, c]
            of_weights[edge_type, c] += of_carried * thinned
            of_at_source[near, c] += of_carried * weight * at_target[far, c]
            of_at_target[far, c] += of_carried * weight * at_source[near, c]


@compiled
def asinh(values: FloatArray, found: FloatArray, exponents: IntArray) -> None:
    """The inverse hyperbolic sine of values [n], in loops that processors do eight values at a time.

    The logarithm of y = 2^e m with 1 <= m < 2 is e log 2 + 2 artanh((m - 1) / (m + 1)); `exponents` [n] holds e.
    """
    one = np.float32(1)
    for i in range(values.size):
        size = abs(values[i])
        found[i] = size + np.sqrt(size * size + one)
    bits = found.view(np.int32)
    for i in range(values.size):
        exponents[i] = (bits[i] >> 23) - 127
        bits[i] = (bits[i] & 0x7FFFFF) | 0x3F800000
    for i in range(values.size):
        part = (found[i] - one) / (found[i] + one)
        square = part * part
        series = np.float32(1 / 9) + square * np.float32(1 / 11)
        series = np.float32(1 / 5) + square * (np.float32(1 / 7) + square * series)
        logarithm = np.float32(2) * part * (one + square * (np.float32(1 / 3) + square * series))
        found[i] = np.copysign(logarithm + np.float32(exponents[i]) * np.float32(0.6931472), values[i])


@compiled
def gelu(values: FloatArray) -> None:
    """Replace values [n] by their GELU, in a loop that processors do eight values at a time.

    The error function is the rational approximation 7.1.28 of Abramowitz and Stegun, right to 3e-7.
    """
    one = np.float32(1)
    for i in range(values.size):
        size = abs(values[i]) * np.float32(0.70710678)
        series = np.float32(0.0001520143) + size * (np.float32(0.0002765672) + size * np.float32(0.0000430638))
        series = np.float32(0.0422820123) + size * (np.float32(0.0092705272) + size * series)
        series = one + size * (np.float32(0.0705230784) + size * series)
        power = series * series
        power = power * power
        power = power * power
        power = power * power
        half = np.float32(0.5) * values[i]
        values[i] = half + abs(half) * (one - one / power)


@compiled
def add_rows(values: FloatArray, row: FloatArray) -> None:
    """Add a row [columns] to each row of values [n, columns]."""
    for i in range(len(values)):
        for column in range(values.shape[1]):
            values[i, column] += row[column]


@compiled
def find(ordered: IntArray, value: int) -> int:
    """The position of a value among sorted ones, or -1."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < len(ordered) and ordered[low] == value else -1


@compiled
def compare(
    entities: IntArray,
    offsets: IntArray,
    edge_types: IntArray,
    counts: IntArray,
    fewer: IntArray,
    left: IntArray,
    hidden: Flags,
    idf: FloatArray,
    popularity: FloatArray,
    profiles: FloatArray,
    head_keys: IntArray,
    head_shares: FloatArray,
    tail_keys: IntArray,
    tail_shares: FloatArray,
    entity_count: int,
    type_offsets: IntArray,
    types: IntArray,
    has_type: Flags,
    found: NDArray[Any],
    counted: FloatArray,
) -> None:
    """Compare entities with reference heads and tails; `ReferenceEvidence._compare` says what is found, all zero now.

    Profiles of the entities are in compressed rows; those of the references [edge types, 2 * shots] have length 1.
    """
    shots = profiles.shape[1] // 2
    products, common = np.zeros(2 * shots, np.float32), np.zeros(2 * shots, np.bool_)
    for i in range(len(entities)):
        entity = entities[i]
        products[:] = 0
        square = np.float32(0)
        for entry in range(offsets[entity], offsets[entity + 1]):
            edge_type, count = edge_types[entry], counts[entry]
            if hidden[edge_type]:
                continue
            if len(fewer):
                position = find(fewer, entry)
                count = left[position] if position >= 0 else count
            value = np.float32(np.log1p(np.float32(count))) * idf[edge_type]
            square += value * value
            counted[i, 2] += count * popularity[edge_type]
            counted[i, 3] += count
            for column in range(2 * shots):
                products[column] += value * profiles[edge_type, column]
        length = np.sqrt(max(square, np.float32(1e-12)))
        common[:] = False
        for position in range(type_offsets[entity], type_offsets[entity + 1]):
            for column in range(2 * shots):
                common[column] |= has_type[types[position], column]
        for shot in range(shots):
            for side in range(2):
                found[side, 0, i, shot] = products[side * shots + shot] / length
                counted[i, side] += np.float32(common[side * shots + shot]) / np.float32(shots)
            key = shot * entity_count + entity
            position = find(head_keys, key)
            if position >= 0:
                found[0, 1, i, shot] = head_shares[position]
            position = find(tail_keys, key)
            if position >= 0:
                found[1, 1, i, shot] = tail_shares[position]


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
        query, end = near_queries[start], position[near_nodes[start]]
        if end >= 0 and (everything or wanted[query, end]):
            cells[query, end] = nodes
            far[nodes, 0], far[nodes, 1] = near_nodes[start], start
            nodes += 1
    for start in range(len(near_nodes)):
        if not passable[start]:
            continue
        query = near_queries[start]
        for edge in range(offsets[near_nodes[start]], offsets[near_nodes[start] + 1]):
            end = position[targets[edge]]
            if end < 0 or hidden[edge_types[edge]] or not (everything or wanted[query, end]):
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
    sources: IntArray,
    edge_types: IntArray,
    targets: IntArray,
    reached: IntArray,
    far_stays: IntArray,
    near_stays: IntArray,
    first_offsets: IntArray,
    first_types: IntArray,
    rule_keys: IntArray,
    rule_values: FloatArray,
    edge_type_count: int,
    features: FloatArray,
) -> None:
    """Count links and rules of the pairs that walks reach, in columns 1 to 4 of `features` [pairs, features].

    `sources`, `edge_types` and `targets` are those of the last hop. A path of two hops is a first hop followed by a
    last hop. `rule_values` are support and confidence.
    """
    starts_rule = np.zeros(edge_type_count, np.bool_)
    for rule in range(len(rule_keys)):
        starts_rule[rule_keys[rule] // edge_type_count] = True
    for edge in range(len(sources)):
        middle = far_stays[sources[edge]]
        if middle < 0:
            continue
        pair = reached[targets[edge]]
        if near_stays[middle] >= 0:
            features[pair, 1] += 1
        for entry in range(first_offsets[middle], first_offsets[middle + 1]):
            if not starts_rule[first_types[entry]]:
                continue
            key = first_types[entry] * edge_type_count + edge_types[edge]
            rule = np.searchsorted(rule_keys, key)
            if rule < len(rule_keys) and rule_keys[rule] == key:
                features[pair, 2] = max(features[pair, 2], rule_values[rule, 0])
                features[pair, 3] = max(features[pair, 3], rule_values[rule, 1])
                features[pair, 4] += rule_values[rule, 1]
    for row in range(len(reached)):
        pair = reached[row]
        features[pair, 1] = np.log1p(features[pair, 1])
        features[pair, 4] = np.arcsinh(features[pair, 4])


@compiled
def match_references(of_heads: FloatArray, of_tails: FloatArray, chosen: IntArray, features: NDArray[Any]) -> None:
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
