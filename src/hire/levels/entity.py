"""Entity level: translation from projected heads to projected tails around a meta relation (Eq. 9-12).

Every decoder scores by ||h_perp + R - t_perp||, where an entity is moved along one direction v of the relation:
e_perp = e + a(e) v. MTransE has no v; MTransH has a(e) = -(v . e) with a unit vector v, the normal of a hyperplane;
MTransD has a(e) = e_p . e with a projection vector e_p of the entity itself and v = r_p, that of the relation.
"""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(
    translated: Tensor, entities: Tensor, direction: Tensor | None = None, along: Tensor | None = None
) -> Tensor:
    """||u - (c + a v)||^2 of every u with every c of its group, without making their difference.

    translated u [..., queries, dim], entities c [..., candidates, dim], direction v [..., 1 or queries, dim],
    along a [..., 1 or queries, candidates]; the result is [..., queries, candidates].
    """
    squares = translated.square().sum(-1, keepdim=True) + entities.square().sum(-1).unsqueeze(-2)
    distances = squares - 2 * translated @ entities.transpose(-1, -2)
    if direction is not None and along is not None:
        with_entities = direction @ entities.transpose(-1, -2)  # v . c
        with_translated = (direction * translated).sum(-1, keepdim=True)  # v . u
        length = direction.square().sum(-1, keepdim=True)  # |v|^2
        distances = distances + along * (2 * (with_entities - with_translated) + along * length)
    return distances


def distance(squared: Tensor) -> Tensor:
    """The distance of a squared distance, with a gradient that stays finite at zero."""
    return squared.clamp_min(1e-8).sqrt()


def normal(direction: Tensor) -> Tensor:
    """A unit vector, for the hyperplanes of TransH."""
    return torch.nn.functional.normalize(direction, dim=-1)
