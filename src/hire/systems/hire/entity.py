"""Entity level: translation from projected heads to projected tails around a meta relation (Eq. 9-11).

Every decoder scores by ||h_perp + R - t_perp||, where an entity is moved along one direction v of the relation:
e_perp = e + a(e) v. MTransE has no v; MTransH has a(e) = -(v . e) with a unit vector v, the normal of a hyperplane;
MTransD has a(e) = e_p . e with a projection vector e_p of the entity itself, and v = r_p, that of the relation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

from hire.embeddings.distances import distance, normal, squared_distances

Decoder = Literal["mtransd", "mtransh", "mtranse"]


class Vectors(NamedTuple):
    """Entities as the decoder sees them."""

    embeddings: Tensor  # [..., n, dim]
    projections: Tensor  # [..., n, dim]: e_p of MTransD


class MetaRelation(NamedTuple):
    """The parameters of a relation, all of which are refined on the references (Eq. 13-16)."""

    translation: Tensor  # [..., dim]: R
    direction: Tensor  # [..., dim]: r_p of MTransD, the normal of MTransH
    head_shift: Tensor  # [..., dim]: added to the projection vector of every head of the task
    tail_shift: Tensor  # [..., dim]: added to that of every tail


def projected(decoder: Decoder, entities: Vectors, direction: Tensor, shift: Tensor) -> Tensor:
    """e_perp of entities [..., n, dim]; direction and shift of their relation are [..., 1, dim] (Eq. 9)."""
    if decoder == "mtranse":
        return entities.embeddings
    if decoder == "mtransh":
        direction = normal(direction)
        return entities.embeddings - (direction * entities.embeddings).sum(-1, keepdim=True) * direction
    along = ((entities.projections + shift) * entities.embeddings).sum(-1, keepdim=True)
    return entities.embeddings + along * direction


def translated(decoder: Decoder, relation: MetaRelation, heads: Vectors) -> Tensor:
    """h_perp + R, [..., n, dim] (Eq. 9)."""
    translation, direction, shift, _ = (part.unsqueeze(-2) for part in relation)
    return projected(decoder, heads, direction, shift) + translation


def projected_tails(decoder: Decoder, relation: MetaRelation, tails: Vectors) -> Tensor:
    """t_perp, [..., n, dim] (Eq. 9)."""
    return projected(decoder, tails, relation.direction.unsqueeze(-2), relation.tail_shift.unsqueeze(-2))


def distances(decoder: Decoder, relation: MetaRelation, moved: Tensor, tails: Vectors) -> Tensor:
    """||h_perp + R - t_perp|| of every translated head [..., n, dim] with every tail: [..., n, tails] (Eq. 10-11)."""
    return distance(squared_distances(moved, projected_tails(decoder, relation, tails)))


def own_distances(decoder: Decoder, relation: MetaRelation, moved: Tensor, tails: Vectors) -> Tensor:
    """The same for translated heads [..., n, dim] with tails [..., n, m, dim] of their own: [..., n, m]."""
    direction, shift = (part[..., None, None, :] for part in (relation.direction, relation.tail_shift))
    difference = moved.unsqueeze(-2) - projected(decoder, tails, direction, shift)
    return distance(difference.square().sum(-1))
