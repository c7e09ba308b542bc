from __future__ import annotations

import numpy as np
import pytest
import torch

from hire.systems.path import kernels
from hire.systems.path.counting import FAN_OUTS, LEVELS, fan_out_levels
from hire.systems.path.messages import add_profiles, asinh, pass_messages
from hire.systems.path.walks import Layer

SOURCES, TARGETS, TYPES, CHANNELS = 7, 9, 5, 12


def a_layer(edges: int) -> Layer:
    generator = torch.Generator().manual_seed(edges)
    sources, edge_types, targets = (
        torch.randint(limit, (edges,), generator=generator, dtype=torch.int32) for limit in (SOURCES, TYPES, TARGETS)
    )
    levels = torch.randint(LEVELS, (edges, 2), generator=generator).to(torch.int16)
    return Layer(sources, edge_types, targets, levels)


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    sizes = (SOURCES, TYPES, LEVELS, LEVELS)
    return [torch.randn(size, CHANNELS, requires_grad=True) for size in sizes]


@pytest.mark.parametrize("edges", [0, 1, 40])
def test_compiled_messages_and_gradients_are_those_of_plain_tensor_operations(edges: int) -> None:
    layer, weigh = a_layer(edges), torch.randn(TARGETS, CHANNELS)
    found = []
    for mask in (None, torch.ones(edges)):  # with a mask, PyTorch's own operations are used
        given = inputs()
        arrived = pass_messages(given[0], given[1], given[2], given[3], layer, TARGETS, mask)
        found.append([arrived, *torch.autograd.grad((arrived * weigh).sum(), given)])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


def test_messages_are_those_of_a_loop_over_edges() -> None:
    layer, given = a_layer(20), inputs()
    states, weights, at_source, at_target = (part.detach().numpy() for part in given)
    expected = np.zeros((TARGETS, CHANNELS))
    for source, edge_type, target, (near, far) in zip(
        layer.sources, layer.edge_types, layer.targets, layer.levels.long(), strict=True
    ):
        carried = weights[edge_type] * at_source[near] * at_target[far]
        expected[target] += states[source] * carried
    arrived = pass_messages(given[0], given[1], given[2], given[3], layer, TARGETS)
    np.testing.assert_allclose(arrived.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("entries", [0, 1, 200])
def test_profiles_and_their_gradients_have_the_bits_of_plain_tensor_operations(entries: int) -> None:
    torch.manual_seed(entries)
    weights, weigh = torch.randn(TYPES, CHANNELS, requires_grad=True), torch.randn(TARGETS, CHANNELS)
    owners, edge_types = torch.randint(TARGETS, (entries,)), torch.randint(TYPES, (entries,))
    counts = torch.rand(entries)
    plain = weights.new_zeros(TARGETS, CHANNELS).index_add(
        0, owners, weights.index_select(0, edge_types) * counts[:, None]
    )
    found = add_profiles(weights, owners, edge_types, counts, TARGETS)
    assert torch.equal(found, plain)
    ours, theirs = (torch.autograd.grad((of * weigh).sum(), weights)[0] for of in (found, plain))
    assert torch.equal(ours, theirs)


def test_asinh_and_its_gradient() -> None:
    values = torch.cat([torch.linspace(-40, 40, 4001), torch.tensor([0.0, 1e-6, -1e-6, 1e15, -1e8])])
    ours, plain = (values.clone().requires_grad_() for _ in range(2))
    torch.testing.assert_close(asinh(ours), torch.asinh(plain), rtol=1e-6, atol=1e-6)
    gradients = (
        torch.autograd.grad(function(part).sum(), part)[0] for function, part in ((asinh, ours), (torch.asinh, plain))
    )
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_gelu() -> None:
    values = torch.linspace(-12, 12, 5001)
    found = values.clone()
    kernels.gelu(found.numpy())
    torch.testing.assert_close(found, torch.nn.functional.gelu(values), rtol=1e-6, atol=2e-6)


def test_levels_of_fan_outs_are_exact_for_small_ones_and_close_for_large_ones() -> None:
    fan_outs = np.concatenate([np.arange(1, 300), [1_000, 50_000, 3_000_000]])
    again = FAN_OUTS[fan_out_levels(fan_outs)]
    assert (again[:256] == fan_outs[:256]).all()
    np.testing.assert_allclose(again, fan_outs, rtol=0.006)
    assert fan_out_levels(np.array([2**62]))[0] == LEVELS - 1
