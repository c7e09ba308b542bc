"""What the compiled loops compute, as functions with gradients; on other devices the same from smaller functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.episodic import kernels
from hire.systems.episodic.network import Neighbors, dropout_factors, masked_softmax


class Vectors(NamedTuple):
    """The vectors of some entities' neighbors as rows of a table."""

    rows: Tensor  # [..., neighbors]
    table: Tensor  # [m, dim]


def is_compiled(values: Tensor) -> bool:
    """Whether the compiled loops take such values."""
    return values.device.type == "cpu" and values.dtype == torch.float32


def over_neighbors(queries: Tensor, mask: Tensor, keys: Vectors, values: Vectors, dropout: float = 0.0) -> Tensor:
    """What pairs see in the neighbors of one of their ends: the sum of values, weighted by softmax(query . key).

    queries [tasks, q, n, dim] are those of pairs; mask and rows [tasks, q or 1, n or 1, neighbors] are those of heads
    or tails. The result is [tasks, q, n, width of a value]. Entities on their own have fewer dimensions.
    """
    factors = dropout_factors((*queries.shape[:-1], mask.shape[-1]), dropout, queries) if dropout else None
    if not is_compiled(queries):
        scores = (F.embedding(*keys) @ queries.unsqueeze(-1)).squeeze(-1)  # [tasks, q, n, neighbors]
        weights = masked_softmax(scores, mask)
        weights = weights if factors is None else weights * factors
        return (weights.unsqueeze(-2) @ F.embedding(*values)).squeeze(-2)
    owners = torch.arange(mask[..., 0].numel()).view(mask.shape[:-1]).expand(queries.shape[:-1]).flatten()
    where = (part.reshape(-1, mask.shape[-1]) for part in (mask, keys.rows, values.rows))
    factors = queries.new_empty(0, 0) if factors is None else factors.view(len(owners), -1)
    flat = queries.reshape(-1, queries.shape[-1])
    found: Tensor = _OverNeighbors.apply(flat, keys.table, values.table, owners, *where, factors)  # type: ignore[no-untyped-call]
    return found.view(*queries.shape[:-1], -1)


def weighted_neighbors(near: Neighbors, scores: Tensor, values: Vectors) -> Tensor:
    """The sums of values over neighbors [..., n], weighted by the softmax of scores [..., n]: [..., width]."""
    queries = scores.new_ones(*scores.shape[:-1], 1)
    rows = torch.arange(scores.numel(), device=scores.device).view(scores.shape)
    return over_neighbors(queries, near.mask, Vectors(rows, scores.reshape(-1, 1)), values)


def mapped_neighbors(near: Neighbors, layer: nn.Linear, activation: Callable[[Tensor], Tensor]) -> Vectors:
    """activation(W [r; e] + b) of every neighbor that is no padding."""
    real = replace(near, relations=near.relations[near.mask], entities=near.entities[near.mask])
    values = activation(real.linear(layer.weight) + layer.bias)  # [edges, dim]
    rows = (near.mask.flatten().cumsum(0) - 1).clamp_min(0).view(near.mask.shape)
    return Vectors(rows * near.mask, values if len(values) else near.entity_table[:1])


