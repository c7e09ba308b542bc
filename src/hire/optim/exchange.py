"""The gradients of a step that several processes have computed together, each from its share of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hire.optim.sharded import ShardedTable
from hire.optim.tables import Table
from hire.util.processes import broadcast, gathered, gathered_rows, share, summed

ABSENT = -1  # in place of the number of rows


class Moved(NamedTuple):
    """Distinct rows of a table, and the gradient that moves them."""

    table: Table
    ids: Tensor  # [n]
    gradient: Tensor  # [n, dim]


def exchanged(
    value: float, weight: int, network: nn.Module, tables: Sequence[Table], moved: Sequence[Moved]
) -> tuple[float, list[Moved]]:
    """The loss of the whole batch, and the rows that it moves; the gradients of the network become those of all.

    The loss is the weighted mean of all processes' losses. Dense gradients are summed, gradients of rows are exchanged
    as rows and summed by everyone in the same order, so that all stay the same, bit for bit. Those of a sharded table
    go to their owners, who sum them in that order, too.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    own = {id(part.table): part for part in moved}
    rows = [len(own[id(table)].ids) if id(table) in own else ABSENT for table in tables]
    facts = [weight, value, *(parameter.grad is not None for parameter in trained), *rows]
    of_all = gathered(torch.tensor(facts, dtype=torch.float64))  # [processes, facts]
    weights = of_all[:, 0] / of_all[:, 0].sum()
    own_share = float(weights[share().rank])
    used = [parameter for i, parameter in enumerate(trained) if of_all[:, 2 + i].any()]
    _sum_gradients(used, own_share)
    _share_buffers(network)
    counts = of_all[:, 2 + len(trained) :].long()  # [processes, tables]
    present = [number for number in range(len(tables)) if (counts[:, number] != ABSENT).any()]
    parts = [own.get(id(tables[number])) or _nothing(tables[number]) for number in present]
    sharded = [
        Moved(part.table, *part.table.gathered(part.ids, part.gradient * own_share))
        for part in parts
        if isinstance(part.table, ShardedTable)
    ]
    copied = [i for i, part in enumerate(parts) if not isinstance(part.table, ShardedTable)]
    everywhere = _sum_rows([parts[i] for i in copied], counts[:, present][:, copied].clamp_min(0), own_share)
    return float(weights @ of_all[:, 1]), sharded + everywhere


def _nothing(table: Table) -> Moved:
    ids = torch.zeros(0, dtype=torch.int64, device=table.device)
    return Moved(table, ids, torch.zeros(0, table.dimension, device=table.device))


def _sum_gradients(parameters: list[nn.Parameter], weight: float) -> None:
    """Replace the gradient of each parameter by the weighted sum of all processes' gradients."""
    if not parameters:
        return
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flat = summed(torch.cat([gradient.flatten() for gradient in gradients]).mul_(weight))
    for parameter, part in zip(parameters, torch.split(flat, [each.numel() for each in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)


def _share_buffers(network: nn.Module) -> None:
    """What a batch norm remembers of its batches is what the first process has seen, as in PyTorch's own engine."""
    weights = {name for name, _ in network.named_parameters()}
    for name, buffer in network.state_dict().items():
        if name not in weights:
            broadcast(buffer)


def _sum_rows(parts: list[Moved], counts: Tensor, weight: float) -> list[Moved]:
    """The rows of all processes, those of the same id summed, for counts [processes, tables]."""
    if not parts:
        return []
    ids = gathered_rows(torch.cat([part.ids for part in parts]), counts.sum(dim=1).tolist())
    widths = [part.gradient.shape[1] for part in parts]
    numbers = (counts * torch.tensor(widths)).tolist()  # [processes, tables]
    flat = torch.cat([part.gradient.flatten() for part in parts]).mul_(weight)
    gradients = gathered_rows(flat, [sum(of_process) for of_process in numbers])
    split_ids = [torch.split(of, sizes) for of, sizes in zip(ids, counts.tolist(), strict=True)]
    split_gradients = [torch.split(of, sizes) for of, sizes in zip(gradients, numbers, strict=True)]
    found = []
    for i, part in enumerate(parts):
        distinct, positions = torch.unique(torch.cat([of[i] for of in split_ids]), return_inverse=True)
        rows = torch.cat([of[i] for of in split_gradients]).view(-1, widths[i])
        total = rows.new_zeros(len(distinct), widths[i]).index_add_(0, positions, rows)
        found.append(Moved(part.table, distinct, total))
    return found
