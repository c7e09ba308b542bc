from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hire.systems.episodic.pairs import Vectors, attended, over_neighbors

DIMENSION, NEIGHBORS, TASKS, HEADS, TAILS = 4, 6, 2, 3, 5


def plain(query: Tensor, mask: Tensor, keys: Vectors, values: Vectors) -> Tensor:
    """What one query sees in the neighbors of one entity."""
    real = [i for i in range(NEIGHBORS) if mask[i]]
    if not real:
        return torch.zeros(DIMENSION)
    weights = torch.softmax(torch.stack([query @ keys.table[keys.rows[i]] for i in real]), dim=0)
    return torch.stack([w * values.table[values.rows[i]] for w, i in zip(weights, real, strict=True)]).sum(dim=0)


def some_neighbors(shape: tuple[int, ...], share: float) -> tuple[Tensor, Vectors, Vectors]:
    mask = torch.rand(*shape, NEIGHBORS) < share
    mask[0, 0, 0] = False
    parts = [Vectors(torch.randint(0, 9, mask.shape) * mask, torch.randn(9, DIMENSION)) for _ in range(2)]
    return mask, parts[0], parts[1]


@pytest.mark.parametrize("share", [0.1, 0.9])  # computed edge by edge, and as matrix products
@pytest.mark.parametrize("ends", [(HEADS, 1), (1, TAILS), (HEADS, TAILS)])  # heads, shared tails, tails of each head
@pytest.mark.parametrize("grid", [(HEADS, TAILS), (1, TAILS), (HEADS, 1)])
def test_pairs_see_the_neighbors_of_their_own_ends(ends: tuple[int, int], grid: tuple[int, int], share: float) -> None:
    torch.manual_seed(1)
    ends = (min(ends[0], grid[0]), min(ends[1], grid[1]))
    mask, keys, values = some_neighbors((TASKS, *ends), share)
    queries = torch.randn(TASKS, *grid, DIMENSION)
    found = over_neighbors(queries, mask, keys, values)
    for task in range(TASKS):
        for head in range(grid[0]):
            for tail in range(grid[1]):
                at = task, head % ends[0], tail % ends[1]
                own = (Vectors(part.rows[at], part.table) for part in (keys, values))
                expected = plain(queries[task, head, tail], mask[at], *own)
                assert torch.allclose(found[task, head, tail], expected, atol=1e-5)


def test_both_ways_of_computing_have_the_same_gradients() -> None:
    torch.manual_seed(1)
    mask, keys, values = some_neighbors((TASKS, 3), 0.3)
    gradients = []
    for repeats in (1, 30):  # so many queries that they are computed as matrix products
        queries = torch.randn(TASKS, 3, 1, DIMENSION, generator=torch.Generator().manual_seed(0)).requires_grad_()
        tables = [part.table.clone().requires_grad_() for part in (keys, values)]
        found = attended(
            queries.expand(-1, -1, repeats, -1), mask, Vectors(keys.rows, tables[0]), Vectors(values.rows, tables[1])
        )
        gradients.append(torch.autograd.grad(found.square().sum() / repeats, [queries, *tables]))
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*gradients, strict=True))


def test_dropout_falls_on_the_weights_of_attention() -> None:
    torch.manual_seed(1)
    mask, keys, values = some_neighbors((TASKS, 3), 0.9)
    queries = torch.randn(TASKS, 3, 1, DIMENSION)
    assert torch.equal(attended(queries, mask, keys, values), attended(queries, mask, keys, values))
    assert not torch.allclose(attended(queries, mask, keys, values, 0.5), attended(queries, mask, keys, values))
