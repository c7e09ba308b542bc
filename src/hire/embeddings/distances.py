"""Distances between vectors, many at once."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(
    moved: Tensor, entities: Tensor, direction: Tensor | None = None, along: Tensor | None = None
) -> Tensor:
    """||u - (c + a v)||^2 of every u with every c of its group, without making their difference.

    moved u [..., queries, dim], entities c [..., candidates, dim], direction v [..., 1 or queries, dim],
    along a [..., 1 or queries, candidates]; the result is [..., queries, candidates].
    """
    if torch.is_autocast_enabled(moved.device.type):  # what is left of a difference needs all digits
        with torch.autocast(moved.device.type, enabled=False):
            parts = (None if part is None else part.float() for part in (direction, along))
            return squared_distances(moved.float(), entities.float(), *parts)
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
