"""One hop of message passing: every edge carries the state of its source, weighted, and targets add up what arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hire.systems.path import kernels
from hire.systems.path.walks import Layer
from hire.util.arrays import FloatArray, IntArray


def pass_messages(
    states: Tensor,
    weights: Tensor,
    at_source: Tensor,
    at_target: Tensor,
    layer: Layer,
    target_count: int,
    edge_mask: Tensor | None = None,
) -> Tensor:
    """What arrives at each target, [targets, channels]; the channels of several members lie side by side.

    states are [sources, channels], weights [edge types, channels]; at_source and at_target [levels, channels] say how
    much a fan-out at either end of an edge weakens a message. edge_mask holds a factor [edges].
    """
    if states.device.type == "cpu" and edge_mask is None:
        inputs = (states, weights, at_source, at_target)
        found: Tensor = _PassMessages.apply(  # type: ignore[no-untyped-call]
            *(part.contiguous() for part in inputs), layer, target_count
        )
        return found
    levels = layer.levels.long()
    carried = weights.index_select(0, layer.edge_types)
    carried = carried * at_source.index_select(0, levels[:, 0]) * at_target.index_select(0, levels[:, 1])
    if edge_mask is not None:
        carried = carried * edge_mask[:, None]
    messages = states.index_select(0, layer.sources) * carried
    arrived = states.new_zeros(target_count, states.shape[1])
    return arrived.index_add(0, layer.targets, messages)


def add_messages(tensors: Sequence[Tensor], layer: Layer, arrived: FloatArray) -> None:
    """Add what arrives at each target on a CPU; the tensors are the first arguments of `pass_messages`."""
    states, weights, at_source, at_target = (part.detach().numpy() for part in tensors)
    kernels.pass_messages(states, weights, at_source, at_target, *_arrays(layer), arrived)


def add_profiles(weights: Tensor, owners: Tensor, edge_types: Tensor, counts: Tensor, owner_count: int) -> Tensor:
    """The sum over the entries of each owner's profile, [owners, channels]: the edge type's weight times its count.

    weights are [edge types, channels].
    """
    if weights.device.type == "cpu":
        inputs = (weights.contiguous(), owners, edge_types, counts, owner_count)
        found: Tensor = _AddProfiles.apply(*inputs)  # type: ignore[no-untyped-call]
        return found
    added = weights.index_select(0, edge_types) * counts[:, None]
    return weights.new_zeros(owner_count, weights.shape[1]).index_add(0, owners, added)


def _added_profiles(weights: Tensor, owners: Tensor, edge_types: Tensor, counts: Tensor, owner_count: int) -> Tensor:
    found = torch.zeros(owner_count, weights.shape[1])
    entries = owners.numpy(), edge_types.numpy(), counts.numpy()
    kernels.add_profiles(weights.detach().numpy(), *entries, found.numpy())
    return found


def asinh(values: Tensor) -> Tensor:
    """The inverse hyperbolic sine."""
    if values.device.type != "cpu":
        return torch.asinh(values)
    found: Tensor = _Asinh.apply(values.contiguous())  # type: ignore[no-untyped-call]
    return found


class _Asinh(torch.autograd.Function):
    """The inverse hyperbolic sine on a CPU; PyTorch's own is many times slower."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        (values,) = inputs
        ctx.save_for_backward(values)
        found = torch.empty_like(values)
        flat = values.detach().numpy().reshape(-1)
        kernels.asinh(flat, found.numpy().reshape(-1), np.empty(len(flat), np.int32))
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return gradients[0] * torch.rsqrt(values * values + 1)


class _AddProfiles(torch.autograd.Function):
    """The same on a CPU, in one loop over the entries; PyTorch's own takes a call for each."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        weights, owners, edge_types, counts, owner_count = inputs
        ctx.edge_type_count, ctx.entries = len(weights), (owners, edge_types, counts)
        return _added_profiles(weights, owners, edge_types, counts, owner_count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        owners, edge_types, counts = ctx.entries
        of_weights = _added_profiles(gradients[0].contiguous(), edge_types, owners, counts, ctx.edge_type_count)
        return of_weights, None, None, None, None


class _PassMessages(torch.autograd.Function):
    """The same on a CPU, in one loop over the edges."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, layer, target_count = inputs
        ctx.layer = layer
        ctx.save_for_backward(*tensors)
        arrived = torch.zeros(target_count, tensors[0].shape[1])
        add_messages(tensors, layer, arrived.numpy())
        return arrived

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        found = [torch.zeros_like(part) for part in tensors]
        states, weights, at_source, at_target = (part.detach().numpy() for part in tensors)
        of_arrived = gradients[0].contiguous().numpy()
        of_states, of_weights, of_at_source, of_at_target = (part.numpy() for part in found)
        kernels.pass_gradients(
            states,
            weights,
            at_source,
            at_target,
            *_arrays(ctx.layer),
            of_arrived,
            of_states,
            of_weights,
            of_at_source,
            of_at_target,
        )
        return (*found, None, None)


def _arrays(layer: Layer) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    return layer.sources.numpy(), layer.edge_types.numpy(), layer.levels.numpy(), layer.targets.numpy()
