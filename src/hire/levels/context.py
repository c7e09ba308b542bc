"""Context level: what surrounds head and tail together, and telling it from what does not (Eq. 3-5, appendix D.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.contexts import Contexts

LENGTH_STEP = 8  # contexts are padded to a multiple of this, and those of one padded length go together
TUPLES_AT_ONCE = 1 << 17  # bounds the memory of a group


class _MeanAttention(torch.autograd.Function):
    """How much attention each tuple of a context receives: the column means of softmax(Q K^T).

    Only these are needed of the attention matrix A. With g the gradient of the means over the n real tuples, that of
    the scores is A * (g - A g) / n, so that two products with Q and K are all that is left to do.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        scores = queries @ keys.transpose(-1, -2)  # [contexts, tuples, tuples]
        scores.masked_fill_(~mask[:, None], -torch.inf)
        attention = torch.softmax(scores, dim=-1)
        real = mask.to(scores.dtype)
        rows = real / real.sum(-1, keepdim=True)  # [contexts, tuples]: real queries count evenly, padding not at all
        ctx.save_for_backward(queries, keys, attention, rows)
        return (rows[:, None] @ attention)[:, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, keys, attention, rows = ctx.saved_tensors
        received = gradients[0][:, None]  # [contexts, 1, tuples]
        spread = received - attention @ received.transpose(-1, -2)  # g_i - (A g)_j: [contexts, tuples, tuples]
        of_scores = spread.mul_(attention).mul_(rows[:, :, None])
        return of_scores @ keys, of_scores.transpose(-1, -2) @ queries, None


class ContextEncoder(nn.Module):
    """Self-attention over all tuples of N_h and N_t; the context is the mean of what they become (Eq. 3-4).

    A tuple is r_i + t_i, concatenated. Three things make it fast without changing the result: a projection of a
    concatenation is the sum of the projections of its parts, which are computed once for each distinct relation and
    entity; the mean of the attended values is the attention that each tuple receives times its value, so that values
    are aggregated before they are projected; and contexts of similar length go together.
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

    def forward(self, contexts: Contexts, relations: Tensor, entities: Tensor) -> Tensor:
        """The embedding c [contexts, 2 * dim] of contexts, whose numbers are rows of two tables [n, dim]."""
        mask = contexts.mask.flatten(1)  # [contexts, tuples]: N_h and N_t together
        lengths = mask.sum(dim=1)
        projected = [
            self._by_part(layer, relations, entities) for layer in (self.query, self.key)
        ]  # of each: relations [n, width], entities [m, width]
        order = torch.argsort(lengths, stable=True)
        parts = [
            self._encode(chosen, contexts, mask, projected, relations, entities) for chosen in _groups(order, lengths)
        ]
        encoded = torch.cat(parts)
        return encoded[torch.argsort(order)]

    def _by_part(self, layer: nn.Linear, relations: Tensor, entities: Tensor) -> tuple[Tensor, Tensor]:
        for_relations, for_entities = layer.weight.chunk(2, dim=1)
        bias = layer.bias  # counted once, with the relation
        return F.linear(relations, for_relations, bias), F.linear(entities, for_entities)

    def _encode(
        self,
        chosen: Tensor,
        contexts: Contexts,
        mask: Tensor,
        projected: list[tuple[Tensor, Tensor]],
        relations: Tensor,
        entities: Tensor,
    ) -> Tensor:
        """The embeddings of some contexts, whose real tuples are moved to the front."""
        mask = mask[chosen]
        longest = int(mask.sum(dim=1).max())
        if longest == 0:  # no neighbours at all: nothing to say
            return entities.new_zeros(len(chosen), 2 * self.dimension)
        width = min(mask.shape[1], -(-longest // LENGTH_STEP) * LENGTH_STEP)
        front = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)[:, :width]
        mask = mask.gather(1, front)
        kinds = contexts.relations[chosen].flatten(1).gather(1, front)
        neighbors = contexts.entities[chosen].flatten(1).gather(1, front)
        queries, keys = (
            F.embedding(kinds, of_relations) + F.embedding(neighbors, of_entities)
            for of_relations, of_entities in projected
        )  # [contexts, tuples, 2 * dim]
        empty = ~mask.any(dim=1)
        safe = mask | empty[:, None]
        aggregated = []
        size = 2 * self.dimension // self.heads
        for head in range(self.heads):
            of_head = slice(head * size, (head + 1) * size)
            weights: Tensor = _MeanAttention.apply(queries[..., of_head] / math.sqrt(size), keys[..., of_head], safe)  # type: ignore[no-untyped-call]  # alpha
            tuples = torch.cat(
                [_weighted_sum(kinds, weights, relations), _weighted_sum(neighbors, weights, entities)], -1
            )
            aggregated.append(F.linear(tuples, self.value.weight[of_head], self.value.bias[of_head]))
        encoded: Tensor = self.output(torch.cat(aggregated, dim=-1))  # (Eq. 4)
        return encoded.masked_fill(empty[:, None], 0.0)


def _weighted_sum(numbers: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    """The sum of some rows of a table, each with its weight: [groups, dim]."""
    return F.embedding_bag(numbers, table, per_sample_weights=weights, mode="sum")


def _groups(order: Tensor, lengths: Tensor) -> list[Tensor]:
    """Split contexts, ordered by length, where the padded length changes or a group gets too large."""
    padded = (-(-lengths[order] // LENGTH_STEP) * LENGTH_STEP).numpy()
    groups = []
    for part in np.split(order.numpy(), np.flatnonzero(np.diff(padded)) + 1):
        longest = max(1, int(lengths[part].max()))
        at_once = max(1, TUPLES_AT_ONCE // longest)
        groups += [torch.from_numpy(part[start : start + at_once]) for start in range(0, len(part), at_once)]
    return groups


def info_nce(triplets: Tensor, true: Tensor, false: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of triplets h + t, concatenated, with their true and false contexts (Eq. 5).

    triplets and true are [n, dim], false is [n, falsehoods, dim]; the result is [n].
    """
    contexts = torch.cat([true[:, None], false], dim=1)
    similarity = F.cosine_similarity(triplets[:, None], contexts, dim=-1) / temperature
    return torch.logsumexp(similarity, dim=1) - similarity[:, 0]
