from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hire.systems.episodic.network import Entities, Neighbors, masked_softmax, pair_distances, part_of, pooled

DIMENSION = 4


def some_neighbors(seed: int = 0, *, shape: tuple[int, ...] = (2, 3), rows: int = 7) -> Neighbors:
    generator = torch.Generator().manual_seed(seed)
    relations, entities = torch.randint(0, rows, (2, *shape, 5), generator=generator)
    mask = torch.rand(*shape, 5, generator=generator) < 0.6
    mask[0, 0] = False
    tables = torch.randn(2, rows, DIMENSION, generator=generator)
    return Neighbors(relations * mask, entities * mask, mask, *tables)


def test_weighted_sums_equal_those_of_all_vectors() -> None:
    near = some_neighbors()
    weights = torch.rand(2, 3, 5)
    for found, vectors in zip(near.weighted(weights), (near.relation_vectors, near.entity_vectors), strict=True):
        assert torch.allclose(found, ((weights * near.mask).unsqueeze(-1) * vectors).sum(dim=-2), atol=1e-6)
    even = near.even()
    assert not even[0, 0].any() and torch.allclose(even.sum(-1), near.mask.any(-1).float())


@pytest.mark.parametrize("rows", [7, 1_000])
def test_a_linear_map_of_neighbors_equals_that_of_the_concatenation(rows: int) -> None:
    near, weight = some_neighbors(rows=rows), torch.randn(6, 2 * DIMENSION)
    expected = torch.cat([near.relation_vectors, near.entity_vectors], dim=-1) @ weight.T
    assert torch.allclose(near.linear(weight), expected, atol=1e-5)


def test_pooling_has_a_gradient_for_table_and_weights() -> None:
    rows = torch.tensor([[[0, 1], [2, 2], [0, 1]]])
    mask = torch.tensor([[[True, True], [True, False], [False, False]]])
    table = torch.randn(3, DIMENSION, requires_grad=True)
    weights = torch.rand(1, 3, 2, requires_grad=True)
    gradients = torch.autograd.grad(pooled(rows, table, weights, mask).square().sum(), (table, weights))
    plain = ((weights * mask).unsqueeze(-1) * table[rows]).sum(dim=-2)
    for found, expected in zip(gradients, torch.autograd.grad(plain.square().sum(), (table, weights)), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


def test_a_softmax_of_nothing_is_zero() -> None:
    scores = torch.tensor([[1.0, 2.0, -5.0], [1e30, 3.0, 4.0], [1.0, 1.0, 1.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])
    found = masked_softmax(scores, mask)
    assert torch.allclose(found[0, :2], torch.softmax(scores[0, :2], 0)) and found[0, 2] == 0
    assert torch.allclose(found[1, 1:], torch.softmax(scores[1, 1:], 0)) and not found[2].any()
    (gradient,) = torch.autograd.grad(found.square().sum(), scores)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("shared", [True, False])
def test_distances_of_pairs_equal_the_norms_of_differences(shared: bool) -> None:
    heads, tails = torch.randn(2, 3, 1, DIMENSION), torch.randn(2, 1 if shared else 3, 5, DIMENSION)
    expected = (heads - tails).norm(dim=-1)
    found = pair_distances(heads, tails)
    assert found.shape == (2, 3, 5) and torch.allclose(found, expected, atol=1e-4)


def test_entities_are_cut_and_reshaped_as_their_vectors_are() -> None:
    table = torch.randn(9, DIMENSION)
    entities = Entities(torch.arange(6).view(2, 3), table, some_neighbors())
    assert torch.equal(entities[:, 1].vectors, entities.vectors[:, 1])
    assert torch.equal(entities[:, 1:].neighbors.entity_vectors, entities.neighbors.entity_vectors[:, 1:])
    flat = entities.reshape(6)
    assert flat.shape == (6,) and torch.equal(flat.neighbors.mask, entities.neighbors.mask.view(6, 5))
    both: tuple[Entities, Tensor] = part_of((entities, entities.vectors), (slice(None), None))
    assert both[0].shape == (2, 1, 3) and torch.equal(both[0].vectors, both[1])
    with pytest.raises(TypeError, match="did not ask"):
        _ = Entities(torch.arange(3), table).neighbors