class _OverNeighbors(torch.autograd.Function):
    """`kernels.attend`."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        owners: Tensor,
        mask: Tensor,
        key_rows: Tensor,
        value_rows: Tensor,
        factors: Tensor,
    ) -> Tensor:
        weights = queries.new_empty(len(queries), mask.shape[1])
        found = queries.new_zeros(len(queries), values.shape[1])
        given = (queries, owners, mask, key_rows, keys, value_rows, values, factors, weights)
        ctx.given = tuple(part.detach().contiguous() for part in given)
        kernels.attend(*(part.numpy() for part in (*ctx.given, found)))
        return found

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values = ctx.given[0], ctx.given[4], ctx.given[6]
        asked = zip((queries, keys, values), ctx.needs_input_grad[:3], strict=True)
        found = [torch.zeros_like(part if wanted or part is queries else part[:0]) for part, wanted in asked]
        given = (slopes[0].contiguous(), *ctx.given, *found)
        kernels.attend_backward(*(part.numpy() for part in given))
        return (*found, None, None, None, None, None)


def attend_tokens(queries: Tensor, keys_values: Tensor, heads: int) -> Tensor:
    """Multi-head attention of queries [m, q, dim] over keys and values [m, s, 2 * dim] of the same sequence."""
    if is_compiled(queries):
        return cast(Tensor, _AttendTokens.apply(queries, keys_values, heads))  # type: ignore[no-untyped-call]
    query, key, value = (
        part.view(*part.shape[:-1], heads, -1).transpose(1, 2) for part in (queries, *keys_values.chunk(2, dim=-1))
    )
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class _AttendTokens(torch.autograd.Function):
    """`kernels.attend_tokens`."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys_values: Tensor, heads: int) -> Tensor:
        weights = queries.new_empty(len(queries), heads, queries.shape[1], keys_values.shape[1])
        found = torch.zeros_like(queries, memory_format=torch.contiguous_format)
        ctx.given = tuple(part.detach().contiguous() for part in (queries, keys_values, weights))
        kernels.attend_tokens(*(part.numpy() for part in (*ctx.given, found)))
        return found

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        found = [torch.zeros_like(part) for part in ctx.given[:2]]
        given = (slopes[0].contiguous(), *ctx.given, *found)
        kernels.attend_tokens_backward(*(part.numpy() for part in given))
        return (*found, None)


def matched(pairs: Tensor, heads: Tensor, tails: Tensor, weight: Tensor, steps: int) -> Tensor:
    """The last state [pairs, width] of the LSTM of `_Matched`."""
    return cast(Tensor, _Matched.apply(pairs, heads, tails, weight, steps))  # type: ignore[no-untyped-call]


class _Matched(torch.autograd.Function):
    """The last state of an LSTM that reads the same pair [pairs, width] at every step and adds it to its state.

    What heads [tasks, q, 1, 4 * width] and tails [tasks, q or 1, n, 4 * width] give to the gates is the same at every
    step, too; `weight` [4 * width, width] is that of the state. Gates are input, forget, output, and twice the new
    one: tanh(x) = 2 sigmoid(2 x) - 1, and one function for all of them is the fastest.
    """

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, heads: Tensor, tails: Tensor, weight: Tensor, steps: int) -> Tensor:
        width = pairs.shape[-1]
        saved: list[tuple[Tensor, ...]] = []  # of each step: gates, tanh of the cell, the cell and the state before
        before, state = pairs[:0], pairs
        for step in range(steps):
            gates = (heads + tails).view(-1, 4 * width)
            if step:
                gates.addmm_(state, weight.T)
            gates.sigmoid_()
            cell, tanh, after = (torch.empty_like(pairs) for _ in range(3))
            kernels.cell_of_gates(*(part.numpy() for part in (gates, before, cell, tanh)))
            tanh.sigmoid_()
            kernels.state_of_cell(*(part.numpy() for part in (gates, tanh, pairs, after)))
            if any(ctx.needs_input_grad):
                saved.append((gates, tanh, before, state))
            before, state = cell, after
        ctx.saved, ctx.weight, ctx.shapes = saved, weight, (heads.shape, tails.shape)
        return state

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        of_state = slopes[0].contiguous()
        heads, tails = ctx.shapes
        of_pairs, of_weight, of_cell = of_state.clone(), torch.zeros_like(ctx.weight), torch.zeros_like(of_state)
        of_heads, of_tails = of_state.new_zeros(heads), of_state.new_zeros(tails)
        for step, (gates, tanh, before, state) in reversed(list(enumerate(ctx.saved))):
            kernels.cell_backward(*(part.numpy() for part in (gates, tanh, before, of_state, of_cell)))
            ends = (of_heads.flatten(1, 2), of_tails.flatten(1, 2))
            grid = gates.view(*heads[:2], tails[2], -1)
            kernels.add_to_ends(*(part.numpy() for part in (grid, *ends)))
            if step:
                of_weight.addmm_(gates.T, state)
                of_state = gates @ ctx.weight
                of_pairs += of_state
        ctx.saved = []  # gates are no longer what they were
        return of_pairs, of_heads, of_tails, of_weight, None
