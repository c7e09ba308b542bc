"""Carries out the runs of a comparison in a folder: what is there is reused, what was interrupted is continued.

Each run has a folder of its own below `runs`: the run itself, as `hire train` makes it, how its training went, and the
ranks of each evaluation.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hire import __version__
from hire.comparison.estimate import Forecast
from hire.comparison.plan import Job
from hire.comparison.published import published_name
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.evaluation.ranking import Ranks, rank_split
from hire.progress import track
from hire.systems.base import FewShotSystem
from hire.training.embedding import embeddings_of
from hire.training.loop import STATE
from hire.training.pipeline import train_run
from hire.training.run import CONFIG, MODEL, commit, fingerprint, load_system, read_config, weights_fingerprint
from hire.util.arrays import IntArray
from hire.util.checksums import read_record, write_record
from hire.util.locks import InUseError, locked
from hire.util.settings import items
from hire.util.tensors import device_named

RUNS, RUN, TRAINING, LOCK = "runs", "run", "training.json", "lock"

Report = Callable[[str], None]


@dataclass(frozen=True)
class Protocol:
    """How runs are evaluated."""

    split: str = "test"
    draws: int | None = None  # of the references; None for the first pairs of each task
    among_all: bool = False  # whether to rank among all entities

    def file(self, shots: int, draw: int | None) -> str:
        """The name of the file for the ranks of an evaluation."""
        return f"{self.split}-{shots}-shot{'-all' * self.among_all}{'' if draw is None else f'-draw-{draw}'}.json"


@dataclass(frozen=True)
class Evaluation:
    """The ranks of a run for one number of references and one choice of them."""

    shots: int
    draw: int | None
    ranks: dict[str, tuple[IntArray, Ranks]]  # of each task: which of its pairs are queries, and their ranks
    refused: str | None = None  # why the system takes no references that are drawn
    seconds: float = 0.0  # of ranking


@dataclass(frozen=True)
class Training:
    """How far a run has come."""

    seconds: float = 0.0  # of training, without embeddings, which runs share
    finished: bool = False
    step: int = 0  # the best one
    steps: int = 0  # taken
    problem: str | None = None  # why there is nothing to evaluate
    started: float | None = None  # by the wall clock, while it is being trained
    weights: str | None = None  # their fingerprint, once they are removed


@dataclass(frozen=True)
class Outcome:
    """What is there of a job."""

    job: Job
    training: Training
    evaluations: list[Evaluation]
    commit: str | None = None
    fixed: bool = False  # whether it cannot be given other references than the first pairs

    @property
    def cut(self) -> bool:
        """Whether training was stopped before its end."""
        return not self.training.finished and self.training.problem is None


@dataclass(frozen=True)
class Bench:
    """Where the runs of a comparison are carried out."""

    folder: Path
    source: str
    dataset: FewShotDataset
    protocol: Protocol = field(default_factory=Protocol)
    budget: float | None = None  # minutes of training for each run
    device: str = "auto"
    keep_weights: bool = True  # or remove those of a finished run as soon as it is ranked
    threads: int = 1  # of tensor operations in training

    def about(self) -> dict[str, Any]:
        """What the metrics of a comparison belong to."""
        return {
            "dataset": self.dataset.name,
            "source": self.source,
            "published": published_name(self.dataset),  # as the paper calls the dataset
            "fingerprint": fingerprint(self.dataset),
            "split": self.protocol.split,
            "candidates": "all" if self.protocol.among_all else "task",
            "draws": self.protocol.draws,
            "budget": self.budget,
            "threads": self.threads,
            "commit": commit(),
            "versions": {"hire": __version__, "python": platform.python_version(), "torch": str(torch.__version__)},
        }

    def carry_out(self, jobs: Sequence[Job], report: Report = lambda _: None) -> list[Outcome]:
        """Do what is missing of some jobs, and return what is there of all; a job that fails does not stop the others.

        An interruption loses nothing: the same call continues.
        """
        self.check(jobs)
        left = self.left(jobs)
        report(Forecast(self, jobs, left).summary)
        for number, job in enumerate(left, 1):
            report(f"{number} of {len(left)}: {job}")
            place = self._place(job)
            place.mkdir(parents=True, exist_ok=True)
            try:
                with locked(place / LOCK, place):
                    self._do(job, report)
            except InUseError as error:
                report(f"  {error}; run the same command again for its metrics")
                continue
            if number < len(left):
                report(f"  {Forecast(self, jobs, left[number:]).summary}")
        outcomes = self.outcomes(jobs)
        for outcome in outcomes:
            if outcome.evaluations and not self.keep_weights:  # of runs that were there before, too
                self._remove_weights(outcome.job)
        return outcomes

    def _do(self, job: Job, report: Report) -> None:
        try:
            self._train(job)
            self._evaluate(job)
            if not self.keep_weights:
                self._remove_weights(job)
        except HireError as error:
            problem = error.problems[0]
            self._write(job, replace(self.training(job), problem=str(problem)))
            report(f"  failed: {problem}" + (f"\n  {problem.remedy}" if problem.remedy else ""))

    def check(self, jobs: Sequence[Job]) -> None:
        """Tell what would stop every job, before the work."""
        if not self.dataset.split(self.protocol.split):
            remedy = "hire data build makes a dataset with tasks from a graph"
            raise HireError(f"has no {self.protocol.split} tasks to rank", file=self.dataset.name, remedy=remedy)
        for shots in sorted({shots for job in jobs for shots in job.shots}):
            self.dataset.split(self.protocol.split, shots)
        for job in jobs:
            self._check_defaults(job)

    def _check_defaults(self, job: Job) -> None:
        """A folder is named by what differs from the defaults, so a run in it may stem from a version with others."""
        try:
            then = dict(items(read_config(self._run(job))["settings"]))
        except HireError:  # not begun, or damaged: then it is told, or made anew, when it is needed
            return
        now = dict(items(job.settings.to_plain()["settings"]))
        changed = [path for path in then.keys() & now.keys() if then[path] != now[path]]
        if changed:
            message = f"was made when the default of {', '.join(sorted(changed))} was another one"
            raise HireError(message, file=self._place(job), remedy="remove this folder, or use another with -o")

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs for which there is something to do; one that failed is tried again."""
        return [job for job in jobs if self.to_train(self.training(job)) or not self.outcome(job).evaluations]

    def training(self, job: Job) -> Training:
        """How far the training of a job has come; one that was killed has been trained until its last state."""
        try:
            found = Training(**read_record(self._place(job) / TRAINING, "run the comparison again"))
        except (HireError, TypeError):  # not begun, or damaged: then it continues from its state
            return Training()
        if found.started is None:
            return found
        ends = [path.stat().st_mtime for path in self._run(job).rglob(STATE)]
        return Training(found.seconds + max(0.0, max(ends, default=0.0) - found.started))

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        """What is there of some jobs; nothing is trained or ranked."""
        self.check(jobs)
        return [self.outcome(job) for job in jobs]

    def outcome(self, job: Job) -> Outcome:
        """What is there of a job."""
        training = self.training(job)
        try:
            begun, identity = read_config(self._run(job)).get("commit"), self._identity(job)
        except HireError:  # there is no run, or it has no weights
            return Outcome(job, training, [])
        found = [self._read(job, identity, shots, draw) for shots, draw in self.wanted(job)]
        there = [evaluation for evaluation in found if evaluation is not None]
        fixed = any(evaluation.refused for evaluation in there)
        if fixed:
            found = [self._read(job, identity, shots, None) for shots in job.shots]
            there = [evaluation for evaluation in found if evaluation is not None]
        return Outcome(job, training, there if len(there) == len(found) else [], begun, fixed)

    def _place(self, job: Job) -> Path:
        return self.folder / RUNS / job.name

    def _run(self, job: Job) -> Path:
        return self._place(job) / RUN

    def _write(self, job: Job, training: Training) -> None:
        self._place(job).mkdir(parents=True, exist_ok=True)
        write_record(self._place(job) / TRAINING, vars(training))

    def to_train(self, training: Training) -> bool:
        """Whether there is more to train, and time for it."""
        return not training.finished and (self.budget is None or training.seconds < 60 * self.budget)

    def _train(self, job: Job) -> None:
        """Train until the end or until the budget is spent; what was trained before counts."""
        run, before = self._run(job), self.training(job)
        if not self.to_train(before):
            return
        for wanted in job.embeddings:  # they are shared, so that no run's budget should pay for them
            embeddings_of(self.dataset, wanted, device_named(self.device), self.threads)
        self._write(job, Training(before.seconds, started=time.time()))
        start = time.monotonic()
        result: dict[str, Any] = {}
        try:
            result = train_run(
                self.source,
                run,
                job.settings,
                resume=(run / CONFIG).exists(),
                max_minutes=None if self.budget is None else max(0.0, self.budget - before.seconds / 60),
                device=self.device,
                threads=self.threads,
            )
        finally:
            seconds = before.seconds + time.monotonic() - start
            finished, step, steps = (result.get(name, 0) for name in ("finished", "step", "steps"))
            self._write(job, Training(seconds, bool(finished), step, steps))
        if finished:
            for state in run.rglob(STATE):  # large, and of no use any more
                state.unlink()

    def wanted(self, job: Job) -> list[tuple[int, int | None]]:
        """The evaluations of a job: numbers of references, and draws of them."""
        draws: list[int | None] = [None] if self.protocol.draws is None else list(range(self.protocol.draws))
        return [(shots, draw) for shots in job.shots for draw in draws]

    def _evaluate(self, job: Job) -> None:
        """Rank what has not been ranked with these weights; if the references cannot be redrawn, with the first."""
        training = self.training(job)
        try:
            identity = self._identity(job)
        except HireError as error:
            if training.finished or self.budget is None:
                raise
            message = "the budget was spent before there was anything to evaluate"
            raise HireError(message, remedy="give a larger --budget") from error
        wanted = self.wanted(job)
        if training.weights is not None:
            if self.outcome(job).evaluations:
                return
            message = "was ranked for other references, and its weights have been removed"
            raise HireError(message, file=self._place(job), remedy="remove this folder to train it again")
        system = load_system(self._run(job), self.dataset, device_named(self.device))
        with track(f"Ranking {self.protocol.split}", len(wanted)) as advance:
            for shots, draw in wanted:
                there = self._read(job, identity, shots, draw)
                if (there or self._rank(job, system, shots, draw)).refused:
                    wanted = [(k, None) for k in job.shots]
                    break
                advance(1)
            for shots, draw in wanted:
                if self._read(job, identity, shots, draw) is None:
                    self._rank(job, system, shots, draw)
        if training.problem is not None:
            self._write(job, replace(training, problem=None))

    def _rank(self, job: Job, system: FewShotSystem, shots: int, draw: int | None) -> Evaluation:
        """Rank, and write the ranks, or that the system refuses the references that were drawn."""
        protocol, start, refused = self.protocol, time.monotonic(), None
        ranks: dict[str, tuple[IntArray, Ranks]] = {}
        try:
            ranks = rank_split(system, self.dataset, protocol.split, shots, draw=draw, among_all=protocol.among_all)
        except HireError as error:
            if draw is None:
                raise
            refused = str(error)
        relations = {
            name: {"queries": queries, "optimistic": of_task.optimistic, "pessimistic": of_task.pessimistic}
            for name, (queries, of_task) in ranks.items()
        }
        seconds = time.monotonic() - start
        content = {
            **self._identity(job),
            "seconds": seconds,
            "refused": refused,
            "relations": {name: {part: a.tolist() for part, a in of.items()} for name, of in relations.items()},
        }
        write_record(self._place(job) / protocol.file(shots, draw), content, indent=None)
        return Evaluation(shots, draw, ranks, refused, seconds)

    def _remove_weights(self, job: Job) -> None:
        training = self.training(job)
        if training.finished and training.weights is None:
            self._write(job, replace(training, weights=weights_fingerprint(self._run(job))))
        if training.finished:
            for path in self._run(job).rglob(MODEL):
                path.unlink()

    def _identity(self, job: Job) -> dict[str, str]:
        """What an evaluation depends on: after more training, or with other tasks, it is made anew."""
        return {"weights": self.training(job).weights or weights_fingerprint(self._run(job)), "tasks": self._tasks}

    @cached_property
    def _tasks(self) -> str:
        """Which tasks are ranked, among which candidates, and which facts are filtered out."""
        digest = hashlib.sha256(json.dumps(dict(self.dataset.split_sizes)).encode())
        for task in self.dataset.tasks:
            digest.update(np.ascontiguousarray(task.pairs).data)
            digest.update(b"" if task.candidates is None else np.ascontiguousarray(task.candidates).data)
        digest.update(np.ascontiguousarray(self.dataset.facts.keys).data)
        return digest.hexdigest()

    def _read(self, job: Job, identity: dict[str, str], shots: int, draw: int | None) -> Evaluation | None:
        """An evaluation, if it is there and still holds."""
        path = self._place(job) / self.protocol.file(shots, draw)
        try:
            content = read_record(path, "run the comparison again")
            if any(content[name] != value for name, value in identity.items()):
                return None
            ranks = {
                name: (np.array(of["queries"]), Ranks(np.array(of["optimistic"]), np.array(of["pessimistic"])))
                for name, of in content["relations"].items()
            }
            return Evaluation(shots, draw, ranks, content["refused"], content["seconds"])
        except (HireError, ValueError, KeyError, TypeError):  # a damaged one is made anew
            return None
