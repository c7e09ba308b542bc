"""Context level: what surrounds head and tail together, and telling it from what does not (Eq. 3-5, appendix D.1)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.contexts import Tuples

TUPLES_AT_ONCE = 1 << 11  # what is computed together should stay in the processor's cache


class _ReceivedAttention(torch.autograd.Function):
    """How much attention each tuple of a context receives: the column means of softmax(Q K^T / sqrt(d)).

    No more is needed of the attention matrix A. With g the gradient of the means over n tuples, that of the scores is
    A * (g - A g) / n, so that two products with Q and K are all that is left to do on the way back. Contexts of
    similar length are computed together, a few at a time; the vectors of their tuples are gathered when they are
    needed and never kept.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, places: Tensor, lengths: Tensor, heads: int) -> Tensor:
        """The attention [tuples, heads] for two tables [rows, width].

        A tuple is the sum of the two rows at its places [tuples, 2]; those of a context lie behind one another, as
        many as its length [contexts] says.
        """
        received = queries.new_zeros(len(places), heads)
        groups, attentions = _groups(lengths), []
        for members, mask in groups:
            query, key = (_gathered(table, places, members, heads) for table in (queries, keys))
            scores = query @ key.transpose(-1, -2)  # [contexts, heads, longest, longest]
            scores *= query.shape[-1] ** -0.5
            scores.masked_fill_(~mask[:, None, None], -torch.inf)
            attention = torch.softmax(scores, dim=-1)
            means = (_even(mask, scores.dtype) @ attention).squeeze(-2)  # [contexts, heads, longest]
            received[members[mask]] = means.transpose(-1, -2)[mask]
            attentions.append(attention)
        ctx.save_for_backward(queries, keys, places, *attentions)
        ctx.groups, ctx.heads = groups, heads
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        queries, keys, places, *attentions = ctx.saved_tensors
        of_queries, of_keys = torch.zeros_like(queries), torch.zeros_like(keys)
        for (members, mask), attention in zip(ctx.groups, attentions, strict=True):
            received = gradients[0][members].transpose(-1, -2).unsqueeze(-2)  # g: [contexts, heads, 1, longest]
            spread = received - attention @ received.transpose(-1, -2)  # g_i - (A g)_j
            of_scores = spread.mul_(attention).mul_(_even(mask, spread.dtype).transpose(-1, -2))
            of_scores *= (queries.shape[1] // ctx.heads) ** -0.5
            query, key = (_gathered(table, places, members, ctx.heads) for table in (queries, keys))
            _scattered(of_queries, of_scores @ key, places, members)
            _scattered(of_keys, of_scores.transpose(-1, -2) @ query, places, members)
        return of_queries, of_keys, None, None, None


def _groups(lengths: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Contexts of similar length together: the numbers of their tuples and which are real, [contexts, longest].

    Padding repeats the first tuple of a context.
    """
    starts = lengths.cumsum(0) - lengths
    order = torch.argsort(lengths, stable=True)
    order = order[lengths[order] > 0]
    ordered = lengths[order].tolist()
    groups = []
    first = 0
    while first < len(ordered):
        last = first + 1
        while last < len(ordered) and (last + 1 - first) * ordered[last] <= TUPLES_AT_ONCE:
            last += 1
        chosen = order[first:last]
        numbers = torch.arange(ordered[last - 1], device=lengths.device)
        mask = numbers < lengths[chosen, None]
        groups.append((starts[chosen, None] + numbers * mask, mask))
        first = last
    return groups


def _even(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Real tuples count evenly, padding not at all: [contexts, 1, 1, longest]."""
    return (mask.to(dtype) / mask.sum(-1, keepdim=True))[:, None, None]


def _gathered(table: Tensor, places: Tensor, members: Tensor, heads: int) -> Tensor:
    """The vectors of some tuples, [contexts, heads, longest, width / heads]."""
    vectors = F.embedding_bag(places[members.flatten()], table, mode="sum")
    return vectors.view(*members.shape, heads, -1).transpose(1, 2)


def _scattered(table: Tensor, gradient: Tensor, places: Tensor, members: Tensor) -> None:
    """Add the gradients of some tuples to the rows that they are made of; those of padding are zero."""
    rows = gradient.transpose(1, 2).reshape(members.numel(), -1)
    for column in places[members.flatten()].T:
        table.index_add_(0, column, rows)


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
        queries, keys = (self._by_part(layer, relations, entities) for layer in (self.query, self.key))
        weights: Tensor = _ReceivedAttention.apply(queries, keys, places, lengths, self.heads)  # type: ignore[no-untyped-call]  # alpha, [tuples, heads]
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

    def _by_part(self, layer: nn.Linear, relations: Tensor, entities: Tensor) -> Tensor:
        """The projections of relations, then those of entities; the bias is counted once, with the relation."""
        for_relations, for_entities = layer.weight.chunk(2, dim=1)
        return torch.cat([F.linear(relations, for_relations, layer.bias), F.linear(entities, for_entities)])


def info_nce(triplets: Tensor, true: Tensor, false: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of triplets h + t, concatenated, with their true and false contexts (Eq. 5).

    triplets and true are [n, dim], false is [n, falsehoods, dim]; the result is [n].
    """
    contexts = torch.cat([true[:, None], false], dim=1)
    similarity = F.cosine_similarity(triplets[:, None], contexts, dim=-1) / temperature
    return torch.logsumexp(similarity, dim=1) - similarity[:, 0]
