"""Compiled loops of the networks that compare many pairs: attention over neighbors and tokens, and the cell of an LSTM.

Each has a loop for its gradient. A row of `rows` names the rows of a table that belong to one entity, where `mask` is
true. Gradients of tables and of what pairs share are added to what is there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import IntArray
from hire.util.compiled import compiled_in_any_order

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)


@compiled_in_any_order
def attend(
    queries: Floats,  # [pairs, dim]
    owners: IntArray,  # [pairs]: whose neighbors each query looks at
    mask: Bools,  # [owners, neighbors]
    key_rows: IntArray,
    keys: Floats,  # [m, dim]
    value_rows: IntArray,
    values: Floats,  # [m, width]
    factors: Floats,  # [pairs, neighbors] of weights, for dropout; [0, 0] for none
    weights: Floats,  # [pairs, neighbors]: filled where the mask is true
    found: Floats,  # [pairs, width]: zero before
) -> None:
    """softmax(query . key) over the neighbors, and the sum of values weighted by it."""
    for pair in range(len(queries)):
        owner, query = owners[pair], queries[pair]
        largest, total = np.float32(-np.inf), np.float32(0)
        for i in range(mask.shape[1]):
            if mask[owner, i]:
                key, product = keys[key_rows[owner, i]], np.float32(0)
                for d in range(len(query)):
                    product += query[d] * key[d]
                weights[pair, i] = product
                largest = max(largest, product)
        for i in range(mask.shape[1]):
            if mask[owner, i]:
                weights[pair, i] = np.exp(weights[pair, i] - largest)
                total += weights[pair, i]
        for i in range(mask.shape[1]):
            if mask[owner, i]:
                weights[pair, i] /= total
                share = weights[pair, i] * factors[pair, i] if len(factors) else weights[pair, i]
                value = values[value_rows[owner, i]]
                for d in range(len(value)):
                    found[pair, d] += share * value[d]


@compiled_in_any_order
def attend_backward(
    slopes: Floats,  # [pairs, width]: of what `attend` found
    queries: Floats,
    owners: IntArray,
    mask: Bools,
    key_rows: IntArray,
    keys: Floats,
    value_rows: IntArray,
    values: Floats,
    factors: Floats,
    weights: Floats,
    of_queries: Floats,
    of_keys: Floats,  # [m, dim], or [0, dim] if it is not asked for; so is the next
    of_values: Floats,
) -> None:
    """The gradients of `attend`, which filled `weights`."""
    products = np.empty(mask.shape[1], np.float32)
    for pair in range(len(queries)):
        owner, query, slope = owners[pair], queries[pair], slopes[pair]
        mean = np.float32(0)
        for i in range(mask.shape[1]):
            if mask[owner, i]:
                row, factor = value_rows[owner, i], factors[pair, i] if len(factors) else ONE
                value, product = values[row], np.float32(0)
                for d in range(len(value)):
                    product += slope[d] * value[d]
                products[i] = product * factor
                mean += weights[pair, i] * products[i]
                if len(of_values):
                    share, of_value = weights[pair, i] * factor, of_values[row]
                    for d in range(len(value)):
                        of_value[d] += share * slope[d]
        for i in range(mask.shape[1]):
            if mask[owner, i]:
                row, of_score = key_rows[owner, i], weights[pair, i] * (products[i] - mean)
                key = keys[row]
                for d in range(len(query)):
                    of_queries[pair, d] += of_score * key[d]
                if len(of_keys):
                    of_key = of_keys[row]
                    for d in range(len(query)):
                        of_key[d] += of_score * query[d]


@compiled_in_any_order
def attend_tokens(queries: Floats, keys_values: Floats, weights: Floats, found: Floats) -> None:
    """Multi-head attention within short sequences: queries [m, q, dim] see keys and values [m, s, 2 * dim].

    weights [m, heads, q, s] are filled, and found [m, q, dim], which is zero before.
    """
    dimension, heads = queries.shape[2], weights.shape[1]
    size = dimension // heads
    scale = np.float32(1 / np.sqrt(size))
    for m in range(len(queries)):
        for head in range(heads):
            own, of_values = slice(head * size, (head + 1) * size), slice(dimension + head * size, None)
            for q in range(queries.shape[1]):
                query, row, out = queries[m, q, own], weights[m, head, q], found[m, q, own]
                total = np.float32(0)
                for s in range(len(row)):
                    key, product = keys_values[m, s, own], np.float32(0)
                    for d in range(size):
                        product += query[d] * key[d]
                    row[s] = product * scale
                largest = row.max()
                for s in range(len(row)):
                    row[s] = np.exp(row[s] - largest)
                    total += row[s]
                for s in range(len(row)):
                    row[s] /= total
                    value = keys_values[m, s, of_values]
                    for d in range(size):
                        out[d] += row[s] * value[d]


@compiled_in_any_order
def attend_tokens_backward(
    slopes: Floats, queries: Floats, keys_values: Floats, weights: Floats, of_queries: Floats, of_keys_values: Floats
) -> None:
    """The gradients of `attend_tokens`, which filled `weights`."""
    dimension, heads = queries.shape[2], weights.shape[1]
    size = dimension // heads
    scale = np.float32(1 / np.sqrt(size))
    products = np.empty(weights.shape[3], np.float32)
    for m in range(len(queries)):
        for head in range(heads):
            own, of_values = slice(head * size, (head + 1) * size), slice(dimension + head * size, None)
            for q in range(queries.shape[1]):
                row, slope, query = weights[m, head, q], slopes[m, q, own], queries[m, q, own]
                of_query, mean = of_queries[m, q, own], np.float32(0)
                for s in range(len(row)):
                    value, of_value, product = (
                        keys_values[m, s, of_values],
                        of_keys_values[m, s, of_values],
                        np.float32(0),
                    )
                    for d in range(size):
                        product += slope[d] * value[d]
                        of_value[d] += row[s] * slope[d]
                    products[s] = product
                    mean += row[s] * product
                for s in range(len(row)):
                    key, of_key = keys_values[m, s, own], of_keys_values[m, s, own]
                    of_score = row[s] * (products[s] - mean) * scale
                    for d in range(size):
                        of_query[d] += of_score * key[d]
                        of_key[d] += of_score * query[d]


@compiled_in_any_order
def cell_of_gates(gates: Floats, before: Floats, cell: Floats, doubled: Floats) -> None:
    """The cell [n, width] that follows from gates [n, 4 * width] and the cell before, [0, width] at the first step.

    Gates are input, forget, output, and half of new plus one half: see `fused.matched`. Fills cell and twice the same.
    """
    width = cell.shape[1]
    for n in range(len(cell)):
        enter, forget, new = gates[n, :width], gates[n, width : 2 * width], gates[n, 3 * width :]
        now, twice = cell[n], doubled[n]
        for d in range(width):
            now[d] = enter[d] * (TWO * new[d] - ONE)
        if len(before):
            last = before[n]
            for d in range(width):
                now[d] += forget[d] * last[d]
        for d in range(width):
            twice[d] = TWO * now[d]


@compiled_in_any_order
def state_of_cell(gates: Floats, tanh: Floats, pairs: Floats, state: Floats) -> None:
    """state [n, width] = output gate * tanh(cell) + pair; tanh has the sigmoid of twice the cell before."""
    width = state.shape[1]
    for n in range(len(state)):
        leave, out, pair, now = gates[n, 2 * width : 3 * width], tanh[n], pairs[n], state[n]
        for d in range(width):
            out[d] = TWO * out[d] - ONE
        for d in range(width):
            now[d] = leave[d] * out[d] + pair[d]


@compiled_in_any_order
def cell_backward(gates: Floats, tanh: Floats, before: Floats, of_state: Floats, of_cell: Floats) -> None:
    """Gates become their own gradients before the sigmoid, and of_cell that of the cell before."""
    width = tanh.shape[1]
    for n in range(len(tanh)):
        enter, forget = gates[n, :width], gates[n, width : 2 * width]
        leave, new = gates[n, 2 * width : 3 * width], gates[n, 3 * width :]
        out, slope, cell = tanh[n], of_state[n], of_cell[n]
        for d in range(width):
            cell[d] += slope[d] * leave[d] * (ONE - out[d] * out[d])
        for d in range(width):
            leave[d] = slope[d] * out[d] * leave[d] * (ONE - leave[d])
        for d in range(width):
            value = TWO * new[d] - ONE
            new[d] = HALF * cell[d] * enter[d] * (ONE - value * value)
            enter[d] = cell[d] * value * enter[d] * (ONE - enter[d])
        if len(before):
            last = before[n]
            for d in range(width):
                of_last = cell[d] * forget[d]
                forget[d] = of_last * last[d] * (ONE - forget[d])
                cell[d] = of_last
        else:
            forget[:] = 0


@compiled_in_any_order
def add_to_ends(pairs: Floats, of_heads: Floats, of_tails: Floats) -> None:
    """Add what belongs to pairs [tasks, q, n, width] to their heads [tasks, q, width] and tails.

    Tails are [tasks, n, width] if all heads of a task share them, otherwise [tasks, q * n, width].
    """
    tasks, heads, tails, width = pairs.shape
    for task in range(tasks):
        for i in range(heads):
            of_head = of_heads[task, i]
            first = 0 if of_tails.shape[1] == tails else i * tails
            for j in range(tails):
                pair, of_tail = pairs[task, i, j], of_tails[task, first + j]
                for d in range(width):
                    of_head[d] += pair[d]
                for d in range(width):
                    of_tail[d] += pair[d]
