"""Two processes train and evaluate as one: the same losses up to rounding, the same ranks bit for bit."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.optim.trainer import Trainer
from hire.systems.base import FewShotSystem
from hire.systems.registry import system_class, system_names
from hire.util.group import SINGLE, Share
from tests.together import BY_ROWS, SECONDS, SHARDED, TRAINED, findings, torchrun, trainer_of


@pytest.fixture(scope="module")
def found(umls: FewShotDataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """What one process finds, and what each of two found at the same time."""
    folder = tmp_path_factory.mktemp("found")
    command = torchrun("tests.together", folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        alone = json.loads(json.dumps(findings(umls)))
        output = started.communicate(timeout=SECONDS)[0]
    assert started.returncode == 0, output
    return alone, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", TRAINED)
def test_two_processes_have_the_losses_of_one(found: tuple[dict[str, Any], list[Any]], name: str) -> None:
    alone, (first, second) = found
    assert first[name] == second[name]  # and the same weights, bit for bit
    assert first[name]["losses"] == pytest.approx(alone[name]["losses"], rel=1e-5)


@pytest.mark.parametrize("name", SHARDED)
def test_two_processes_with_a_share_of_the_rows_have_the_losses_of_one(
    found: tuple[dict[str, Any], list[Any]], name: str
) -> None:
    alone, (first, second) = found
    assert first[name] == second[name]
    assert first[name]["losses"] == pytest.approx(alone[name]["losses"], rel=1e-5)
    whole = name.removesuffix(BY_ROWS)
    assert first[name] == first.get(whole, first[name])  # and the weights of two with a copy each, bit for bit


@pytest.mark.parametrize("name", ["evaluation", "draws", "outcomes"])
def test_two_processes_rank_and_ask_as_one_bit_for_bit(found: tuple[dict[str, Any], list[Any]], name: str) -> None:
    alone, (first, second) = found
    assert first[name] == second[name] == alone[name]


UNTRAINED = FewShotSystem.trainer.__qualname__
LEARNING = [name for name in system_names() if system_class(name).trainer.__qualname__ != UNTRAINED]


def gradients(trainer: Trainer[Any, Any], share: Share) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a share of a batch, each times its weight."""
    trainer.share = share
    trainer.network.zero_grad()
    loss = trainer.loss(trainer.batch(3))
    loss.value.backward()  # type: ignore[no-untyped-call]
    found = {
        name: part.grad * loss.weight for name, part in trainer.network.named_parameters() if part.grad is not None
    }
    for name, table in trainer.tables.items():
        found[name] = torch.zeros_like(table.weights)
        for rows in loss.rows:
            if rows.table is table and rows.vectors.grad is not None:
                found[name][rows.ids] += rows.vectors.grad * loss.weight
    return loss.value.item() * loss.weight, found


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("processes", [2, 3])
def test_the_shares_of_a_batch_have_its_gradient(umls: FewShotDataset, name: str, processes: int) -> None:
    trainer = trainer_of(name, umls)
    trainer.network.eval()  # a batch norm would look at the share that it is given
    whole, of_whole = gradients(trainer, SINGLE)
    shares = [gradients(trainer, Share(rank, processes)) for rank in range(processes)]
    assert sum(value for value, _ in shares) == pytest.approx(whole, rel=1e-5)
    largest = max(float(part.abs().max()) for part in of_whole.values())
    for part, expected in of_whole.items():
        found = sum((of[part] for _, of in shares if part in of), torch.zeros_like(expected))
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6 * largest), part
    assert all(max(of[part].abs().max() for part in of) > 0 for _, of in shares)
