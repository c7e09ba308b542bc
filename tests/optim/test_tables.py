from __future__ import annotations

import pytest
import torch

from hire.optim.tables import DenseTable, RowTable


def test_only_the_rows_in_use_move() -> None:
    torch.manual_seed(0)
    table = RowTable(torch.randn(6, 3))
    before = table.weights.clone()
    table.update(torch.tensor([1, 4]), torch.ones(2, 3), rate=0.1)
    moved = (table.weights != before).any(dim=1)
    assert moved.tolist() == [False, True, False, False, True, False]
    assert (table.weights[1] < before[1]).all()


def test_it_minimises() -> None:
    torch.manual_seed(0)
    table = RowTable(torch.randn(4, 3))
    target = torch.randn(4, 3)
    numbers = torch.tensor([0, 2, 3])
    for _ in range(400):
        rows = table.rows(numbers)
        (gradient,) = torch.autograd.grad((rows - target[numbers]).square().sum(), rows)
        table.update(numbers, gradient, rate=0.01)
    assert torch.allclose(table.weights[numbers], target[numbers], atol=0.05)


def test_it_goes_on_from_a_state_bit_for_bit() -> None:
    def run(table: RowTable, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            numbers = torch.randperm(5, generator=generator)[:3]
            table.update(numbers, torch.randn(3, 2, generator=generator), rate=0.1)

    torch.manual_seed(0)
    start = torch.randn(5, 2)
    whole, first, second = (RowTable(table, ema=3) for table in (start.clone(), start.clone(), torch.zeros(5, 2)))
    run(whole, range(10))
    run(first, range(4))
    second.load(first.state())
    run(second, range(4, 10))
    assert torch.equal(second.weights, whole.weights)
    assert torch.equal(second.averaged(), whole.averaged())


def test_the_average_is_that_of_all_rows_at_every_update() -> None:
    torch.manual_seed(0)
    table = RowTable(torch.randn(6, 3), ema=4)
    average = table.weights.clone()
    for _ in range(20):
        table.update(torch.randperm(6)[:2], torch.randn(2, 3), rate=0.1)
        average = 0.75 * average + 0.25 * table.weights  # every row, whether it moved or not
        assert torch.allclose(table.averaged(), average, atol=1e-6)
    assert not torch.allclose(table.averaged(), table.weights, atol=1e-2)
    plain = RowTable(torch.randn(6, 3))
    assert torch.equal(plain.averaged(), plain.weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # compiled, and as on other devices
def test_a_dense_table_is_moved_as_by_adam_although_only_rows_in_use_are_touched(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    start = torch.randn(40, 3, dtype=dtype)
    table, dense = DenseTable(start.clone()), start.clone().requires_grad_()
    adam = torch.optim.Adam([dense], lr=0.01)
    for step in range(700):
        numbers = torch.randperm(20 if step > 100 else 40)[:4]  # half of the rows rest from step 100 on
        assert torch.allclose(table.rows(numbers), dense[numbers], atol=1e-5)
        gradient = torch.randn(4, 3, dtype=dtype)
        gradient[0] = 0  # in use, but within the margin, say
        gradient[1, 0] = 0
        dense.grad = torch.zeros_like(start).index_copy(0, numbers, gradient)
        adam.param_groups[0]["lr"] = rate = 0.01 / (1 + step / 100)
        adam.step()
        table.update(numbers, gradient, rate=rate)
        if step == 300:  # rows at rest come to where they are by now, without a copy of all
            rested = table.weights.clone()
            assert torch.allclose(table.averaged(), dense, atol=1e-5)
            assert not torch.allclose(table.averaged(), rested, atol=1e-3)
            assert table.averaged().data_ptr() == table.weights.data_ptr()
    assert torch.allclose(table.averaged(), dense, atol=1e-5)


def test_a_dense_table_goes_on_from_a_state_bit_for_bit() -> None:
    def run(table: RowTable, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            table.update(torch.randperm(5, generator=generator)[:2], torch.randn(2, 2, generator=generator), rate=0.1)

    torch.manual_seed(0)
    start = torch.randn(5, 2)
    whole, first, second = (DenseTable(table) for table in (start.clone(), start.clone(), torch.zeros(5, 2)))
    run(whole, range(10))
    run(first, range(4))
    second.load(first.state())
    run(second, range(4, 10))
    assert torch.equal(second.averaged(), whole.averaged())
