"""What learns: batches by step, a loss, and one way of turning its gradient into the next weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from hire.optim.exchange import Moved, exchanged
from hire.optim.settings import OptimizerSettings
from hire.optim.tables import Table
from hire.util.group import Share
from hire.util.processes import share
from hire.util.tensors import Parts, on_device, pinned

Batch = TypeVar("Batch")
Network = TypeVar("Network", bound=nn.Module)

SEED_STRIDE = 1_000_003  # between the seeds of two runs, so that their steps share none
AUTOCAST = {"cuda"}  # where it pays
RANK_STRIDE = 1 << 40  # between the seeds of two processes


class Rows(NamedTuple):
    """Some distinct rows of a table that a loss was computed from."""

    table: Table
    ids: Tensor  # [n]
    vectors: Tensor  # [n, dim]: a leaf, whose gradient moves the rows

    @classmethod
    def of(cls, table: Table, ids: Tensor) -> tuple[Rows, Tensor]:
        """The rows of all ids [...], each once, and the position of every id among them, [...]."""
        distinct, positions = (part.to(table.device) for part in torch.unique(ids, return_inverse=True))
        return cls(table, distinct, table.rows(distinct)), positions


class Loss(NamedTuple):
    """What a step minimizes, and the rows of tables that it depends on."""

    value: Tensor  # []
    rows: Sequence[Rows] = ()
    terms: int = 1  # that the value is a sum of: what is shown is their mean
    weight: int = 1  # how many examples the value is a mean of: how much it counts beside those of other processes


class Trainer(ABC, Generic[Batch, Network]):
    """Learns step by step; a step depends on the weights, the seed and its own number alone.

    A subclass says what a batch and its loss are; one that has tables alone gives a network without parameters. The
    base takes the step: schedule, clipping, optimizer, EMA, and everything needed to resume. The training loop calls
    it, whatever is trained.

    With several processes, `batch` may draw the part of the batch that `share` names, if `loss` gives its weight; a
    subclass that knows nothing of it computes the whole batch in every process, and gets the same result.
    """

    share: Share  # of every batch that this process computes
    fused: ClassVar[bool] = False  # whether AdamW takes all of its steps at once: faster, and equal up to rounding

    def __init__(
        self,
        settings: OptimizerSettings,
        *,
        steps: int,
        seed: int,
        network: Network,
        tables: dict[str, Table] | None = None,
    ) -> None:
        self.optimizer_settings = settings
        self.share = share()
        self.steps = steps
        self.seed = seed
        self.step = 0  # the number of steps taken
        self.tables = tables or {}
        self.network = network
        self.averaged_network = deepcopy(network).eval()  # the EMA, or the same weights where there is none
        self.optimizer: torch.optim.Optimizer | None = None
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        if trained:
            self.optimizer = torch.optim.AdamW(
                trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=self.fused or None
            )

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """The batch of a step, drawn by the seed and the step alone; any thread may draw it ahead."""

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """The loss of a batch."""

    def clip(self, limit: float) -> None:
        """Clip the gradients of the network to a norm."""
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), limit)

    def drawn(self, step: int) -> Batch:
        """The batch of a step, ready to be moved to where it is computed; any thread may draw it ahead."""
        batch = self.batch(step)
        return pinned(batch) if self.optimizer_settings.pinned and self._device.type == "cuda" else batch

    def train_step(self, batch: Batch | None = None) -> float:
        """Take a step; returns its loss. A batch that was drawn ahead must be that of the step."""
        batch = self.drawn(self.step) if batch is None else batch
        if self.optimizer_settings.pinned:
            batch = on_device(batch, self._device)
        with torch.random.fork_rng(devices=self._devices):  # dropout and drop path
            own = self.seed * SEED_STRIDE + self.step + self.share.rank * RANK_STRIDE
            (torch.manual_seed if self._devices else torch.default_generator.manual_seed)(own % 2**63)
            self.network.train()
            with self._precision:
                loss = self.loss(batch)
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        loss.value.backward()  # type: ignore[no-untyped-call]
        value = loss.value.item()
        moved = [Moved(rows.table, rows.ids, rows.vectors.grad) for rows in loss.rows if rows.vectors.grad is not None]
        if self.share.processes > 1:
            value, moved = exchanged(value, loss.weight, self.network, list(self.tables.values()), moved)
        self._update(moved)
        return value / loss.terms

    @property
    def _device(self) -> torch.device:
        places = chain((part.device for part in self.network.parameters()), (t.device for t in self.tables.values()))
        return next(places, torch.device("cpu"))

    @property
    def _devices(self) -> list[torch.device]:
        return [] if self._device.type == "cpu" else [self._device]

    @property
    def _precision(self) -> torch.autocast:
        kind = self._device.type
        chosen = self.optimizer_settings.autocast and kind in AUTOCAST
        return torch.autocast(kind if chosen else "cpu", torch.bfloat16, enabled=chosen)

    def _update(self, moved: Sequence[Moved]) -> None:
        settings = self.optimizer_settings
        rate = settings.share(self.step, self.steps)
        self.step += 1
        if self.optimizer is not None:
            if settings.clip is not None:
                self.clip(settings.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate
            self.optimizer.step()
            self._average()
        for table, ids, gradient in moved:
            table.update(ids, gradient, settings.table_learning_rate * rate)

    @torch.no_grad()
    def _average(self) -> None:
        kept = self.optimizer_settings.kept(self.step, self.steps)
        for average, now in zip(self.averaged_network.parameters(), self.network.parameters(), strict=True):
            if kept:
                average.lerp_(now, 1 - kept)
            elif now.requires_grad:
                average.copy_(now)
        for kept_buffer, buffer in zip(self.averaged_network.buffers(), self.network.buffers(), strict=True):
            kept_buffer.copy_(buffer)

    @property
    def apart(self) -> bool:
        """Whether the tables are never in the memory of one process as a whole."""
        return self.optimizer_settings.storage.apart

    @property
    def shards(self) -> Parts:
        """What the state has of sharded tables: the rows of this process alone."""
        return {f"{name}.{part}": own for name, table in self.tables.items() for part, own in table.parts.items()}

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume, as named tensors."""
        tensors = {"step": torch.tensor(self.step)}
        for name, table in self.tables.items():
            tensors |= {f"{name}.{part}": tensor for part, tensor in table.state().items()}
        for name, network in self._networks.items():
            tensors |= {f"{name}.{part}": tensor for part, tensor in network.state_dict().items()}
        if self.optimizer is not None:
            tensors |= _optimizer_tensors(self.optimizer)
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from a state."""
        for name, network in self._networks.items():
            network.load_state_dict({part: tensors[f"{name}.{part}"] for part in network.state_dict()})
        for name, table in self.tables.items():
            table.load({part: tensors[f"{name}.{part}"] for part in table.state()})
        if self.optimizer is not None:
            _load_optimizer(self.optimizer, tensors)
        self.step = int(tensors["step"])

    @property
    def _networks(self) -> dict[str, nn.Module]:
        return {"network": self.network, "averaged": self.averaged_network}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"adam.{number}.{name}": tensor for number, of_one in state.items() for name, tensor in of_one.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("adam."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = tensor.clone()  # it may be a map of a file
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
