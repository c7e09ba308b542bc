from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hire.errors import HireError
from hire.optim.settings import OptimizerSettings
from hire.optim.storage import Start, StorageSettings, kept_apart, stochastically_rounded
from hire.optim.tables import DenseTable, RowTable
from tests.support import small_settings

KINDS = [torch.bfloat16, torch.float16]
HALVES = [StorageSettings(precision="bfloat16"), StorageSettings(precision="float16")]
IN_FILE = StorageSettings(place="file")


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_keeps_the_mean_and_errs_by_less_than_a_step(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1_000, generator=generator).clamp_(-4, 4)
    rounded = torch.stack([stochastically_rounded(values, kind, generator).float() for _ in range(2_000)])
    step = values.abs() * torch.finfo(kind).eps + 1e-7
    assert ((rounded - values).abs() <= step).all()
    assert ((rounded.mean(dim=0) - values).abs() <= step / 8).all()  # by nearest, up to a half
    assert not torch.equal(rounded[0], rounded[1])
    exact = values.to(kind).float()
    assert torch.equal(stochastically_rounded(exact, kind, generator).float(), exact)


def trained(table: RowTable, steps: range, rate: float = 0.003) -> RowTable:
    """Rows drawn at random are pulled towards ones."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randperm(table.count, generator=generator)[:5].sort().values
        rows = table.rows(ids)
        (gradient,) = torch.autograd.grad((rows - 1).square().sum(), rows)
        table.update(ids, gradient, rate)
    return table


@pytest.mark.parametrize("kind", [RowTable, DenseTable])
@pytest.mark.parametrize("storage", HALVES)
def test_small_steps_are_not_lost_in_half_precision(kind: type[RowTable], storage: StorageSettings) -> None:
    start = 4 + torch.rand(20, 7, generator=torch.Generator().manual_seed(1))
    whole, half = trained(kind(start), range(400)), trained(kind(start, storage=storage), range(400))
    assert half.weights.dtype == storage.kind and half.rows(torch.tensor([0])).dtype == torch.float32
    moved = (whole.averaged() - start).mean()
    assert moved < -0.1
    assert (half.averaged().float() - start).mean() == pytest.approx(float(moved), rel=0.05)
    assert half.row_bytes < 0.75 * whole.row_bytes


@pytest.mark.parametrize("storage", [*HALVES, IN_FILE])
@pytest.mark.parametrize("ema", [None, 5.0])
def test_it_goes_on_from_a_state_bit_for_bit(storage: StorageSettings, ema: float | None) -> None:
    start = torch.randn(20, 7, generator=torch.Generator().manual_seed(1))
    whole, first, second = (RowTable(start, ema=ema, storage=storage) for _ in range(3))
    trained(whole, range(20))
    trained(first, range(8))
    second.load(first.state())
    trained(second, range(8, 20))
    assert torch.equal(second.averaged(), whole.averaged())
    assert all(torch.equal(part, whole.state()[name]) for name, part in second.state().items())


@pytest.mark.parametrize("kind", [RowTable, DenseTable])
def test_a_table_in_a_file_is_learned_as_in_memory_bit_for_bit_and_leaves_nothing(
    kind: type[RowTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    start = torch.randn(20, 7, generator=torch.Generator().manual_seed(1))
    in_file = trained(kind(start, storage=IN_FILE), range(30))
    assert torch.equal(in_file.averaged(), trained(kind(start), range(30)).averaged())
    assert not list((tmp_path / "cache").iterdir())
    (tmp_path / "no folder").touch()
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "no folder"))
    with pytest.raises(HireError, match="no folder"):
        kind(start, storage=IN_FILE)
    with pytest.raises(HireError, match="for the CPU"):
        kind(start, storage=IN_FILE, device="meta")


def test_vectors_are_drawn_some_at_a_time_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.optim.storage.BLOCK_NUMBERS", 160)
    torch.manual_seed(3)
    whole = torch.randn(100, 5)
    start = Start.drawn(100, 5, torch.randn)
    torch.manual_seed(3)
    assert len(list(start.blocks())) == 4
    torch.manual_seed(3)
    assert torch.equal(torch.cat(list(start.blocks())), whole)
    torch.manual_seed(3)
    assert torch.equal(torch.cat(list(start.part(slice(30, 71)).blocks())), whole[30:71])


def test_which_systems_are_never_whole_in_memory() -> None:
    assert not kept_apart(small_settings("hire").settings)
    assert kept_apart(small_settings("hire", optimizer__storage__place="file").settings)
    assert kept_apart(small_settings("mean-translation", embedding__storage__sharded=True).settings)
    assert not kept_apart(small_settings("transe", training__storage__precision="float16").settings)


def test_a_small_table_is_kept_as_it_was() -> None:
    settings = OptimizerSettings(storage=HALVES[0])
    start, cpu = Start.of(torch.ones(3, 2)), torch.device("cpu")
    assert settings.table(start, 10, cpu).weights.dtype == torch.bfloat16
    assert settings.table(start, 10, cpu, of_entities=False).weights.dtype == torch.float32
