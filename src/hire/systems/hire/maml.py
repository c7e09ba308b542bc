"""The inner loop of MAML: a relation is refined by the loss on its own references (Eq. 13-16, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hire.systems.hire.entity import MetaRelation


def refine(
    relation: MetaRelation,
    loss: Callable[[MetaRelation], Tensor],
    rates: MetaRelation,
    *,
    steps: int,
    second_order: bool,
) -> MetaRelation:
    """Move every part of some relations against the gradient of their own losses [tasks].

    The losses are summed, so that the step of a task does not depend on the others in the batch and is the same in
    training and inference. With second order, gradients flow through the steps; otherwise the steps are constants.
    """
    for _ in range(steps):
        with torch.enable_grad():
            at = relation
            if not second_order:
                at = MetaRelation(*(part.detach().requires_grad_() for part in relation))
            elif not all(part.requires_grad for part in relation):
                at = MetaRelation(
                    *(part if part.requires_grad else part.detach().requires_grad_() for part in relation)
                )
            gradients = torch.autograd.grad(loss(at).sum(), at, create_graph=second_order, materialize_grads=True)
        moved = (part - rate * gradient for part, rate, gradient in zip(relation, rates, gradients, strict=True))
        relation = MetaRelation(*moved)
    return relation
