"""The score functions of conventional embeddings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hire.embeddings.distances import distance, normal, squared_distances

EmbeddingName = Literal["transe", "transh", "transd", "distmult", "complex", "complex-n3"]


TRANSLATIONAL = ("transe", "transh", "transd")


COMPLEX = ("complex", "complex-n3")


REGULARIZED = ("distmult", "complex-n3")


def widths(model: EmbeddingName, dimension: int) -> tuple[int, int]:
    """The widths of the tables of entities and of relations."""
    return dimension * (2 if model == "transd" else 1), dimension * (2 if model in ("transh", "transd") else 1)


def logits(model: EmbeddingName, margin: float, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """How plausible each tail is for each (head, relation) of its group: [..., triples, tails]."""
    if model == "transe":
        return margin - distance(squared_distances(heads + relations, tails))  # d(h + r, t) in Eq. 1 of TransE
    if model == "transh":
        translation, direction = relations.chunk(2, dim=-1)
        direction = normal(direction)  # w of length 1, Eq. 3 of TransH
        moved = heads - (direction * heads).sum(-1, keepdim=True) * direction + translation
        return margin - distance(squared_distances(moved, tails, direction, -(direction @ tails.transpose(-1, -2))))
    if model == "transd":
        translation, direction = relations.chunk(2, dim=-1)
        (heads, head_projections), (tails, tail_projections) = heads.chunk(2, dim=-1), tails.chunk(2, dim=-1)
        moved = heads + (head_projections * heads).sum(-1, keepdim=True) * direction + translation
        along = (tail_projections * tails).sum(-1).unsqueeze(-2)
        return margin - distance(squared_distances(moved, tails, direction, along))
    if model == "distmult":
        return (heads * relations) @ tails.transpose(-1, -2)  # Eq. 2 of DistMult, with a diagonal matrix
    # Eq. 9 of ComplEx: the real part of a product with a conjugate is the inner product of both halves.
    return _complex_product(heads, relations) @ tails.transpose(-1, -2)


def _complex_product(left: Tensor, right: Tensor) -> Tensor:
    """The product of complex vectors that are stored as their real halves, then their imaginary halves."""
    (a, b), (c, d) = left.chunk(2, dim=-1), right.chunk(2, dim=-1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=-1)
