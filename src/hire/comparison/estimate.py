"""How long what remains of a comparison takes, judging by runs that are there, and by speeds that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from hire.comparison.plan import Job
from hire.comparison.speed import Speed, Speeds, measured, measured_embeddings
from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.progress import track
from hire.training.embedding import embeddings_path
from hire.util.tensors import device_named

if TYPE_CHECKING:
    from hire.comparison.run import Bench, Outcome


class Expected(NamedTuple):
    """Seconds from now on; None where nothing is known."""

    training: float | None
    ranking: float | None


class Forecast:
    """The time that some jobs still take; `left` are those for which there is something to do."""

    def __init__(self, bench: Bench, jobs: Sequence[Job], left: Sequence[Job] | None = None) -> None:
        self.bench = bench
        self.jobs = jobs
        self.left = bench.left(jobs) if left is None else left
        self._device = device_named(bench.device)
        self._speeds = Speeds(bench.folder, self._device)

    def measure(self, report: Callable[[str], None] = lambda _: None) -> None:
        """Measure what is not known yet, a few seconds for each; what cannot be measured stays unknown."""
        dataset, device = self.bench.dataset, self._device
        work: dict[str, Callable[[], Speed]] = {}
        for settings in self.embeddings:
            if self.of_embeddings(settings) is None:
                work[self._of_embeddings(settings)] = partial(measured_embeddings, dataset, settings, device)
        for job in self.left:
            if None in self.of(job):
                of_job, among_all = job.settings, self.bench.protocol.among_all
                work[self._of_job(job)] = partial(
                    measured, dataset, of_job.system, of_job.settings, device, among_all=among_all
                )
        with track("Measuring speeds", len(work)) as advance:
            for key, measured_now in work.items():
                try:
                    self._speeds.put(key, measured_now())
                except HireError as error:
                    report(f"{key} cannot be measured: {error.problems[0]}")
                advance(1, key)

    def of(self, job: Job) -> Expected:
        """What a job takes from now on."""
        bench, done, speed = self.bench, self.bench.training(job), self._speeds.get(self._of_job(job))
        alike = [outcome for outcome in self._finished if outcome.job.row.key == job.row.key]
        like_it = [outcome for outcome in alike if outcome.job.shots == job.shots]
        training, ranking = (None, None) if speed is None else (speed.training, self._ranking(speed))
        if like_it or (alike and speed is None):
            training = mean(outcome.training.seconds for outcome in like_it or alike)
        ranked = [evaluation.seconds for outcome in alike for evaluation in outcome.evaluations]
        if ranked:
            ranking = mean(ranked)
        limit = math.inf if bench.budget is None else 60 * bench.budget
        training = min(limit, math.inf if training is None else training)
        left = max(0.0, training - done.seconds) if bench.to_train(done) else 0.0
        return Expected(left if left < math.inf else None, ranking and ranking * len(bench.wanted(job)))

    @cached_property
    def _finished(self) -> list[Outcome]:
        rows = {job.row.key for job in self.left}
        found = [self.bench.outcome(job) for job in self.jobs if job.row.key in rows]
        return [outcome for outcome in found if outcome.training.finished]

    def _ranking(self, speed: Speed) -> float:
        protocol = self.bench.protocol
        return speed.ranking(self.bench.dataset, protocol.split, among_all=protocol.among_all)

    @cached_property
    def embeddings(self) -> list[EmbeddingSettings]:
        """Those that are to be learned first."""
        to_train = [job for job in self.left if self.bench.to_train(self.bench.training(job))]
        asked = dict.fromkeys(settings for job in to_train for settings in job.embeddings)
        return [settings for settings in asked if not embeddings_path(self.bench.dataset, settings).exists()]

    def of_embeddings(self, settings: EmbeddingSettings) -> float | None:
        """The seconds that it takes to learn some."""
        speed = self._speeds.get(self._of_embeddings(settings))
        return None if speed is None else speed.training

    @property
    def seconds(self) -> float:
        """Of all that is to be done, as far as it is known."""
        of_jobs = [part for job in self.left for part in self.of(job)]
        return sum(part or 0.0 for part in [*of_jobs, *map(self.of_embeddings, self.embeddings)])

    @property
    def unknown(self) -> int:
        """Of how many runs no one knows how long they train."""
        return sum(self.of(job).training is None for job in self.left)

    @property
    def summary(self) -> str:
        """How much there is to do, and about how long it takes."""
        if not self.left:
            return f"all {len(self.jobs)} runs are there"
        found = f"{len(self.left)} of {len(self.jobs)} runs to do"
        found += f", about {duration(self.seconds)}" if self.seconds else ""
        return found + (f", {self.unknown} of unknown length (--plan measures it)" if self.unknown else "")

    def _of_job(self, job: Job) -> str:
        return job.alike + "-all" * self.bench.protocol.among_all

    def _of_embeddings(self, settings: EmbeddingSettings) -> str:
        return embeddings_path(self.bench.dataset, replace(settings, seed=0)).stem


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
