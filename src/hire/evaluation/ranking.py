"""How well a system ranks: filtered ranks of true tails among candidates, and their metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset, Task
from hire.errors import HireError
from hire.progress import track
from hire.systems.base import FewShotSystem, Support
from hire.util.arrays import IntArray, positions_in
from hire.util.processes import spread
from hire.util.randomness import random_stream

RANKS = ("realistic", "optimistic", "pessimistic")
HITS = (10, 5, 1)
SCORES_AT_ONCE = 1 << 22  # bounds the memory for ranking among all entities
RESAMPLES = 1_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ranks:
    """The ranks of the true tails of some queries; ties count for the true tail, against it, or evenly."""

    optimistic: NDArray[np.int64]  # [queries]
    pessimistic: NDArray[np.int64]  # [queries]

    @property
    def realistic(self) -> NDArray[np.float64]:
        """The mean rank over all orders of tied candidates."""
        return (self.optimistic + self.pessimistic) / 2

    @classmethod
    def joined(cls, parts: Iterable[Ranks]) -> Ranks:
        """The ranks of several parts, concatenated."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("optimistic", "pessimistic")))


def rank(scores: NDArray[np.float32], true: IntArray, filtered_rows: IntArray, filtered_columns: IntArray) -> Ranks:
    """Rank the true column of each row of scores [queries, candidates], other true tails filtered out."""
    if np.isnan(scores).any():
        raise HireError("the system gives scores that are not numbers", remedy="train it again with a smaller step")
    rows = np.arange(len(scores))
    of_true = scores[rows, true].copy()
    scores[filtered_rows, filtered_columns] = -np.inf
    scores[rows, true] = -np.inf
    better = (scores > of_true[:, None]).sum(axis=1)
    tied = (scores == of_true[:, None]).sum(axis=1)
    # If the true score itself is -inf, filtered tails seem to be tied with it.
    removed = np.bincount(filtered_rows, minlength=len(scores)) + 1
    tied -= np.where(np.isneginf(of_true), removed, 0)
    return Ranks(better + 1, better + tied + 1)


def rank_task(
    system: FewShotSystem, dataset: FewShotDataset, task: Task, shots: int, *, among_all: bool = False
) -> Ranks:
    """The ranks of a task's queries: all pairs but the first `shots`, which are the references."""
    everything = np.arange(len(dataset.graph.entities))
    candidates = everything if among_all or task.candidates is None else np.sort(task.candidates)
    among = None if candidates is everything else candidates
    state = system.adapt(Support(np.asarray(task.pairs[:shots]), among, relation=task.relation))
    return rank_queries(system, dataset, task.relation, state, np.asarray(task.pairs[shots:]), candidates)


def rank_queries(
    system: FewShotSystem, dataset: FewShotDataset, relation: int, state: Any, queries: IntArray, candidates: IntArray
) -> Ranks:
    """The ranks of queries [n, 2] of a relation among sorted candidates, given the system's state for it."""
    true = np.searchsorted(candidates, queries[:, 1])
    at_once = max(1, SCORES_AT_ONCE // len(candidates))
    parts = []
    for start in range(0, len(queries), at_once):
        part = slice(start, start + at_once)
        scores = system.score_many(state, queries[part, 0], candidates).numpy()
        rows, tails = dataset.facts.all_tails(queries[part, 0], relation)
        columns = positions_in(candidates, tails)
        others = (columns >= 0) & (tails != queries[part, 1][rows])
        parts.append(rank(scores, true[part], rows[others], columns[others]))
    return Ranks.joined(parts)


def _tasks(dataset: FewShotDataset, split: str, shots: int) -> list[Task]:
    tasks = dataset.split(split, shots)
    if not tasks:
        remedy = "hire data build makes a dataset with tasks from a graph"
        raise HireError(f"has no {split} tasks to rank", file=dataset.name, remedy=remedy)
    return tasks


def rank_split(
    system: FewShotSystem,
    dataset: FewShotDataset,
    split: str,
    shots: int,
    *,
    draw: int | None = None,
    among_all: bool = False,
    seed: int = 0,
) -> dict[str, tuple[IntArray, Ranks]]:
    """For each task of a split, which of its pairs are queries, and their ranks.

    The references are the first pairs, or the ones of a draw, which depends on the seed and its number alone.
    """
    generator = None if draw is None else random_stream(seed, "references", draw)
    tasks, sizes = _tasks(dataset, split, shots), []
    orders = [
        np.arange(len(task.pairs)) if generator is None else generator.permutation(len(task.pairs)) for task in tasks
    ]
    for task in tasks:
        candidates = len(dataset.graph.entities) if among_all or task.candidates is None else len(task.candidates)
        sizes.append(float(len(task.pairs) * candidates))

    def ranked(number: int) -> list[NDArray[Any]]:
        task, order = tasks[number], orders[number]
        ordered = task if generator is None else replace(task, pairs=task.pairs[order])
        found = rank_task(system, dataset, ordered, shots, among_all=among_all)
        return [found.optimistic, found.pessimistic]

    ranks = [Ranks(*of_task) for of_task in spread(ranked, sizes)]
    return {task.name: (order[shots:], found) for task, order, found in zip(tasks, orders, ranks, strict=True)}


def evaluate(
    system: FewShotSystem, dataset: FewShotDataset, split: str, shots: int, *, among_all: bool = False, seed: int = 0
) -> dict[str, Any]:
    """All metrics of a split as plain data: for each treatment of ties with confidence intervals, and per relation."""
    of_tasks = rank_split(system, dataset, split, shots, among_all=among_all)
    ranks = {name: of_task for name, (_, of_task) in of_tasks.items()}
    everything = Ranks.joined(ranks.values())
    return {
        "split": split,
        "shots": shots,
        "queries": len(everything.optimistic),
        "candidates": "all" if among_all else "task",
        **{ranking: metrics(getattr(everything, ranking), seed) for ranking in RANKS},
        "relations": {
            name: {"queries": len(of_task.optimistic), **metrics(of_task.realistic)} for name, of_task in ranks.items()
        },
    }


def evaluate_draws(
    system: FewShotSystem,
    dataset: FewShotDataset,
    split: str,
    shots: int,
    draws: int,
    *,
    among_all: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The metrics of realistic ranks with the references of each task drawn at random, several times.

    The metrics of each draw, their mean and their sample standard deviation, as plain data.
    """
    of_draws = []
    with track("Drawing references", draws) as advance:
        for draw in range(draws):
            of_tasks = rank_split(system, dataset, split, shots, draw=draw, among_all=among_all, seed=seed)
            of_draws.append(metrics(Ranks.joined(ranks for _, ranks in of_tasks.values()).realistic))
            advance(1)
    values = np.array([list(found.values()) for found in of_draws])  # [draws, metrics]
    spread = values.std(axis=0, ddof=1) if draws > 1 else np.zeros(values.shape[1])
    return {
        "split": split,
        "shots": shots,
        "candidates": "all" if among_all else "task",
        "seed": seed,
        "mean": dict(zip(of_draws[0], values.mean(axis=0).tolist(), strict=True)),
        "deviation": dict(zip(of_draws[0], spread.tolist(), strict=True)),
        "draws": of_draws,
    }


def metrics(ranks: NDArray[Any], seed: int | None = None) -> dict[str, Any]:
    """Mean reciprocal rank and hits; with a seed, also bootstrap intervals over the queries."""
    values = np.stack([1 / ranks, *(ranks <= most for most in HITS)], axis=1)  # [queries, metrics]
    names = ["mrr", *(f"hits@{most}" for most in HITS)]
    found: dict[str, Any] = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
    if seed is not None:
        means = _resamples(len(ranks), seed) @ values / len(ranks)  # [resamples, metrics]
        ends = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)  # [2, metrics]
        found |= {f"{name}_interval": ends[:, i].tolist() for i, name in enumerate(names)}
    return found


@lru_cache(maxsize=1)
def _resamples(count: int, seed: int) -> NDArray[np.float64]:
    """How often each of `count` queries is in each resample, [resamples, count]."""
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    drawn += np.arange(RESAMPLES)[:, None] * count
    return np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
