"""The training loop: whatever is trained, it is trained here."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hire.errors import HireError
from hire.optim.settings import SelectionSettings
from hire.optim.trainer import Trainer
from hire.progress import track
from hire.sampling.ahead import drawn_ahead
from hire.training.curves import curves_svg
from hire.util.files import atomic_file
from hire.util.memory import Tidying
from hire.util.processes import any_of, failure_of_others, share, told, told_tensors
from hire.util.tensors import (
    finite,
    load_tensors_and_metadata,
    map_tensors_and_metadata,
    save_together,
)

STATE, METRICS, CURVES = "state.safetensors", "metrics.jsonl", "curves.svg"
SECONDS_BETWEEN_STATES = 60.0

Entry = dict[str, Any]  # one evaluation: step, loss, and the metrics on dev


@dataclass(frozen=True)
class Stage:
    """What the loop is to do with a trainer besides taking steps."""

    title: str  # for the progress bar
    state: Path | None = None  # the file to resume from
    deadline: float | None = None  # by the monotonic clock
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    evaluate: Callable[[], dict[str, float]] | None = None  # metrics on dev; the best "mean" is the best step
    keep: Callable[[], None] | None = None  # the weights as they are now, as the best
    writer: Any = None  # of TensorBoard
    threads: int = 1  # of tensor operations; small ones wait for one another on a machine that has other work


def train(trainer: Trainer[Any, Any], stage: Stage) -> tuple[bool, list[Entry]]:
    """Train to the end, the deadline or the end of patience: whether it finished, and all evaluations.

    An interruption lets the step end and its state be written. A state that is there is resumed from: the result is
    the same, bit for bit, as without the interruption.
    """
    history = _History(stage)
    if told(lambda: stage.state is not None and stage.state.exists()):
        history.resume(trainer)
    saved, tidying = time.monotonic(), Tidying()
    with (
        one_or_more_threads(stage.threads),
        track(stage.title, trainer.steps, before=trainer.step) as advance,
        postponed_interruption() as interrupted,
        closing(drawn_ahead(trainer.drawn, trainer.step)) as batches,
    ):
        while trainer.step < trainer.steps and not history.given_up():
            loss = _finite(trainer.train_step(next(batches)), trainer, stage)
            history.losses.append(loss)
            advance(1, f"loss {loss:.3f}{history.note}")
            if history.due(trainer):
                history.evaluate(trainer)
                saved = -math.inf
            tidying.tidy()
            now = time.monotonic()
            over = stage.deadline is not None and now > stage.deadline
            stop, over, due = any_of(interrupted(), over, share().first and now - saved > SECONDS_BETWEEN_STATES)
            failure = failure_of_others()
            if stop or over or due or failure is not None:
                history.save(trainer)
                saved = now
            if stop:
                raise KeyboardInterrupt
            if failure is not None:
                raise failure
            if over:
                break
    if not history.entries and stage.evaluate is not None:  # stopped early: said, but not part of the history
        history.evaluate(trainer)
    return trainer.step == trainer.steps or history.given_up(), history.entries


def _finite(loss: float, trainer: Trainer[Any, Any], stage: Stage) -> float:
    if not math.isfinite(loss):
        raise _diverged(f"the loss of step {trainer.step:,} is {loss}", stage)
    return loss


def _diverged(what: str, stage: Stage) -> HireError:
    kept = "no checkpoint was written"
    if stage.state is not None and stage.state.exists():
        kept = (
            f"the last good checkpoint is {stage.state}, step {int(map_tensors_and_metadata(stage.state)[0]['step']):,}"
        )
    return HireError(
        f"{what}; {kept}",
        remedy="train again with a smaller optimizer.learning_rate or optimizer.table_learning_rate",
    )


class _History:
    """The evaluations of a training, and the losses since the last one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.entries: list[Entry] = []
        self.losses: list[float] = []

    def resume(self, trainer: Trainer[Any, Any]) -> None:
        path = self.stage.state or Path(STATE)
        if trainer.apart or share().processes == 1:  # large tables and a copy of them would not fit
            tensors, about = map_tensors_and_metadata(path)
        else:
            tensors, about = told_tensors(lambda: load_tensors_and_metadata(path))
        try:
            trainer.load_state(tensors)
            self.losses = tensors["losses"].tolist()
            self.entries = json.loads(about["evaluations"])
        except (RuntimeError, KeyError, ValueError) as error:
            raise HireError(
                "does not fit the settings of the run", file=path, remedy="delete it to train again"
            ) from error

    @property
    def best(self) -> Entry:
        """The first of the best evaluations."""
        return max(self.entries, key=lambda entry: float(entry["dev"]["mean"]))

    @property
    def note(self) -> str:
        if not self.entries:
            return ""
        return f", dev MRR {self.entries[-1]['dev']['mean']:.3f}, best {self.best['dev']['mean']:.3f}"

    def due(self, trainer: Trainer[Any, Any]) -> bool:
        every = self.stage.selection.evaluate_every
        last = trainer.step == trainer.steps
        return self.stage.evaluate is not None and (last or (every is not None and trainer.step % every == 0))

    def given_up(self) -> bool:
        """Whether the last evaluations, as many as patience has it, brought nothing better."""
        patience = self.stage.selection.patience
        if patience is None or not self.entries:
            return False
        return len(self.entries) - 1 - self.entries.index(self.best) >= patience

    def evaluate(self, trainer: Trainer[Any, Any]) -> None:
        if self.stage.evaluate is None:
            return
        self._finite_state(trainer)
        loss = sum(self.losses) / max(1, len(self.losses))
        self.entries.append({"step": trainer.step, "loss": loss, "dev": self.stage.evaluate()})
        self.losses = []
        if self.best is self.entries[-1] and self.stage.keep is not None:
            self.stage.keep()
        if self.stage.writer is not None:
            self.stage.writer.add_scalar("loss", loss, trainer.step)
            for name, value in self.entries[-1]["dev"].items():
                self.stage.writer.add_scalar(f"dev MRR/{name}", value, trainer.step)
            self.stage.writer.flush()

    def save(self, trainer: Trainer[Any, Any]) -> None:
        path = self.stage.state
        if path is None:
            return
        state = self._finite_state(trainer)
        if share().first and self.entries:
            with atomic_file(path.with_name(METRICS)) as partial:
                partial.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries), "utf-8")
            with atomic_file(path.with_name(CURVES)) as partial:
                partial.write_text(curves_svg(self.entries), "utf-8")
        losses = {"losses": torch.tensor(self.losses, dtype=torch.float64)}
        save_together(path, state | losses, {"evaluations": json.dumps(self.entries)}, trainer.shards)

    def _finite_state(self, trainer: Trainer[Any, Any]) -> dict[str, Tensor]:
        state = trainer.state()
        if not all(finite(tensor) for tensor in state.values()):  # the next loss would tell
            raise _diverged(f"the weights after step {trainer.step:,} are not finite", self.stage)
        return state


@contextmanager
def one_or_more_threads(count: int) -> Iterator[None]:
    """Let tensor operations use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def postponed_interruption() -> Iterator[Callable[[], bool]]:
    """Hold back SIGINT and SIGTERM, and tell when one has come: half a step must never be kept."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers]
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
