"""A comparison as data: means and spreads of every row, and which differences are more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from hire.comparison.plan import Row
from hire.comparison.run import Evaluation, Outcome
from hire.comparison.statistics import CONFIDENCE, Floats, holm, interval, p_value, resampled_means
from hire.evaluation.ranking import HITS, Ranks, metrics

CUT = "were cut"
METRICS = ("mrr", *(f"hits@{most}" for most in HITS))
METRIC_TITLES = {"mrr": "MRR", **{f"hits@{most}": f"Hits@{most}" for most in HITS}}


@dataclass(frozen=True)
class Cell:
    """A metric of a row for one number of references."""

    mean: float
    deviation: float | None  # standard deviation over seeds and draws, None for a single evaluation
    interval: tuple[float, float]  # of the mean, over relations and queries
    best: bool = False  # of all rows
    worse: bool = False  # significantly below the best, all rows counted


@dataclass(frozen=True)
class Difference:
    """How two rows differ in a metric, on the same queries."""

    shots: int
    metric: str
    first: str
    second: str
    difference: float  # first - second
    interval: tuple[float, float]
    p_value: float


@dataclass(frozen=True)
class Line:
    """A row with its metrics, and how its runs went."""

    row: Row
    outcomes: list[Outcome]
    cells: dict[tuple[int, str], Cell]  # by number of references and metric

    def evaluated(self, shots: int | None = None) -> list[Outcome]:
        """The runs that have metrics, or those that have metrics with so many references."""
        return [
            outcome
            for outcome in self.outcomes
            if any(shots is None or each.shots == shots for each in outcome.evaluations)
        ]

    def seconds(self, shots: int | None = None) -> float | None:
        """Of training, the mean over these runs."""
        times = [outcome.training.seconds for outcome in self.evaluated(shots)]
        return float(np.mean(times)) if times else None

    @property
    def notes(self) -> list[str]:
        """What a reader must know about its metrics."""
        found, runs = [], self.outcomes
        cut = [outcome for outcome in runs if outcome.cut and outcome.evaluations]
        if cut:
            steps = sorted(outcome.training.steps for outcome in cut)
            reach = f"step {steps[0]:,}" if steps[0] == steps[-1] else f"steps {steps[0]:,} to {steps[-1]:,}"
            found.append(f"{len(cut)} of {len(runs)} runs {CUT} at {reach}")
        if any(outcome.fixed for outcome in runs):
            found.append("its references were in training: not redrawn, and not compared")
        missing = [outcome for outcome in runs if not outcome.evaluations]
        if missing:
            reasons = {outcome.training.problem or "not done yet" for outcome in missing}
            found.append(f"{len(missing)} of {len(runs)} runs have no metrics ({'; '.join(sorted(reasons))})")
        return found


@dataclass(frozen=True)
class Comparison:
    """All rows, and the differences between them."""

    lines: list[Line]
    shots: tuple[int, ...]
    differences: list[Difference]
    about: dict[str, Any]  # the dataset, the protocol, and what it was made with

    @property
    def redrawn(self) -> bool:
        """Whether the references were drawn at random."""
        return self.about.get("draws") is not None

    def line(self, key: str) -> Line:
        """The line of a row."""
        return next(line for line in self.lines if line.row.key == key)


def compare(
    rows: Sequence[Row], outcomes: Sequence[Outcome], shots: Sequence[int], about: dict[str, Any] | None = None
) -> Comparison:
    """Make a comparison of what the runs of some rows have given."""
    own = {row.key: [outcome for outcome in outcomes if outcome.job.row.key == row.key] for row in rows}
    cells: dict[str, dict[tuple[int, str], Cell]] = {key: {} for key in own}
    differences: list[Difference] = []
    for k in shots:
        evaluations = {key: _evaluations(of_row, k) for key, of_row in own.items()}
        paired = {key: found for key, found in evaluations.items() if found}
        fixed = {key for key in paired if any(outcome.fixed for outcome in own[key])}
        for group in (set(paired) - fixed, *({key} for key in fixed)):
            if not group:
                continue
            keys = [key for key in paired if key in group]
            found, between = _compared(k, {key: paired[key] for key in keys})
            differences += between
            for key in keys:
                cells[key] |= found[key]
    lines = [Line(row, own[row.key], cells[row.key]) for row in rows]
    return Comparison(lines, tuple(shots), differences, about or {})


def _evaluations(outcomes: Sequence[Outcome], shots: int) -> list[list[Evaluation]]:
    """The evaluations of each run with so many references, one for each draw."""
    found = ([each for each in outcome.evaluations if each.shots == shots] for outcome in outcomes)
    return [of_run for of_run in found if of_run]


def _compared(
    shots: int, evaluations: dict[str, list[list[Evaluation]]]
) -> tuple[dict[str, dict[tuple[int, str], Cell]], list[Difference]]:
    """The cells of rows that were ranked on the same queries, and the differences between them."""
    columns = [(key, metric) for key in evaluations for metric in METRICS]
    weights, totals = _by_relation(evaluations)
    resampled = dict(zip(columns, resampled_means(totals, weights).T, strict=True))  # [resamples] each
    figures = {
        key: np.array([_metrics(each) for of_run in runs for each in of_run])  # [evaluations, metrics]
        for key, runs in evaluations.items()
    }
    cells: dict[str, dict[tuple[int, str], Cell]] = {key: {} for key in evaluations}
    differences = []
    for column, metric in enumerate(METRICS):
        means = {key: float(values[:, column].mean()) for key, values in figures.items()}
        best = max(means, key=lambda key: means[key])
        others = [key for key in means if key != best]
        p_values = holm([p_value(resampled[best, metric] - resampled[key, metric]) for key in others])
        worse = {key for key, p in zip(others, p_values, strict=True) if p < 1 - CONFIDENCE}
        for key, values in figures.items():
            deviation = float(values[:, column].std(ddof=1)) if len(values) > 1 else None
            of_mean = interval(resampled[key, metric])
            cells[key][shots, metric] = Cell(
                means[key], deviation, of_mean, key == best and len(means) > 1, key in worse
            )
        for first, second in combinations(means, 2):
            apart = resampled[first, metric] - resampled[second, metric]
            difference = means[first] - means[second]
            differences.append(Difference(shots, metric, first, second, difference, interval(apart), p_value(apart)))
    return cells, differences


def _metrics(evaluation: Evaluation) -> list[float]:
    found = metrics(Ranks.joined(ranks for _, ranks in evaluation.ranks.values()).realistic)
    return [found[metric] for metric in METRICS]


def _by_relation(evaluations: dict[str, list[list[Evaluation]]]) -> tuple[list[Floats], list[Floats]]:
    """For each relation, how often each pair was a query, and the sums of each row's metrics over those times.

    The runs of a row, which differ in their seeds, are averaged first.
    """
    first = next(iter(evaluations.values()))[0]
    weights, totals = [], []
    for relation in first[0].ranks:
        size = 1 + max(int(each.ranks[relation][0].max()) for each in first)
        weight = np.zeros(size)
        for each in first:
            weight[each.ranks[relation][0]] += 1
        total = np.zeros((size, len(evaluations), len(METRICS)))
        for column, runs in enumerate(evaluations.values()):
            for each in (each for of_run in runs for each in of_run):
                queries, ranks = each.ranks[relation]
                total[queries, column] += _per_query(ranks) / len(runs)
        asked = weight > 0
        weights.append(weight[asked])
        totals.append(total[asked].reshape(int(asked.sum()), -1))
    return weights, totals


def _per_query(ranks: Ranks) -> Floats:
    """The metrics of each query, [queries, metrics]."""
    realistic = ranks.realistic
    return np.stack([1 / realistic, *(realistic <= most for most in HITS)], axis=1)
