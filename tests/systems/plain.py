"""What the plain versions of several systems' equations share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.systems.episodic.model import EpisodicSystem

System = TypeVar("System", bound=EpisodicSystem)


def random_system(kind: type[System], dataset: FewShotDataset, model: Any) -> System:
    """A system that has learned nothing."""
    torch.manual_seed(0)
    network: nn.Module = kind.network_type(model)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)  # no bias is zero, no norm is one: each must be where it belongs
    tensors = {
        "entities": torch.randn(len(dataset.graph.entities), model.dimension),
        "relations": torch.randn(2 * len(dataset.graph.relations), model.dimension),
        **{f"network.{name}": tensor for name, tensor in network.state_dict().items()},
    }
    return kind.restore(dataset, replace(kind.settings_type(), model=model), tensors)


def neighbors(system: EpisodicSystem, entity: int, hidden: int) -> list[tuple[Tensor, Tensor]]:
    """The vectors of relation and entity of each neighbor that may be seen."""
    graph = system.graph
    found: list[tuple[Tensor, Tensor]] = []
    for relation, other in graph.neighbors_of(entity, None).tolist():
        if relation % len(graph.relations) != hidden and len(found) < system.network.max_neighbors:
            found.append((system.relations[relation], system.entities[other]))
    return found


def weighted(scores: list[Tensor], values: list[Tensor]) -> Tensor:
    """The sum of values, weighted by the softmax of scores."""
    weights = torch.softmax(torch.stack(scores), dim=0)
    return sum((weight * value for weight, value in zip(weights, values, strict=True)), torch.zeros_like(values[0]))


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The hidden state and the cell that follow from gates in PyTorch's order: input, forget, cell, output."""
    enter, forget, new, leave = gates.chunk(4)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell
