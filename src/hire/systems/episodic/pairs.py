"""Networks that make one vector of a pair and its neighbors, to compare with those of references: FAAN and CIAN."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hire.systems.episodic.network import Entities, EpisodicNetwork, Pairs, dropped_out, masked_softmax, pooled


class PairNetwork(EpisodicNetwork):
    """The vector of a pair depends on both ends at once, so that nothing can be encoded before they are paired."""

    pairs_at_once: ClassVar[int] = 1 << 12
    neighbor_dropout: float = 0.0  # of the vectors of neighbors and their relations

    def encode(self, entities: Entities) -> Entities:
        """The entities themselves: their neighbors have been looked up."""
        return entities

    @abstractmethod
    def pairs(self, heads: Entities, tails: Entities) -> Tensor:
        """The vectors [tasks, q, n, width] of heads [tasks, q, 1] with tails [tasks, q or 1, n]."""

    def adapt(self, references: Pairs) -> Tensor:
        """The vectors of the references, [tasks, shots, width]."""
        return self.pairs(references.heads[:, :, None], references.tails[:, :, None])[:, :, 0]

    def score(self, relation: Tensor, heads: Entities, tails: Entities) -> Tensor:
        """q . sum of b_k s_k, where b is the softmax of q . s_k / sqrt(width) over the references s, [tasks, q, n]."""
        pairs = self.pairs(heads, tails)
        products = pairs @ relation[:, None].transpose(-1, -2)  # [tasks, q, n, shots]
        weights = torch.softmax(products / math.sqrt(pairs.shape[-1]), dim=-1)
        return (weights * products).sum(dim=-1)

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """The loss after dropout."""
        return super().objective(*dropped_out(self.neighbor_dropout, references, queries))


class Vectors(NamedTuple):
    """The vectors of some entities' neighbors as rows of a table."""

    rows: Tensor  # [..., neighbors]
    table: Tensor  # [m, dim]


def over_neighbors(queries: Tensor, mask: Tensor, keys: Vectors, values: Vectors, dropout: float = 0.0) -> Tensor:
    """What pairs see in the neighbors of one of their ends: the sum of values, weighted by softmax(query . key).

    queries [tasks, q, n, dim] are those of pairs; mask and rows [tasks, q or 1, n or 1, neighbors] are those of heads
    or tails. Pairs that share an end are computed together. The result is [tasks, q, n, width of a value].
    """
    every = slice(None)
    ends: tuple[slice | int, ...]
    if mask.shape[1] == 1 != queries.shape[1]:  # tails that all heads share
        queries, ends = queries.transpose(1, 2), (every, 0)
        return attended(queries, mask[ends], _part(keys, ends), _part(values, ends), dropout).transpose(1, 2)
    if mask.shape[2] == 1:  # heads, or one tail for each
        ends = (every, every, 0)
        return attended(queries, mask[ends], _part(keys, ends), _part(values, ends), dropout)
    return attended(queries.unsqueeze(-2), mask, keys, values, dropout).squeeze(-2)


def attended(queries: Tensor, mask: Tensor, keys: Vectors, values: Vectors, dropout: float = 0.0) -> Tensor:
    """The attention of p queries [..., p, dim] each over the same neighbors [..., n]: [..., p, width of a value].

    For few queries, or if most neighbors are padding, without the vectors of padding; otherwise as matrix products.
    """
    few = bool(queries.shape[-2] * mask.sum() <= mask.numel())
    scores = _products(queries, mask, keys) if few else queries @ F.embedding(*keys).transpose(-1, -2)
    weights = masked_softmax(scores, mask.unsqueeze(-2))  # [..., p, n]
    weights = F.dropout(weights, dropout, training=dropout > 0)
    if not few:
        return weights @ F.embedding(*values)
    rows, mask = (part.unsqueeze(-2).expand_as(weights) for part in (values.rows, mask))
    return pooled(rows, values.table, weights, mask)


def _products(queries: Tensor, mask: Tensor, keys: Vectors) -> Tensor:
    """query . key, [..., p, n], computed only where the mask is true."""
    flat = queries.flatten(0, -3)  # [m, p, dim]
    owners = mask.flatten(0, -2).nonzero()[:, 0]  # [edges]
    of_edges = F.embedding(owners, flat.flatten(1)).view(len(owners), *flat.shape[1:])  # [edges, p, dim]
    found = (of_edges * F.embedding(keys.rows[mask], keys.table).unsqueeze(1)).sum(dim=-1)  # [edges, p]
    padded = found.new_zeros(*mask.shape, flat.shape[1]).masked_scatter(mask.unsqueeze(-1), found)
    return padded.transpose(-1, -2)


def _part(vectors: Vectors, index: tuple[slice | int, ...]) -> Vectors:
    return Vectors(vectors.rows[index], vectors.table)
