"""One hop of message passing: every edge carries the state of its source, weighted, and targets add up what arrives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hire.systems.path import kernels
from hire.systems.path.walks import Layer


def pass_messages(
    states: Tensor,
    weights: Tensor,
    at_source: Tensor,
    at_target: Tensor,
    layer: Layer,
    target_count: int,
    edge_mask: Tensor | None = None,
) -> Tensor:
    """What arrives at each target, [targets, channels].

    states are [sources, channels], weights [edge types, channels]; at_source and at_target [levels, channels] say how
    much a fan-out at either end of an edge weakens a message. edge_mask holds a factor [edges].
    """
    if states.device.type == "cpu" and edge_mask is None:
        inputs = (states, weights, at_source, at_target)
        found: Tensor = _PassMessages.apply(*(part.contiguous() for part in inputs), layer, target_count)
        return found
    levels = layer.levels.long()
    carried = weights.index_select(0, layer.edge_types)
    carried = carried * at_source.index_select(0, levels[:, 0]) * at_target.index_select(0, levels[:, 1])
    if edge_mask is not None:
        carried = carried * edge_mask[:, None]
    messages = states.index_select(0, layer.sources) * carried
    return states.new_zeros(target_count, states.shape[1]).index_add(0, layer.targets, messages)


class _PassMessages(torch.autograd.Function):
    """The same on a CPU, in one loop over the edges."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, layer, target_count = inputs
        ctx.layer = layer
        ctx.save_for_backward(*tensors)
        arrived = tensors[0].new_zeros(target_count, tensors[0].shape[1])
        kernels.pass_messages(*(part.detach().numpy() for part in tensors), *_arrays(layer), arrived.numpy())
        return arrived

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        found = [torch.zeros_like(part) for part in tensors]
        arrays = [part.detach().numpy() for part in (*tensors, gradients[0].contiguous(), *found)]
        kernels.pass_gradients(*arrays[:4], *_arrays(ctx.layer), *arrays[4:])
        return (*found, None, None)


def _arrays(layer: Layer) -> list[Any]:
    return [part.numpy() for part in (layer.sources, layer.edge_types, layer.levels, layer.targets)]
