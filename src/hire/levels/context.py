"""Context level: what surrounds head and tail together, and telling it from what does not (Eq. 3-5, appendix D.1)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.contexts import Tuples

TUPLES_AT_ONCE = 1 << 11  # what is computed together should stay in the processor's cache


class _ReceivedAttention(torch.autograd.Function):
    """How much attention each tuple of a context receives: the column means of softmax(Q K^T).

    No more is needed of the attention matrix A. With g the gradient of the means over n tuples, that of the scores is
    A * (g - A g) / n, so that two products with Q and K are all that is left to do on the way back. Contexts of
    similar length are computed together, a few at a time; the vectors of their tuples are gathered when they are
    needed and never kept.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor, lengths: Tensor, heads: int) -> Tensor:
        """The attention [tuples, heads] for a table [rows, 2 * width] of queries and keys side by side.

        A tuple is the sum of the two rows at its places [tuples, 2]; those of a context lie behind one another, as
        many as its length [contexts] says.
        """
        received = table.new_empty(len(places), heads)
        groups, attentions = _groups(lengths, table.dtype), []
        for members, mask, even in groups:
            queries, keys = _gathered(table, places, members, heads)
            scores = queries @ keys.transpose(-1, -2)  # [contexts, heads, longest, longest]
            if mask is not None:
                scores.masked_fill_(~mask[:, None, None], -torch.inf)
            attention = torch.softmax(scores, dim=-1)
            means = (even @ attention).squeeze(-2).transpose(-1, -2)  # [contexts, longest, heads]
            if mask is None:
                received[members.flatten()] = means.flatten(0, 1)
            else:
                received[members[mask]] = means[mask]
            attentions.append(attention)
        ctx.save_for_backward(table, places, *attentions)
        ctx.groups, ctx.heads = groups, heads
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        table, places, *attentions = ctx.saved_tensors
        of_table = torch.zeros_like(table)
        for (members, _, even), attention in zip(ctx.groups, attentions, strict=True):
            received = gradients[0][members].transpose(-1, -2).unsqueeze(-2)  # g: [contexts, heads, 1, longest]
            spread = received - attention @ received.transpose(-1, -2)  # g_i - (A g)_j
            of_scores = spread.mul_(attention).mul_(even.transpose(-1, -2))
            queries, keys = _gathered(table, places, members, ctx.heads)
            of_both = torch.stack([of_scores @ keys, of_scores.transpose(-1, -2) @ queries])
            rows = of_both.permute(1, 3, 0, 2, 4).reshape(members.numel(), -1)  # [contexts * longest, 2 * width]
            for column in places[members.flatten()].T:
                of_table.index_add_(0, column, rows)  # that of padding is zero
        return of_table, None, None, None


def _groups(lengths: Tensor, dtype: torch.dtype) -> list[tuple[Tensor, Tensor | None, Tensor]]:
    """Contexts of similar length together: the numbers of their tuples [contexts, longest], which of them are real,
    None for all, and how much each counts in a mean over the real ones [contexts, 1, 1, longest].

    Padding repeats the first tuple of a context.
    """
    starts = lengths.cumsum(0) - lengths
    order = torch.argsort(lengths, stable=True)
    order = order[lengths[order] > 0]
    ordered = lengths[order].tolist()
    groups: list[tuple[Tensor, Tensor | None, Tensor]] = []
    first = 0
    while first < len(ordered):
        last = first + 1
        while last < len(ordered) and (last + 1 - first) * ordered[last] <= TUPLES_AT_ONCE:
            last += 1
        chosen = order[first:last]
        numbers = torch.arange(ordered[last - 1], device=lengths.device)
        mask = numbers < lengths[chosen, None]
        members = starts[chosen, None] + numbers * mask
        even = (mask.to(dtype) / lengths[chosen, None])[:, None, None]
        groups.append((members, None if ordered[first] == ordered[last - 1] else mask, even))
        first = last
    return groups


def _gathered(table: Tensor, places: Tensor, members: Tensor, heads: int) -> Tensor:
    """The queries and the keys of some tuples, [2, contexts, heads, longest, width / heads]."""
    vectors = F.embedding_bag(places[members.flatten()], table, mode="sum")
    return vectors.view(*members.shape, 2, heads, -1).permute(2, 0, 3, 1, 4)


class ContextEncoder(nn.Module):
    """Self-attention over all tuples of N_h and N_t; the context is the mean of what they become (Eq. 3-4).

    A tuple is r_i + t_i, concatenated. Two things make it fast without changing the result: a projection of a
    concatenation is the sum of the projections of its parts, which are computed once for each distinct relation and
    entity; and the mean of the attended values is the attention that each tuple receives times its value, so that
    tuples are aggregated before they are projected.
    """

    def __init__(self, dimension: int, *, heads: int = 1) -> None:
        super().__init__()
        width = 2 * dimension
        if width % heads:
            raise ValueError(f"{width} is not a multiple of {heads} heads")
        self.dimension = dimension
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)  # a bias would add the same to a row's scores
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, tuples: Tuples, relations: Tensor, entities: Tensor) -> Tensor:
        """The embedding c [contexts, 2 * dim] of contexts, whose numbers are rows of two tables [n, dim]."""
        kinds, neighbors, lengths = tuples
        used = torch.zeros(len(entities), dtype=torch.bool, device=entities.device)
        used[neighbors] = True
        neighbors = (used.cumsum(0) - 1)[neighbors]
        entities = F.embedding(used.nonzero()[:, 0], entities)
        places = torch.stack([kinds, neighbors + len(relations)], dim=1)
        table = self._projected(relations, entities)
        weights: Tensor = _ReceivedAttention.apply(table, places, lengths, self.heads)  # type: ignore[no-untyped-call]  # alpha, [tuples, heads]
        starts = lengths.cumsum(0) - lengths
        aggregated = []
        for weight, of_head, bias in zip(
            weights.T, self.value.weight.chunk(self.heads), self.value.bias.chunk(self.heads), strict=True
        ):
            parts = [
                F.embedding_bag(numbers, table, starts, per_sample_weights=weight.contiguous(), mode="sum")
                for numbers, table in ((kinds, relations), (neighbors, entities))
            ]
            aggregated.append(F.linear(torch.cat(parts, dim=-1), of_head, bias))
        encoded: Tensor = self.output(torch.cat(aggregated, dim=-1))  # (Eq. 4)
        return encoded.masked_fill((lengths == 0)[:, None], 0.0)  # no neighbours at all: nothing to say

    def _projected(self, relations: Tensor, entities: Tensor) -> Tensor:
        """Queries and keys of relations, then of entities, [n, 4 * dim]; a bias is counted once, with the relation."""
        scale = (2 * self.dimension / self.heads) ** -0.5
        weight = torch.cat([self.query.weight * scale, self.key.weight])  # [4 * dim, 2 * dim]
        bias = torch.cat([self.query.bias * scale, torch.zeros_like(self.query.bias)])
        for_relations, for_entities = weight.chunk(2, dim=1)
        return torch.cat([F.linear(relations, for_relations, bias), F.linear(entities, for_entities)])


def info_nce(triplets: Tensor, true: Tensor, false: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of triplets h + t, concatenated, with their true and false contexts (Eq. 5).

    triplets and true are [n, dim], false is [n, falsehoods, dim]; the result is [n].
    """
    contexts = torch.cat([true[:, None], false], dim=1)
    similarity = F.cosine_similarity(triplets[:, None], contexts, dim=-1) / temperature
    return torch.logsumexp(similarity, dim=1) - similarity[:, 0]
