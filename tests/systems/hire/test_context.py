from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hire.sampling.contexts import Contexts
from hire.systems.hire import context as context_level
from hire.systems.hire.context import ContextEncoder, info_nce

DIMENSION, RELATIONS, ENTITIES = 4, 5, 9


def tables(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(RELATIONS, DIMENSION, generator=generator, dtype=dtype),
        torch.randn(ENTITIES, DIMENSION, generator=generator, dtype=dtype),
    )


def contexts_of(seed: int, count: int = 6, width: int = 7) -> Contexts:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, width + 1, (count, 2, 1), generator=generator)
    return Contexts(
        torch.randint(0, RELATIONS, (count, 2, width), generator=generator),
        torch.randint(0, ENTITIES, (count, 2, width), generator=generator),
        torch.arange(width) < lengths,
    )


def encoder_of(heads: int = 1) -> ContextEncoder:
    torch.manual_seed(0)
    return ContextEncoder(DIMENSION, heads=heads)


def slow(encoder: ContextEncoder, contexts: Contexts, relations: Tensor, entities: Tensor) -> Tensor:
    """Eq. 3-4 and the appendix, one context at a time, with PyTorch's own attention, then the mean over the tuples."""
    reference = nn.MultiheadAttention(2 * DIMENSION, encoder.heads, bias=False, batch_first=True).to(relations.dtype)
    with torch.no_grad():
        weights = [encoder.query.weight, encoder.key.weight, encoder.value.weight]
        reference.in_proj_weight.copy_(torch.cat(weights))
        reference.out_proj.weight.copy_(encoder.output.weight)
    found = []
    for relation_ids, neighbors, mask in zip(contexts.relations, contexts.entities, contexts.mask, strict=True):
        tuples = torch.cat([relations[relation_ids[mask]], entities[neighbors[mask]]], dim=-1)[None]
        found.append(reference(tuples, tuples, tuples)[0][0].mean(0) if mask.any() else torch.zeros(2 * DIMENSION))
    return torch.stack(found)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("at_once", [4, 1 << 17])
def test_equals_attention_one_context_at_a_time(monkeypatch: pytest.MonkeyPatch, heads: int, at_once: int) -> None:
    monkeypatch.setattr(context_level, "TUPLES_AT_ONCE", at_once)
    encoder, (relations, entities) = encoder_of(heads), tables()
    for seed in range(5):
        contexts = contexts_of(seed)
        expected = slow(encoder, contexts, relations, entities)
        assert torch.allclose(encoder(contexts.tuples(), relations, entities), expected, atol=1e-6)


def test_gradients_equal_finite_differences() -> None:
    encoder = encoder_of(2).double()
    relations, entities = (table.requires_grad_() for table in tables(torch.float64))
    contexts = contexts_of(3)
    parameters = [relations, entities, encoder.query.weight, encoder.key.weight]

    def encode(*_: Tensor) -> Tensor:
        encoded: Tensor = encoder(contexts.tuples(), relations, entities)
        return encoded

    assert torch.autograd.gradcheck(encode, parameters)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 12))
def test_padding_has_no_influence_at_all(seed: int, other: int, wider: int) -> None:
    encoder, (relations, entities) = encoder_of(), tables()
    contexts = contexts_of(seed % 1000)
    generator = torch.Generator().manual_seed(other)

    def repadded(ids: Tensor, bound: int) -> Tensor:
        noise = torch.randint(0, bound, (*ids.shape[:2], ids.shape[2] + wider), generator=generator)
        noise[..., : ids.shape[2]] = torch.where(contexts.mask, ids, noise[..., : ids.shape[2]])
        return noise

    mask = nn.functional.pad(contexts.mask, (0, wider))
    changed = Contexts(repadded(contexts.relations, RELATIONS), repadded(contexts.entities, ENTITIES), mask)
    assert torch.equal(encoder(contexts.tuples(), relations, entities), encoder(changed.tuples(), relations, entities))


def test_info_nce_is_a_softmax_over_cosines() -> None:
    torch.manual_seed(0)
    triplets, true, false = torch.randn(3, 8), torch.randn(3, 8), torch.randn(3, 2, 8)
    found = info_nce(triplets, true, false, 0.5)
    for row in range(3):
        cosines = [torch.cosine_similarity(triplets[row], c, dim=0).item() / 0.5 for c in (true[row], *false[row])]
        expected = -math.log(math.exp(cosines[0]) / sum(map(math.exp, cosines)))
        assert found[row].item() == pytest.approx(expected, abs=1e-5)
