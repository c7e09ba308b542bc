"""Context level: what surrounds head and tail together, and telling it from what does not (Eq. 3-5, appendix D.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.sampling.contexts import Tuples

TUPLES_AT_ONCE = 1 << 11  # what is computed together should stay in the processor's cache


class _AttendedTuples(torch.autograd.Function):
    """The mean over a context's tuples of what they attend to: the tuples, weighted by the attention they receive.

    That is m X with m the column means of A = softmax(X B X^T), for each head's B = W_Q^T W_K / sqrt(d). One side of a
    score is a tuple as it is, the other the sum of what B makes of its relation and of its entity, each computed once.
    On the way back, with g the gradient of m over n tuples, that of the scores is A * (g - A g) / n.

    Contexts of similar length are computed together, a few at a time. The vectors of their tuples are gathered when
    they are needed and never kept; gradients are added up in place.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, forms: Tensor, places: Tensor, lengths: Tensor, first: int) -> Tensor:
        """The means [contexts, heads, 2 * dim], for a table [n, dim] and bilinear forms [heads, 2 * dim, 2 * dim].

        A tuple is the concatenation of two rows, at its places [tuples, 2]; in the table entities come after relations,
        from the first one on. The tuples of a context lie behind one another, as many as its length [contexts] says.
        """
        keys = _keys(table, forms, first)
        means = table.new_zeros(len(lengths), len(forms), 2 * table.shape[1])
        groups, attentions = _groups(lengths, table.dtype), []
        for group in groups:
            of_group = places[group.members]  # [contexts, longest, 2]
            tuples = _raw(table, of_group)
            scores = tuples @ _gathered(keys, of_group, len(forms)).transpose(-1, -2)
            if group.padding is not None:
                scores.masked_fill_(group.padding, -torch.inf)
            attention = torch.softmax(scores, dim=-1)  # [contexts, heads, longest, longest]
            means[group.contexts] = (group.even @ attention @ tuples).squeeze(-2)
            attentions.append(attention)
        ctx.save_for_backward(table, forms, places, keys, *attentions)
        ctx.groups, ctx.first = groups, first
        return means

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        table, forms, places, keys, *attentions = ctx.saved_tensors
        of_table, of_keys = torch.zeros_like(table), torch.zeros_like(keys)
        for group, attention in zip(ctx.groups, attentions, strict=True):
            of_group = places[group.members]
            tuples = _raw(table, of_group)
            of_mean = gradients[0][group.contexts].unsqueeze(-2)  # [contexts, heads, 1, 2 * dim]
            received = of_mean @ tuples.transpose(-1, -2)  # g: [contexts, heads, 1, longest]
            spread = received - attention @ received.transpose(-1, -2)  # g_i - (A g)_j
            of_scores = spread.mul_(attention).mul_(group.even.transpose(-1, -2))
            of_tuples = of_scores @ _gathered(keys, of_group, len(forms))
            of_tuples += (group.even @ attention).transpose(-1, -2) * of_mean
            of_tuples = of_tuples.sum(dim=1) if len(forms) > 1 else of_tuples[:, 0]
            of_table.index_add_(0, of_group.flatten(), of_tuples.view(-1, table.shape[1]))  # what padding adds is zero
            of_key = of_scores.transpose(-1, -2) @ tuples
            of_key = of_key.transpose(1, 2).reshape(group.members.numel(), -1)
            for column in of_group.flatten(0, 1).T:
                of_keys.index_add_(0, column, of_key)
        return of_table, _keys_backward(of_keys, of_table, table, forms, ctx.first), None, None, None


def _keys(table: Tensor, forms: Tensor, first: int) -> Tensor:
    """What the forms make of each row, as a relation or as an entity, [n, heads * width]."""
    keys = table.new_empty(len(table), forms.shape[0] * forms.shape[1])
    for_relations, for_entities = forms.flatten(0, 1).chunk(2, dim=1)
    torch.mm(table[:first], for_relations.T, out=keys[:first])
    torch.mm(table[first:], for_entities.T, out=keys[first:])
    return keys


