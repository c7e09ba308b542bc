"""How long a run takes on this machine, from a few of its steps, without training it.

Times are those of a machine that does nothing else: what counts on a CPU is processor time. What was measured is kept
in the folder of a comparison with a description of the machine, so that it is done once.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch

from hire import __version__
from hire.data.dataset import FewShotDataset, Task
from hire.embeddings.scores import widths
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.errors import HireError
from hire.evaluation.ranking import rank_task
from hire.optim.trainer import Trainer
from hire.sampling.ahead import drawn_ahead
from hire.systems.base import FewShotSystem
from hire.systems.registry import system_class
from hire.training.loop import one_or_more_threads
from hire.training.needs import check_embeddings, check_training
from hire.training.pipeline import check_dev, possible_shots
from hire.util.arrays import IntArray
from hire.util.checksums import read_record, write_record

SPEEDS = "speeds.json"
WARM_UP = 2  # steps: the first ones compile, and fill caches
STEPS = range(3, 50)  # that are measured after them
SECONDS = 2.0  # after which no more steps are measured, and no more rankings
QUERIES = (1, 64)  # of a task: what more of them take longer is the time of a pair


@dataclass(frozen=True)
class Speed:
    """Seconds of the parts of a run."""

    start: float = 0.0  # before the first step
    step: float = 0.0  # the median
    steps: int = 0
    look: float = 0.0  # at the dev tasks, for all numbers of references
    looks: int = 0
    task: float = 0.0  # of ranking, whatever the number of queries
    pair: float = 0.0  # of ranking: of a head and a candidate; most systems do a head that occurs twice once

    @property
    def training(self) -> float:
        """Of the whole training, if it is not stopped early."""
        return self.start + self.steps * self.step + self.looks * self.look

    def ranking(self, dataset: FewShotDataset, split: str, *, among_all: bool = False) -> float:
        """Of ranking a split once."""
        tasks = dataset.split(split)
        pairs = sum(_heads(task.pairs) * _candidates(dataset, task, among_all) for task in tasks)
        return len(tasks) * self.task + pairs * self.pair


class Speeds:
    """What was measured in a folder, by what it depends on; what another machine or version measured is not."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._path = folder / SPEEDS
        self._machine = machine(device)
        self._known: dict[str, Speed] = {}
        with suppress(HireError, TypeError, KeyError, AttributeError):  # none, or damaged: they are measured anew
            content = read_record(self._path, "plan again")
            if content["machine"] == self._machine:
                self._known = {key: Speed(**of) for key, of in content["seconds"].items()}

    def get(self, key: str) -> Speed | None:
        """The speed that was measured, if any."""
        return self._known.get(key)

    def put(self, key: str, speed: Speed) -> None:
        """Keep a speed; in a folder that cannot be written, until the end of this process."""
        self._known[key] = speed
        with suppress(HireError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_record(
                self._path, {"machine": self._machine, "seconds": {key: vars(of) for key, of in self._known.items()}}
            )


def machine(device: torch.device) -> dict[str, Any]:
    """What speeds depend on, besides the work."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "torch": str(torch.__version__),
        "hire": __version__,
    }


@cache
def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor()


def measured(
    dataset: FewShotDataset, system: str, settings: Any, device: torch.device, *, among_all: bool = False
) -> Speed:
    """The speed of a system, from a few steps and rankings of dev tasks, all in memory.

    The embeddings that it starts from are random: how long it takes to learn them is measured apart.
    """
    check_dev(dataset)
    check_training(dataset, system, settings)
    trial = _Trial(dataset, device)
    with one_or_more_threads(1):
        speed, made = trial.tried(system, settings)
        if among_all:
            task, pair = trial.ranking(made, possible_shots(dataset)[0], among_all=True)
            speed = replace(speed, task=task, pair=pair)
    return speed


def measured_embeddings(dataset: FewShotDataset, settings: EmbeddingSettings, device: torch.device) -> Speed:
    """The speed of learning embeddings."""
    check_embeddings(dataset, settings)
    trial = _Trial(dataset, device)
    with one_or_more_threads(1):
        start = trial.clock()
        trainer = EmbeddingTrainer(dataset.graph, settings, device)
        return Speed(trial.clock() - start, trial.step(trainer), trainer.steps)


@dataclass
class _Trial:
    """Tries a system, as the resources that it asks for: with random embeddings, and with a count of its looks."""

    dataset: FewShotDataset
    device: torch.device
    parts: Mapping[str, FewShotSystem] = field(default_factory=dict)
    looks: int = 0

    def clock(self) -> float:
        """Seconds of this thread on a processor; where another device computes, those of a clock on the wall."""
        return time.thread_time() if self.device.type == "cpu" else time.perf_counter()

    def embeddings(self, settings: EmbeddingSettings) -> Embeddings:
        """Random ones."""
        generator = torch.Generator().manual_seed(settings.seed)
        counts = len(self.dataset.graph.entities), 2 * len(self.dataset.graph.relations)
        sizes = zip(counts, widths(settings.model, settings.dimension), strict=True)
        return Embeddings(*(torch.empty(*size).normal_(generator=generator) for size in sizes))

    def evaluate(self, system: FewShotSystem) -> float:
        """Nothing but the count."""
        self.looks += 1
        return 0.0

    def tried(self, name: str, settings: Any) -> tuple[Speed, FewShotSystem]:
        """The speed of a system, with all that it is made of, and the system after a few steps."""
        kind = system_class(name)
        tried = {part: _Trial(self.dataset, self.device).tried(*of) for part, of in kind.parts(settings).items()}
        self.parts = {part: system for part, (_, system) in tried.items()}
        before = self.clock()
        trainer = kind.trainer(self.dataset, settings, self)
        if trainer is None:
            system = kind.without_training(self.dataset, settings, self)
            start, step, steps, looks = self.clock() - before, 0.0, 0, self.looks + 1
            shots = possible_shots(self.dataset)
        else:
            start, steps = self.clock() - before, trainer.steps
            step, system = self.step(trainer), trainer.system()
            looks = math.ceil(steps / (trainer.selection.evaluate_every or steps))
            shots = possible_shots(self.dataset, trainer.shots)
        task, pair = self.ranking(system, max(shots))
        look = len(shots) * Speed(task=task, pair=pair).ranking(self.dataset, "dev")
        start += sum(speed.training for speed, _ in tried.values())
        return Speed(start, step, steps, look, looks, task, pair), system

    def step(self, trainer: Trainer[Any, Any]) -> float:
        """The median step of a training, as its loop takes them: another thread draws batches meanwhile."""
        draws: list[float] = []
        times: list[float] = []

        def drawn(number: int) -> Any:
            start = self.clock()
            batch = trainer.drawn(number)
            draws.append(self.clock() - start)
            return batch

        began = time.monotonic()
        with closing(drawn_ahead(drawn, trainer.step)) as batches:
            while trainer.step < trainer.steps and len(times) < WARM_UP + STEPS.stop:
                start = self.clock()
                trainer.train_step(next(batches))
                times.append(self.clock() - start)
                if len(times) == WARM_UP:
                    began = time.monotonic()
                if len(times) >= WARM_UP + STEPS.start and time.monotonic() - began > SECONDS:
                    break
        return max(median(each[min(WARM_UP, len(each) - 1) :]) for each in (times, draws))

    def ranking(self, system: FewShotSystem, shots: int, *, among_all: bool = False) -> tuple[float, float]:
        """The seconds that ranking takes for a task, and for each pair of a head and a candidate, from dev tasks."""
        few, many = QUERIES
        tasks = self.dataset.split("dev", shots)

        def seconds(task: Task, queries: int) -> float:
            part = replace(task, pairs=task.pairs[: shots + queries])
            start = self.clock()
            rank_task(system, self.dataset, part, shots, among_all=among_all)
            return self.clock() - start

        seconds(tasks[0], few)  # compiles, and fills caches
        times, sizes, more, began = [], [], 0, time.monotonic()
        for task in tasks:
            times.append((seconds(task, few), seconds(task, many)))
            sizes.append(_candidates(self.dataset, task, among_all))
            more += (_heads(task.pairs[shots : shots + many]) - 1) * sizes[-1]
            if time.monotonic() - began > SECONDS:
                break
        pair = max(0.0, sum(of_many - of_few for of_few, of_many in times)) / max(1, more)
        return max(0.0, mean(of_few for of_few, _ in times) - pair * mean(sizes)), pair


def _heads(pairs: IntArray) -> int:
    return len(np.unique(pairs[:, 0]))


def _candidates(dataset: FewShotDataset, task: Task, among_all: bool) -> int:
    return len(dataset.graph.entities) if among_all else task.candidate_count
