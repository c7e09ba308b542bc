"""Entity level: translation from projected heads to projected tails around a meta relation (Eq. 9-11).

Every decoder scores by ||h_perp + R - t_perp||, where an entity is moved along one direction v of the relation:
e_perp = e + a(e) v. MTransE has no v; MTransH has a(e) = -(v . e) with a unit vector v, the normal of a hyperplane;
MTransD has a(e) = e_p . e with a projection vector e_p of the entity itself, and v = r_p, that of the relation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Decoder = Literal["mtransd", "mtransh", "mtranse"]


class Vectors(NamedTuple):
    """Entities as the decoder sees them."""

    embeddings: Tensor  # [..., n, dim]
    projections: Tensor  # [..., n, dim]: e_p of MTransD


class Relation(NamedTuple):
    """What is known of a relation; every part may be refined on the references (Eq. 13-16)."""

    translation: Tensor  # [..., dim]: R
    direction: Tensor  # [..., dim]: r_p of MTransD, the normal of MTransH
    head_shift: Tensor  # [..., dim]: what the task adds to the projection vector of every head
    tail_shift: Tensor  # [..., dim]: and of every tail


def projected(decoder: Decoder, entities: Vectors, direction: Tensor, shift: Tensor) -> Tensor:
    """e_perp of entities [..., n, dim]; direction and shift of their relation are [..., 1, dim] (Eq. 9)."""
    if decoder == "mtranse":
        return entities.embeddings
    if decoder == "mtransh":
        direction = normal(direction)
        return entities.embeddings - (direction * entities.embeddings).sum(-1, keepdim=True) * direction
    along = ((entities.projections + shift) * entities.embeddings).sum(-1, keepdim=True)
    return entities.embeddings + along * direction


def translated(decoder: Decoder, relation: Relation, heads: Vectors) -> Tensor:
    """h_perp + R, [..., n, dim] (Eq. 9)."""
    translation, direction, shift, _ = (part.unsqueeze(-2) for part in relation)
    return projected(decoder, heads, direction, shift) + translation


def projected_tails(decoder: Decoder, relation: Relation, tails: Vectors) -> Tensor:
    """t_perp, [..., n, dim] (Eq. 9)."""
    return projected(decoder, tails, relation.direction.unsqueeze(-2), relation.tail_shift.unsqueeze(-2))


def distances(decoder: Decoder, relation: Relation, moved: Tensor, tails: Vectors) -> Tensor:
    """||h_perp + R - t_perp|| of every translated head [..., n, dim] with every tail: [..., n, tails] (Eq. 10-11)."""
    return distance(squared_distances(moved, projected_tails(decoder, relation, tails)))


def own_distances(decoder: Decoder, relation: Relation, moved: Tensor, tails: Vectors) -> Tensor:
    """The same for translated heads [..., n, dim] with tails [..., n, m, dim] of their own: [..., n, m]."""
    direction, shift = (part[..., None, None, :] for part in (relation.direction, relation.tail_shift))
    difference = moved.unsqueeze(-2) - projected(decoder, tails, direction, shift)
    return distance(difference.square().sum(-1))


def squared_distances(
    moved: Tensor, entities: Tensor, direction: Tensor | None = None, along: Tensor | None = None
) -> Tensor:
    """||u - (c + a v)||^2 of every u with every c of its group, without making their difference.

    moved u [..., queries, dim], entities c [..., candidates, dim], direction v [..., 1 or queries, dim],
    along a [..., 1 or queries, candidates]; the result is [..., queries, candidates].
    """
    squares = moved.square().sum(-1, keepdim=True) + entities.square().sum(-1).unsqueeze(-2)
    found = squares - 2 * moved @ entities.transpose(-1, -2)
    if direction is not None and along is not None:
        with_entities = direction @ entities.transpose(-1, -2)  # v . c
        with_moved = (direction * moved).sum(-1, keepdim=True)  # v . u
        length = direction.square().sum(-1, keepdim=True)  # |v|^2
        found = found + along * (2 * (with_entities - with_moved) + along * length)
    return found


def distance(squared: Tensor) -> Tensor:
    """The distance of a squared distance, with a gradient that stays finite at zero."""
    return squared.clamp_min(1e-8).sqrt()


def normal(direction: Tensor) -> Tensor:
    """A unit vector, for the hyperplanes of TransH."""
    return torch.nn.functional.normalize(direction, dim=-1)
