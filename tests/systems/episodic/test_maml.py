from __future__ import annotations

import torch
from torch import Tensor

from hire.systems.episodic.maml import refine
from hire.systems.hire.entity import MetaRelation

RATES = MetaRelation(*(torch.tensor(rate, dtype=torch.float64) for rate in (0.1, 0.2, 0.3, 0.4)))


def relation_of(tasks: int, seed: int = 0) -> MetaRelation:
    generator = torch.Generator().manual_seed(seed)
    return MetaRelation(*torch.randn(4, tasks, 3, dtype=torch.float64, generator=generator).requires_grad_())


def loss(relation: MetaRelation) -> Tensor:
    """A loss for each task that depends on every part."""
    translation, direction, head, tail = relation
    return (translation**3 + (direction * head).sin() + translation * tail**2).sum(-1)


def test_a_step_goes_against_the_gradient_of_each_part() -> None:
    relation = relation_of(2)
    gradients = torch.autograd.grad(loss(relation).sum(), relation)
    refined = refine(relation, loss, RATES, steps=1, second_order=True)
    for part, rate, gradient, new in zip(relation, RATES, gradients, refined, strict=True):
        assert torch.allclose(new, part - rate * gradient)


def test_a_task_moves_the_same_alone_and_in_any_batch() -> None:
    batch = relation_of(5)
    together = refine(batch, loss, RATES, steps=2, second_order=False)
    for task in range(5):
        alone = MetaRelation(*(part[[task]] for part in batch))
        refined = refine(alone, loss, RATES, steps=2, second_order=False)
        for one, all_of_them in zip(refined, together, strict=True):
            assert torch.allclose(one[0], all_of_them[task])


def test_gradients_through_the_steps_equal_finite_differences() -> None:
    def outer(*parts: Tensor) -> Tensor:
        return loss(refine(MetaRelation(*parts), loss, RATES, steps=2, second_order=True))

    assert torch.autograd.gradcheck(outer, tuple(relation_of(2)))


def test_first_order_takes_the_steps_for_constants() -> None:
    relation = relation_of(2)
    refined = refine(relation, loss, RATES, steps=1, second_order=False)
    (gradient,) = torch.autograd.grad(refined.translation.sum(), relation.translation)
    assert torch.equal(gradient, torch.ones_like(gradient))


def test_no_steps_change_nothing_and_no_grad_around_is_no_hindrance() -> None:
    relation = relation_of(2)
    assert refine(relation, loss, RATES, steps=0, second_order=True) is relation
    with torch.no_grad():
        refined = refine(relation, loss, RATES, steps=1, second_order=False)
    assert not torch.equal(refined.translation, relation.translation)
