"""How gradients become steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from hire.optim.sharded import stored
from hire.optim.storage import Start, StorageSettings
from hire.optim.tables import DenseTable, RowTable, Table, kept_share
from hire.util.ranges import Count, Horizon, Natural, Rate, Scale, Share, Weight
from hire.util.settings import Settings


@dataclass(frozen=True)
class OptimizerSettings(Settings):
    """AdamW for networks, Adam for tables, with one schedule and one EMA for both."""

    learning_rate: Rate = 1e-3  # of networks
    table_learning_rate: Rate = 6e-3  # of tables: entities, projections, relations
    tables: Literal["row-wise", "dense"] = "row-wise"  # only rows in use move, or all, as by plain Adam (without EMA)
    final_rate: Share = 0.05  # both fall linearly to this share of themselves
    warm_up: Natural = 0  # steps in which they rise first
    weight_decay: Weight = 0.0  # of networks
    ema: Horizon | None = None  # steps that the EMA of the weights reaches back, a share of all steps if below 1
    ema_warm_up: Natural = 0  # the EMA reaches back no further than a share of step / (step + this)
    clip: Scale | None = None  # largest norm of the gradient of a network, or of each member of an ensemble
    autocast: bool = False  # compute products in bfloat16, on CUDA; on the CPU nothing changes
    pinned: bool = False  # move a batch to CUDA while the step before is computed; on the CPU nothing changes
    storage: StorageSettings = field(default_factory=StorageSettings)

    def table(self, start: Start, steps: int, device: torch.device, *, of_entities: bool = True) -> Table:
        """A table that starts with some vectors, for a training of so many steps; a small one is always kept whole."""
        storage = self.storage if of_entities else StorageSettings()

        def make(start: Start) -> RowTable:
            if self.tables == "dense":
                return DenseTable(start, storage=storage, device=device)
            return RowTable(start, ema=self.ema_steps(steps), storage=storage, device=device)

        return stored(start, storage, make)

    def share(self, step: int, steps: int) -> float:
        """The share of the learning rates that a step takes."""
        rising = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        return rising * max(self.final_rate, 1 - step / steps)

    def ema_steps(self, steps: int) -> float | None:
        """How many steps the EMA reaches back, None for no EMA."""
        return self.ema * steps if self.ema is not None and self.ema < 1 else self.ema

    def kept(self, updates: int, steps: int) -> float:
        """The share of the EMA that stays after so many updates; none without an EMA."""
        kept = kept_share(self.ema_steps(steps))
        return min(kept, updates / (updates + self.ema_warm_up)) if self.ema_warm_up else kept


@dataclass(frozen=True)
class SelectionSettings(Settings):
    """When to rank the dev tasks, and when to stop; the best step by the mean of their MRR is kept."""

    evaluate_every: Count | None = None  # steps; None to keep the last step without ranking
    patience: Count | None = None  # evaluations without a better one before training stops; None to train to the end
