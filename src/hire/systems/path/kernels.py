"""The inner loops of the path level, over messages, pairs and rules; `messages` and `walks` say what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import FloatArray, IntArray
from hire.util.compiled import compiled, compiled_as_written

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


@compiled_as_written
def add_profiles(
    weights: FloatArray, owners: IntArray, edge_types: IntArray, counts: FloatArray, found: FloatArray
) -> None:
    """Add up the weights of edge types, times how often each occurs, for the owner of each entry."""
    for entry in range(len(owners)):
        owner, edge_type, count = owners[entry], edge_types[entry], counts[entry]
        for c in range(weights.shape[1]):
            found[owner, c] += weights[edge_type, c] * count


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
def describe_entities(
    entities: IntArray,
    references: IntArray,
    similarities: NDArray[Any],
    counted: FloatArray,
    least_popularity: np.float32,
    log_scale: np.float32,
    features: FloatArray,
) -> None:
    """The features of entities [n, ENTITY_FEATURES] from what `compare` has found: as tails, as heads, in general."""
    shots = len(references)
    for i in range(len(entities)):
        for place, side in ((0, 1), (6, 0)):
            for column in range(place, place + 5):
                features[i, column] = 0
            for shot in range(shots):
                features[i, place] += np.float32(entities[i] == references[shot, side])
                for measure in range(2):
                    value, column = similarities[side, measure, i, shot], place + 1 + 2 * measure
                    features[i, column] += value
                    features[i, column + 1] = value if shot == 0 else max(features[i, column + 1], value)
            for column in (place, place + 1, place + 3):
                features[i, column] /= np.float32(shots)
            features[i, place + 5] = counted[i, side]
        features[i, 12] = np.log1p(counted[i, 3]) / log_scale
        features[i, 13] = np.log(least_popularity + counted[i, 2]) / log_scale + np.float32(1.5)


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
    rule_support: FloatArray,
    rule_confidence: FloatArray,
    edge_type_count: int,
    features: FloatArray,
) -> None:
    """Count links and rules of the pairs that walks reach, in columns 1 to 4 of `features` [pairs, features].

    `sources`, `edge_types` and `targets` are those of the last hop. A path of two hops is a first hop followed by a
    last hop.
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
            rule = find(rule_keys, key)
            if rule >= 0:
                features[pair, 2] = max(features[pair, 2], rule_support[rule])
                features[pair, 3] = max(features[pair, 3], rule_confidence[rule])
                features[pair, 4] += rule_confidence[rule]
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
