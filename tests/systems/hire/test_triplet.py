from __future__ import annotations

import pytest
import torch
from torch import nn

from hire.systems.hire.triplet import Dropping, LstmLearner, MeanLearner, SetAttentionBlock, SetLearner, path_factors

DIMENSION = 6


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_the_block_is_the_one_of_the_paper() -> None:
    """Against PyTorch's own multi-head attention, with residuals and norms spelt out."""
    block = SetAttentionBlock(8, heads=1).eval()
    reference = nn.MultiheadAttention(8, 1, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(block.query_key_value.weight)
        reference.in_proj_bias.copy_(block.query_key_value.bias)
        reference.out_proj.weight.copy_(block.output.weight)
        reference.out_proj.bias.copy_(block.output.bias)
    elements = torch.randn(3, 5, 8)
    attended, _ = reference(elements, elements, elements)
    hidden = block.after_attention(elements + attended)
    expected = block.after_row_wise(hidden + torch.relu(block.row_wise[0](hidden)))
    assert torch.allclose(block(elements), expected, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_see_their_own_part(heads: int) -> None:
    block = SetAttentionBlock(8, heads=heads).eval()
    assert block(torch.randn(2, 3, 8)).shape == (2, 3, 8)
    if heads > 1:
        single = SetAttentionBlock(8, heads=1).eval()
        single.load_state_dict(block.state_dict())
        elements = torch.randn(2, 3, 8)
        assert not torch.allclose(single(elements), block(elements), atol=1e-4)


@pytest.mark.parametrize("shots", [1, 2, 3, 5, 17])
def test_any_order_and_any_number_of_references(shots: int) -> None:
    learner = SetLearner(DIMENSION, 7).eval()
    heads, tails = torch.randn(2, 4, shots, DIMENSION)
    meta = learner(heads, tails)
    assert meta.shape == (4, 7)
    for _ in range(5):
        order = torch.randperm(shots)
        assert torch.allclose(learner(heads[:, order], tails[:, order]), meta, atol=1e-6)


def test_references_interact() -> None:
    """The mean of single references is what MRL-AVG computes, and is not what the set learner does."""
    heads, tails = torch.randn(2, 4, 3, DIMENSION)

    def mean_of_singles(learner: nn.Module) -> torch.Tensor:
        return torch.stack([learner(heads[:, [i]], tails[:, [i]]) for i in range(3)]).mean(dim=0)

    mean, attention = MeanLearner(DIMENSION, 7).eval(), SetLearner(DIMENSION, 7).eval()
    assert torch.allclose(mean(heads, tails), mean_of_singles(mean), atol=1e-6)
    assert not torch.allclose(attention(heads, tails), mean_of_singles(attention), atol=1e-3)


def test_the_lstm_depends_on_the_order() -> None:
    learner = LstmLearner(DIMENSION, 7).eval()
    heads, tails = torch.randn(2, 4, 3, DIMENSION)
    assert learner(heads, tails).shape == (4, 7)
    assert not torch.allclose(learner(heads, tails), learner(heads.flip(1), tails.flip(1)), atol=1e-3)


def test_drop_path_drops_whole_sets_and_keeps_the_mean() -> None:
    factors = path_factors(0.2, 20_000, 1, 1)
    assert factors is not None
    assert set(factors.flatten().tolist()) == {0.0, 1.25}
    assert factors.mean().item() == pytest.approx(1, abs=0.02)
    assert path_factors(0.0, 20_000, 1, 1) is None


def test_a_set_whose_paths_are_dropped_is_only_normed() -> None:
    block = SetAttentionBlock(2 * DIMENSION)
    elements = torch.randn(3, 4, 2 * DIMENSION)
    kept = torch.tensor([0.0, 1.25, 0.0])[:, None, None]
    found = block(elements, Dropping(attention=kept, row_wise=kept))
    normed = block.after_row_wise(block.after_attention(elements))
    assert torch.allclose(found[[0, 2]], normed[[0, 2]])
    assert not torch.allclose(found[1], normed[1], atol=1e-2)
