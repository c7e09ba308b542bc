"""Entities with neighbors, for the tests of networks."""

from __future__ import annotations

import torch

from hire.systems.episodic.network import Entities, Neighbors

ROWS, MOST = 9, 6


def some_entities(shape: tuple[int, ...], dimension: int, share: float = 0.6) -> Entities:
    """Entities with up to six neighbors each; the first has none."""
    mask = torch.rand(*shape, MOST) < share
    mask[(0,) * len(shape)] = False
    relations, entities = (torch.randint(0, ROWS, mask.shape) * mask for _ in range(2))
    tables = torch.randn(2, ROWS, dimension)
    return Entities(torch.randint(0, ROWS, shape), tables[1], Neighbors(relations, entities, mask, *tables))
