"""Whether steps that leave out the tasks within the margin are those with all tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hire.optim.trainer import Trainer


def tasks_kept(trainer: Trainer[Any, Any], finder: type, monkeypatch: pytest.MonkeyPatch, tasks: int) -> list[int]:
    """How many tasks each of some steps keeps; fails where its loss or its gradients are not those of all tasks.

    `finder` is the class with the method `_outside_margin`.
    """
    chosen: Callable[..., torch.Tensor] = finder._outside_margin  # type: ignore[attr-defined]
    kept: list[int] = []

    def outside(*given: Any) -> torch.Tensor:
        found = chosen(*given)
        kept.append(len(found))
        return found

    def gradients(which: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        """The loss of the next step, and its gradients: of all rows of tables, and of the network."""
        torch.manual_seed(trainer.step)
        trainer.network.train()
        trainer.network.zero_grad()
        with monkeypatch.context() as patch:
            patch.setattr(finder, "_outside_margin", which)
            loss = trainer.loss(trainer.batch(trainer.step))
        loss.value.backward()  # type: ignore[no-untyped-call]
        found = [loss.value.detach()]
        for rows in loss.rows:
            assert rows.vectors.grad is not None
            found.append(torch.zeros_like(rows.table.weights).index_copy(0, rows.ids, rows.vectors.grad))
        return found + [part.grad.clone() for part in trainer.network.parameters() if part.grad is not None]

    for _ in range(60):
        quick, slow = gradients(outside), gradients(lambda *_: torch.arange(tasks))
        assert len(quick) == len(slow) > 10
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(quick, slow, strict=True))
        trainer.train_step()
    return kept
