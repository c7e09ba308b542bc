from __future__ import annotations

import torch

from hire.embeddings.distances import squared_distances


def test_distances_keep_their_digits_where_products_are_computed_in_half_precision() -> None:
    torch.manual_seed(0)
    moved, direction = torch.randn(2, 4, 16)
    entities, along = moved + 1e-2 * torch.randn(4, 16), torch.randn(4, 4)
    plain = squared_distances(moved, entities), squared_distances(moved, entities, direction, along)
    with torch.autocast("cpu", torch.bfloat16):
        assert (moved @ entities.T).dtype == torch.bfloat16
        found = squared_distances(moved, entities), squared_distances(moved, entities, direction, along)
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
