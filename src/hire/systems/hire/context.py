"""Context level: the neighborhood of head and tail, contrasted with corrupted ones (Eq. 3-5, appendix D.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.sampling.contexts import Tuples
from hire.systems.episodic.settings import check_heads

TUPLES_AT_ONCE = 1 << 11  # a group should fit in the processor's cache


class _AttendedTuples(torch.autograd.Function):
    """The mean of the attended tuples of a context: its tuples, weighted by the attention that they receive.

    That is m X with m the column means of A = softmax(X B X^T), for each head's B = W_Q^T W_K / sqrt(d). One side of a
    score is the raw tuple, the other is the sum of B applied to its relation and to its entity, each computed once.
    In the backward pass, with g the gradient of m over n tuples, the gradient of the scores is A * (g - A g) / n.

    Contexts of similar length are computed together, a few at a time. The vectors of their tuples are gathered when
    they are needed and not kept; gradients are accumulated in place.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, forms: Tensor, positions: Tensor, lengths: Tensor, first: int) -> Tensor:
        """The means [contexts, heads, 2 * dim], for a table [n, dim] and bilinear forms [heads, 2 * dim, 2 * dim].

        A tuple is the concatenation of two rows of the table, at its positions [tuples, 2]. Relations come first in the
        table, entities from the row `first` on. The tuples of all contexts are concatenated; lengths are [contexts].
        """
        keys = _keys(table, forms, first)
        means = table.new_zeros(len(lengths), len(forms), 2 * table.shape[1])
        groups, attentions = _groups(lengths, table.dtype), []
        for group in groups:
            of_group = positions[group.members]  # [contexts, longest, 2]
            tuples = _raw(table, of_group)
            scores = tuples @ _gathered(keys, of_group, len(forms)).transpose(-1, -2)
            if group.padding is not None:
                scores.masked_fill_(group.padding, -torch.inf)
            attention = torch.softmax(scores, dim=-1)  # [contexts, heads, longest, longest]
            means[group.contexts] = (group.even @ attention @ tuples).squeeze(-2)
            attentions.append(attention)
        ctx.save_for_backward(table, forms, positions, keys, *attentions)
        ctx.groups, ctx.first = groups, first
        return means

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        table, forms, positions, keys, *attentions = ctx.saved_tensors
        of_table, of_keys = torch.zeros_like(table), torch.zeros_like(keys)
        for group, attention in zip(ctx.groups, attentions, strict=True):
            of_group = positions[group.members]
            tuples = _raw(table, of_group)
            of_mean = gradients[0][group.contexts].unsqueeze(-2)  # [contexts, heads, 1, 2 * dim]
            received = of_mean @ tuples.transpose(-1, -2)  # g: [contexts, heads, 1, longest]
            spread = received - attention @ received.transpose(-1, -2)  # g_i - (A g)_j
            of_scores = spread.mul_(attention).mul_(group.even.transpose(-1, -2))
            of_tuples = of_scores @ _gathered(keys, of_group, len(forms))
            of_tuples += (group.even @ attention).transpose(-1, -2) * of_mean
            of_tuples = of_tuples.sum(dim=1) if len(forms) > 1 else of_tuples[:, 0]
            of_table.index_add_(0, of_group.flatten(), of_tuples.view(-1, table.shape[1]))  # padding adds zero
            of_key = of_scores.transpose(-1, -2) @ tuples
            of_key = of_key.transpose(1, 2).reshape(group.members.numel(), -1)
            for column in of_group.flatten(0, 1).T:
                of_keys.index_add_(0, column, of_key)
        return of_table, _keys_backward(of_keys, of_table, table, forms, ctx.first), None, None, None


def _keys(table: Tensor, forms: Tensor, first: int) -> Tensor:
    """The forms applied to each row of the table, as a relation or as an entity, [n, heads * width]."""
    keys = table.new_empty(len(table), forms.shape[0] * forms.shape[1])
    for_relations, for_entities = forms.flatten(0, 1).chunk(2, dim=1)
    torch.mm(table[:first], for_relations.T, out=keys[:first])
    torch.mm(table[first:], for_entities.T, out=keys[first:])
    return keys


