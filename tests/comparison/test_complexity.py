from __future__ import annotations

import pytest
import torch
from torch import nn

from hire.comparison.complexity import SIZES, Counted, Size, count


@pytest.fixture(scope="module")
def counted() -> dict[tuple[str, Size], Counted]:
    return {(each.level, each.size): each for each in count((*SIZES, Size(references=10)))}


def test_multiplications_of_the_triplet_level_by_hand(counted: dict[tuple[str, Size], Counted]) -> None:
    n, width, outputs = 5, 200, 400
    attention = 3 * n * width**2 + 2 * n * n * width + n * width**2  # query, key, value; scores and sums; output
    layers = n * width**2 + n * width**2 + width * outputs  # row-wise, and the two of the MLP, the second of the mean
    rest = counted["triplet", Size()].operations - attention - layers
    assert 0 <= rest <= 20 * n * width  # scaling and norms
    weights = 3 * width**2 + width**2 + width**2 + width**2 + width * outputs
    assert weights < counted["triplet", Size()].parameters < weights + 20 * width


def test_multiplications_of_the_entity_level_by_hand(counted: dict[tuple[str, Size], Counted]) -> None:
    d = 100
    assert counted["entity", Size()].operations == pytest.approx(5 * d, abs=10)  # e_p . e and a v, twice; a square
    assert counted["entity", Size()].parameters == d


def test_the_formulas_hold(counted: dict[tuple[str, Size], Counted]) -> None:
    for level in ("context", "triplet", "entity"):
        ratios = [each.operations / each.formula_operations for each in counted.values() if each.level == level]
        assert max(ratios) < 2 * min(ratios)
    for size, factor in ((Size(references=10), 2.0), (Size(references=1), 0.2)):
        assert counted["context", size].operations == pytest.approx(factor * counted["context", Size()].operations)


def test_counting_leaves_randomness_alone() -> None:
    torch.manual_seed(0)
    before = nn.Linear(3, 3).weight
    torch.manual_seed(0)
    count((Size(1, 4, 8),))
    assert torch.equal(nn.Linear(3, 3).weight, before)
