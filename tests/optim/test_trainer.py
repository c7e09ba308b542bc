from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.optim.settings import OptimizerSettings
from hire.optim.tables import RowTable
from hire.optim.trainer import Loss, Rows, Trainer

STEPS, ROWS, WIDTH = 20, 6, 3
SETTINGS = OptimizerSettings(
    learning_rate=0.01, table_learning_rate=0.1, final_rate=0.1, weight_decay=0.01, ema=4.0, ema_warm_up=2, clip=1.0
)


class Lookup(Trainer[Tensor, nn.Sequential]):
    """Vectors of some rows go through a small network with dropout and should come out as ones."""

    def __init__(self, settings: OptimizerSettings = SETTINGS, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            network = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 1))
            self.vectors = RowTable(torch.randn(ROWS, WIDTH), ema=settings.ema_steps(STEPS))
        super().__init__(settings, steps=STEPS, seed=seed, network=network, tables={"vectors": self.vectors})

    def batch(self, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 100 + step)
        return torch.randperm(ROWS, generator=generator)[:2]

    def loss(self, batch: Tensor) -> Loss:
        assert self.network is not None and self.network.training
        rows = self.vectors.rows(batch)
        return Loss((self.network(rows) - 1).square().mean(), [Rows(self.vectors, batch, rows)])


class Slopes(Trainer[None, nn.ModuleList]):
    """Two parts, whose weights have the gradients 3 and 0.25, and a table of one row, whose weight has 1."""

    def __init__(self, settings: OptimizerSettings, *, by_part: bool = True) -> None:
        self.by_part = by_part
        self.parts = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        for part in self.parts:
            nn.init.ones_(part.weight)
        self.row = RowTable(torch.ones(1, 1))
        super().__init__(settings, steps=10, seed=0, network=nn.ModuleList(self.parts), tables={"row": self.row})

    def clip(self, limit: float) -> None:
        if not self.by_part:
            super().clip(limit)
            return
        for part in self.parts:
            nn.utils.clip_grad_norm_(part.parameters(), limit)

    def batch(self, step: int) -> None:
        return None

    def loss(self, batch: None) -> Loss:
        ids = torch.tensor([0])
        vectors = self.row.rows(ids)
        value = 3 * self.parts[0].weight.sum() + 0.25 * self.parts[1].weight.sum() + vectors.sum()
        return Loss(value, [Rows(self.row, ids, vectors)], terms=2)

    @property
    def gradients(self) -> list[float]:
        """Of the two parts, as the last step used them."""
        return [part.weight.grad.item() for part in self.parts if part.weight.grad is not None]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_it_learns() -> None:
    trainer = Lookup(replace(SETTINGS, ema=None, ema_warm_up=0))
    losses = [trainer.train_step() for _ in range(STEPS)]
    assert trainer.step == STEPS
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_network_and_tables_follow_one_schedule() -> None:
    trainer = Slopes(OptimizerSettings(learning_rate=0.02, table_learning_rate=0.5, final_rate=0.3, warm_up=2))
    assert trainer.optimizer is not None
    for step, share in enumerate([0.5, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3], 1):
        weight, row = trainer.parts[0].weight.item(), trainer.row.weights.item()
        trainer.train_step()
        assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.02 * share)
        # The gradients are always the same: Adam moves a weight by the learning rate, and a table, whose moments start
        # from zero, by a share of it.
        assert weight - trainer.parts[0].weight.item() == pytest.approx(0.02 * share, rel=1e-3)
        moments = (1 - 0.9**step) / (1 - 0.99**step) ** 0.5
        assert row - trainer.row.weights.item() == pytest.approx(0.5 * share * moments, rel=1e-3)


def test_the_loss_shown_is_the_mean_of_its_terms() -> None:
    assert Slopes(OptimizerSettings()).train_step() == pytest.approx((3 + 0.25 + 1) / 2)


def test_gradients_are_clipped_together_unless_a_trainer_does_it_otherwise() -> None:
    free, by_part, together = Slopes(SETTINGS), Slopes(SETTINGS), Slopes(SETTINGS, by_part=False)
    free.optimizer_settings = replace(SETTINGS, clip=None)
    for trainer in (free, by_part, together):
        trainer.train_step()
    assert free.gradients == [3, 0.25]
    assert by_part.gradients == pytest.approx([1, 0.25], rel=1e-4)  # the one over the limit, and it alone
    norm = (3**2 + 0.25**2) ** 0.5
    assert together.gradients == pytest.approx([3 / norm, 0.25 / norm], rel=1e-4)