def _keys_backward(of_keys: Tensor, of_table: Tensor, table: Tensor, forms: Tensor, first: int) -> Tensor:
    """Add the gradient of the table that flows through the keys to `of_table`; returns the gradient of the forms."""
    for_relations, for_entities = forms.flatten(0, 1).chunk(2, dim=1)
    of_table[:first].addmm_(of_keys[:first], for_relations)
    of_table[first:].addmm_(of_keys[first:], for_entities)
    parts = [of_keys[:first].T @ table[:first], of_keys[first:].T @ table[first:]]
    return torch.cat(parts, dim=1).view_as(forms)


def _raw(table: Tensor, positions: Tensor) -> Tensor:
    """The vectors of tuples [contexts, longest, 2]: [contexts, 1, longest, 2 * dim]."""
    return F.embedding(positions, table).flatten(2).unsqueeze(1)


def _gathered(keys: Tensor, positions: Tensor, heads: int) -> Tensor:
    """The keys of tuples [contexts, longest, 2]: [contexts, heads, longest, 2 * dim]."""
    summed = F.embedding_bag(positions.flatten(0, 1), keys, mode="sum")
    return summed.view(*positions.shape[:2], heads, -1).transpose(1, 2)


class _Group(NamedTuple):
    """Contexts of similar length; padding repeats the first tuple of a context."""

    contexts: Tensor  # [contexts]: their indices
    members: Tensor  # [contexts, longest]: the indices of their tuples
    padding: Tensor | None  # [contexts, 1, 1, longest]: where there is padding; None if nowhere
    even: Tensor  # [contexts, 1, 1, longest]: the weight of each tuple in a mean without padding


def _groups(lengths: Tensor, dtype: torch.dtype) -> list[_Group]:
    """All contexts that have tuples, in groups to compute at once."""
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
        columns = torch.arange(ordered[last - 1], device=lengths.device)
        real = columns < lengths[chosen, None]
        padding = None if ordered[first] == ordered[last - 1] else ~real[:, None, None]
        even = (real.to(dtype) / lengths[chosen, None])[:, None, None]
        groups.append(_Group(chosen, starts[chosen, None] + columns * real, padding, even))
        first = last
    return groups


class ContextEncoder(nn.Module):
    """Self-attention over all tuples of N_h and N_t; the context is the mean of the attended tuples (Eq. 3-4).

    A tuple is r_i + t_i, concatenated. The mean of the attended values is the sum of each tuple's value times the
    attention it receives, so tuples are aggregated before they are projected.
    """

    def __init__(self, dimension: int, *, heads: int = 1) -> None:
        super().__init__()
        width = 2 * dimension
        check_heads(width, heads)
        self.dimension = dimension
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, tuples: Tuples, relations: Tensor, entities: Tensor) -> Tensor:
        """The embedding c [contexts, 2 * dim] of contexts, whose ids are rows of two tables [n, dim]."""
        relation_ids, neighbors, lengths = tuples
        used = torch.zeros(len(entities), dtype=torch.bool, device=entities.device)
        used[neighbors] = True
        if used.sum() < len(entities) / 2:  # leave out entities that occur in no context
            neighbors = (used.cumsum(0) - 1)[neighbors]
            entities = F.embedding(used.nonzero()[:, 0], entities)
        positions = torch.stack([relation_ids, neighbors + len(relations)], dim=1)
        query, key = (layer.weight.view(self.heads, -1, 2 * self.dimension) for layer in (self.query, self.key))
        forms = query.transpose(1, 2) @ key / query.shape[1] ** 0.5  # [heads, 2 * dim, 2 * dim]
        table = torch.cat([relations, entities])
        means: Tensor = _AttendedTuples.apply(table, forms, positions, lengths, len(relations))  # type: ignore[no-untyped-call]
        values = self.value.weight.view(self.heads, -1, 2 * self.dimension)
        attended = torch.einsum("chd,hvd->chv", means, values)  # [contexts, heads, 2 * dim / heads]
        encoded: Tensor = self.output(attended.flatten(1))  # (Eq. 4)
        return encoded


def info_nce(triplets: Tensor, true: Tensor, false: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of triplets h + t, concatenated, with their true and false contexts (Eq. 5).

    triplets and true are [n, dim], false is [n, falsehoods, dim]; the result is [n].
    """
    contexts = torch.cat([true[:, None], false], dim=1)
    similarity = F.cosine_similarity(triplets[:, None], contexts, dim=-1) / temperature
    return torch.logsumexp(similarity, dim=1) - similarity[:, 0]
