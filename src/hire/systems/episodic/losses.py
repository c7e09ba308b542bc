"""Losses of scored pairs against negatives; scores are such that more is better."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossName = Literal["softmax", "margin"]
NEVER = -1e4  # a logit; unlike minus infinity, it has a gradient, zero, even if no negative is false


def margin_losses(positive: Tensor, negative: Tensor, margin: float, false: Tensor | None = None) -> Tensor:
    """The mean hinge of each pair, [..., pairs], for negatives [..., pairs, n]; those that are true do not count."""
    hinge = F.relu(margin - positive[..., None] + negative)
    return hinge.mean(-1) if false is None else (hinge * false).sum(-1) / false.sum(-1).clamp_min(1)


def softmax_losses(
    positive: Tensor,
    negative: Tensor,
    temperature: Tensor,
    false: Tensor | None = None,
    stands_for: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of each pair, [tasks, pairs], against negatives [tasks, pairs, n].

    stands_for [tasks] is the logarithm of the number of candidates that each negative stands for.
    """
    logits = temperature * negative
    if stands_for is not None:
        logits = logits + stands_for[:, None, None]
    if false is not None:
        logits = logits.masked_fill(~false, NEVER)
    return F.softplus(torch.logsumexp(logits, dim=-1) - temperature * positive)


def crowd(candidates: Tensor, drawn: int, *, full: int, crowding: float) -> Tensor:
    """The logarithm of the number of candidates that each of the negatives drawn from them stands for, [tasks].

    More candidates than `full` count as full * (candidates / full) ** crowding.
    """
    more = (candidates / full).clamp_min(1).log() * crowding
    return more + candidates.clamp_max(full).log() - math.log(drawn)
