"""The inner loop of MAML: a relation is refined by the loss on its own references (HiRe's Eq. 13-16, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

Relation = TypeVar("Relation", bound=NamedTuple)  # of tensors [tasks, ...]


def refine(
    relation: Relation,
    loss: Callable[[Relation], Tensor],
    rates: Iterable[Tensor | float],
    *,
    steps: int,
    second_order: bool,
) -> Relation:
    """Move every part of some relations against the gradient of their own losses [tasks].

    The losses are summed, so that the step of a task does not depend on the others in the batch and is the same in
    training and inference. With second order, gradients flow through the steps; otherwise the steps are constants.
    """
    make = cast(Any, type(relation))
    rates = tuple(rates)
    for _ in range(steps):
        with torch.enable_grad():
            at = relation
            if not second_order:
                at = make(*(part.detach().requires_grad_() for part in relation))
            elif not all(part.requires_grad for part in relation):
                at = make(*(part if part.requires_grad else part.detach().requires_grad_() for part in relation))
            gradients = torch.autograd.grad(loss(at).sum(), at, create_graph=second_order, materialize_grads=True)
        moved = (part - rate * gradient for part, rate, gradient in zip(relation, rates, gradients, strict=True))
        relation = make(*moved)
    return relation
