"""Compiled loops against the same from smaller functions, which double precision takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hire.systems.episodic.fused import Vectors, attend_tokens, over_neighbors, weighted_neighbors
from hire.systems.episodic.matching import MatchingProcessor
from hire.systems.episodic.network import dropout
from tests.systems.episodic.support import some_entities

DIMENSION, TASKS, HEADS, TAILS = 4, 2, 3, 5


def assert_same(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """A function gives the same in single and in double precision, and so do its gradients."""
    found = []
    for kind in (torch.float32, torch.float64):
        given = [value.detach().to(kind).requires_grad_() for value in inputs]
        out = function(*given)
        assert out.dtype == kind
        slope = torch.linspace(-1, 1, out.numel(), dtype=kind).view(out.shape)
        found.append([out, *torch.autograd.grad((out * slope).sum(), given)])
    for single, double in zip(*found, strict=True):
        assert torch.allclose(single.double(), double, atol=1e-5)


@pytest.mark.parametrize("ends", [(HEADS, 1), (1, TAILS), (HEADS, TAILS)])  # heads, shared tails, tails of each head
@pytest.mark.parametrize("grid", [(HEADS, TAILS), (1, TAILS), (HEADS, 1)])
def test_pairs_see_the_neighbors_of_their_own_ends(ends: tuple[int, int], grid: tuple[int, int]) -> None:
    torch.manual_seed(1)
    ends = (min(ends[0], grid[0]), min(ends[1], grid[1]))
    near = some_entities((TASKS, *ends), DIMENSION).neighbors
    queries = torch.randn(TASKS, *grid, DIMENSION)

    def seen(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return over_neighbors(queries, near.mask, Vectors(near.relations, keys), Vectors(near.entities, values))

    assert_same(seen, queries, near.relation_table, near.entity_table)
    found = seen(queries, near.relation_table, near.entity_table)
    for task, head, tail in torch.cartesian_prod(*(torch.arange(size) for size in (TASKS, *grid))).tolist():
        at = task, head % ends[0], tail % ends[1]
        keys, values = near.relation_vectors[at][near.mask[at]], near.entity_vectors[at][near.mask[at]]
        expected = torch.softmax(keys @ queries[task, head, tail], dim=0) @ values
        assert torch.allclose(found[task, head, tail], expected, atol=1e-5)


def test_neighbors_are_weighted_by_a_softmax_of_scores() -> None:
    torch.manual_seed(1)
    near = some_entities((TASKS, HEADS), DIMENSION).neighbors
    values = Vectors(near.entities, near.entity_table)
    found = weighted_neighbors(near, torch.zeros(near.mask.shape), values)
    even = near.mask / near.mask.sum(-1, keepdim=True).clamp_min(1)
    assert torch.allclose(found, (even.unsqueeze(-1) * near.entity_vectors).sum(-2), atol=1e-6)
    assert_same(
        lambda scores, table: weighted_neighbors(near, scores, Vectors(near.entities, table)),
        torch.randn(near.mask.shape),
        near.entity_table,
    )


def test_dropout_falls_on_the_weights_of_attention() -> None:
    torch.manual_seed(1)
    near = some_entities((TASKS, HEADS, 1), DIMENSION).neighbors
    queries = torch.randn(TASKS, HEADS, TAILS, DIMENSION)
    parts = Vectors(near.relations, near.relation_table), Vectors(near.entities, near.entity_table)
    whole = over_neighbors(queries, near.mask, *parts)
    many = torch.stack([over_neighbors(queries, near.mask, *parts, 0.3) for _ in range(3_000)])
    assert not torch.allclose(many[0], whole) and torch.allclose(many.mean(0), whole, atol=0.1)

    def dropped(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        torch.manual_seed(2)
        both = Vectors(near.relations, keys), Vectors(near.entities, values)
        return over_neighbors(queries, near.mask, *both, 0.3)

    assert_same(dropped, queries, near.relation_table, near.entity_table)


@pytest.mark.parametrize("places", [1, 3])
def test_attention_within_sequences(places: int) -> None:
    torch.manual_seed(1)
    assert_same(lambda q, kv: attend_tokens(q, kv, 2), torch.randn(5, places, 6), torch.randn(5, 3, 12))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_the_matching_lstm(steps: int, shared: bool) -> None:
    torch.manual_seed(1)
    processor = MatchingProcessor(2 * DIMENSION, steps)
    shapes = [(TASKS, 2 * DIMENSION), (TASKS, HEADS, 1, DIMENSION), (TASKS, 1 if shared else HEADS, TAILS, DIMENSION)]
    names, weights = zip(*processor.named_parameters(), strict=True)

    def matched(relation: Tensor, heads: Tensor, tails: Tensor, *weights: Tensor) -> Tensor:
        own = dict(zip(names, weights, strict=True)) | {"twice": processor.twice.to(heads.dtype)}
        found: Tensor = torch.func.functional_call(processor, own, (relation, heads, tails))
        return found

    used = [weight for name, weight in zip(names, weights, strict=True) if steps > 1 or name != "state.weight"]
    if len(used) == len(weights):
        assert_same(matched, *(torch.randn(shape) for shape in shapes), *weights)
    else:
        names = tuple(name for name in names if name != "state.weight")
        assert_same(matched, *(torch.randn(shape) for shape in shapes), *used)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(1)
    found = dropout(torch.ones(3, 100_001), 0.2)
    assert found.unique().tolist() == [0.0, pytest.approx(1.25, rel=1e-4)]
    assert (found == 0).float().mean().item() == pytest.approx(0.2, abs=0.005)
    assert dropout(found, 0.0) is found