def test_the_average_of_the_network_warms_up() -> None:
    trainer = Lookup()
    assert trainer.network is not None and trainer.averaged_network is not None
    average = trainer.network.state_dict()["0.weight"].clone()
    for step in range(1, 13):
        trainer.train_step()
        kept = min(0.75, step / (step + 2))  # 1/3, 1/2, 3/5, 2/3, 5/7, 3/4, 3/4 ...
        average = kept * average + (1 - kept) * trainer.network.state_dict()["0.weight"]
        assert torch.allclose(trainer.averaged_network.state_dict()["0.weight"], average, atol=1e-6)
    assert not torch.allclose(trainer.network.state_dict()["0.weight"], average, atol=1e-4)


def test_without_an_average_the_network_itself_is_kept() -> None:
    trainer = Lookup(replace(SETTINGS, ema=None))
    trainer.train_step()
    assert trainer.network is not None and trainer.averaged_network is not None
    assert same(trainer.network.state_dict(), trainer.averaged_network.state_dict())


def test_it_resumes_bit_for_bit() -> None:
    whole, first, second = Lookup(), Lookup(), Lookup()
    losses = [whole.train_step() for _ in range(12)]
    assert [first.train_step() for _ in range(5)] == losses[:5]
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    assert same(second.state(), first.state())
    torch.rand(3)  # whatever happens in between
    assert [second.train_step() for _ in range(7)] == losses[5:]
    assert same(second.state(), whole.state())
    assert not same(second.state(), first.state())


def test_a_state_before_the_first_step_is_one_too() -> None:
    first, second = Lookup(), Lookup()
    second.train_step()
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    assert [second.train_step() for _ in range(3)] == [first.train_step() for _ in range(3)]


def test_a_step_depends_on_seed_and_number_alone_and_leaves_the_global_random_state() -> None:
    torch.manual_seed(1)
    one = Lookup()
    before = torch.get_rng_state()
    losses = [one.train_step() for _ in range(4)]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = Lookup()
    assert [other.train_step(other.batch(step)) for step in range(4)] == losses  # drawn ahead, or by the step
    assert same(one.state(), other.state())
    assert Lookup(seed=1).train_step() != losses[0]


def test_dropout_differs_from_step_to_step() -> None:
    trainer = Lookup(replace(SETTINGS, learning_rate=0.0, table_learning_rate=0.0, weight_decay=0.0))
    batch = torch.tensor([0, 1])
    assert len({trainer.train_step(batch) for _ in range(4)}) > 1


def test_tables_alone_can_be_trained() -> None:
    class Alone(Trainer[Tensor, nn.Module]):
        def __init__(self) -> None:
            self.rows = RowTable(torch.zeros(4, 2))
            super().__init__(OptimizerSettings(), steps=5, seed=0, network=nn.Module(), tables={"rows": self.rows})

        def batch(self, step: int) -> Tensor:
            return torch.tensor([step % 4])

        def loss(self, batch: Tensor) -> Loss:
            rows, unused = self.rows.rows(batch), self.rows.rows(torch.tensor([3]))
            used = [Rows(self.rows, batch, rows), Rows(self.rows, torch.tensor([3]), unused)]
            return Loss(F.mse_loss(rows, torch.ones(1, 2)), used)

    trainer = Alone()
    for _ in range(3):
        trainer.train_step()
    assert (trainer.rows.weights[:3] > 0).all()
    assert not trainer.rows.weights[3].any()  # what the loss does not depend on stays
    assert trainer.state().keys() == {"step", *(f"rows.{part}" for part in trainer.rows.state())}


def test_products_are_computed_in_half_precision_where_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA; here the CPU has to serve."""
    plain, chosen = Lookup(), Lookup(replace(SETTINGS, autocast=True))
    seen: list[torch.dtype] = []
    chosen.network[0].register_forward_hook(lambda _module, _given, found: seen.append(found.dtype))
    assert [chosen.train_step() for _ in range(3)] == [plain.train_step() for _ in range(3)]  # nothing on the CPU
    monkeypatch.setattr("hire.optim.trainer.AUTOCAST", {"cpu"})
    found, expected = ([trainer.train_step() for _ in range(10)] for trainer in (chosen, plain))
    assert seen == 3 * [torch.float32] + 10 * [torch.bfloat16]
    assert found != expected and found == pytest.approx(expected, rel=0.05)
    assert all(part.dtype == torch.float32 for part in chosen.network.parameters())


def test_a_batch_is_pinned_where_it_is_to_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Tensor] = []

    def pin(tensor: Tensor) -> Tensor:
        calls.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    trainer = Lookup(replace(SETTINGS, pinned=True))
    assert trainer.train_step() == Lookup().train_step() and not calls  # nothing on the CPU
    monkeypatch.setattr(Lookup, "_device", property(lambda _trainer: torch.device("cuda")))
    assert torch.equal(trainer.drawn(1), trainer.batch(1)) and len(calls) == 1
    trainer.optimizer_settings = SETTINGS
    trainer.drawn(2)
    assert len(calls) == 1