def _keys_backward(of_keys: Tensor, of_table: Tensor, table: Tensor, forms: Tensor, first: int) -> Tensor:
    """Add what the gradient of the keys says about the table to that of the table; the result is that of the forms."""
    for_relations, for_entities = forms.flatten(0, 1).chunk(2, dim=1)
    of_table[:first].addmm_(of_keys[:first], for_relations)
    of_table[first:].addmm_(of_keys[first:], for_entities)
    parts = [of_keys[:first].T @ table[:first], of_keys[first:].T @ table[first:]]
    return torch.cat(parts, dim=1).view_as(forms)


def _raw(table: Tensor, places: Tensor) -> Tensor:
    """Some tuples [contexts, longest, 2] as they are: [contexts, 1, longest, 2 * dim]."""
    return F.embedding(places, table).flatten(2).unsqueeze(1)


def _gathered(keys: Tensor, places: Tensor, heads: int) -> Tensor:
    """The keys of some tuples [contexts, longest, 2]: [contexts, heads, longest, 2 * dim]."""
    summed = F.embedding_bag(places.flatten(0, 1), keys, mode="sum")
    return summed.view(*places.shape[:2], heads, -1).transpose(1, 2)


class _Group(NamedTuple):
    """Contexts of similar length; padding repeats the first tuple of a context."""

    contexts: Tensor  # [contexts]: their numbers
    members: Tensor  # [contexts, longest]: the numbers of their tuples
    padding: Tensor | None  # [contexts, 1, 1, longest]: where there is padding, None if nowhere
    even: Tensor  # [contexts, 1, 1, longest]: how much each tuple counts in a mean over the real ones


def _groups(lengths: Tensor, dtype: torch.dtype) -> list[_Group]:
    """All contexts that have tuples, as many together as should be computed at once."""
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
        real = numbers < lengths[chosen, None]
        padding = None if ordered[first] == ordered[last - 1] else ~real[:, None, None]
        even = (real.to(dtype) / lengths[chosen, None])[:, None, None]
        groups.append(_Group(chosen, starts[chosen, None] + numbers * real, padding, even))
        first = last
    return groups


class ContextEncoder(nn.Module):
    """Self-attention over all tuples of N_h and N_t; the context is the mean of what they become (Eq. 3-4).

    A tuple is r_i + t_i, concatenated. The mean of the attended values is the attention that each tuple receives times
    its value, so tuples are aggregated before they are projected.
    """

    def __init__(self, dimension: int, *, heads: int = 1) -> None:
        super().__init__()
        width = 2 * dimension
        if width % heads:
            raise ValueError(f"{width} is not a multiple of {heads} heads")
        self.dimension = dimension
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, tuples: Tuples, relations: Tensor, entities: Tensor) -> Tensor:
        """The embedding c [contexts, 2 * dim] of contexts, whose numbers are rows of two tables [n, dim]."""
        kinds, neighbors, lengths = tuples
        used = torch.zeros(len(entities), dtype=torch.bool, device=entities.device)
        used[neighbors] = True
        if used.sum() < len(entities) / 2:  # leave out what no context mentions
            neighbors = (used.cumsum(0) - 1)[neighbors]
            entities = F.embedding(used.nonzero()[:, 0], entities)
        places = torch.stack([kinds, neighbors + len(relations)], dim=1)
        query, key = (layer.weight.view(self.heads, -1, 2 * self.dimension) for layer in (self.query, self.key))
        forms = query.transpose(1, 2) @ key / query.shape[1] ** 0.5  # [heads, 2 * dim, 2 * dim]
        table = torch.cat([relations, entities])
        means: Tensor = _AttendedTuples.apply(table, forms, places, lengths, len(relations))  # type: ignore[no-untyped-call]
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
