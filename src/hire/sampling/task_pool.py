"""Training tasks beyond the train split, and batches of them with negatives shared by all pairs of a task.

Besides the train tasks there are, optionally, the background relations (`in-train`), the inverse of each relation, and
all facts between two entity types: a model that has seen more kinds of tasks generalizes better to a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.data.facts import Facts
from hire.errors import HireError
from hire.sampling.episodes import EpisodeBatch, Regime, background_pairs, chosen_distinct
from hire.util.arrays import IntArray
from hire.util.randomness import random_stream
from hire.util.ranges import Share
from hire.util.settings import Settings

EVERYTHING = slice(None)
MIN_TYPE_PAIR = 20  # facts, and entities of the tail's type


class TrainingTask(NamedTuple):
    """Pairs to rank above other candidates."""

    kind: str  # train, background or types
    relation: int  # its id in the graph, or that of its inverse; -1 for all relations
    pairs: IntArray  # [facts, 2]
    candidates: Callable[[], IntArray]  # distinct; found when asked for, since those of all tasks may be billions


@dataclass(frozen=True)
class TaskShares(Settings):
    """How often each kind of task is drawn; the share of a kind that a dataset lacks goes to the others."""

    train: Share = 0.4  # of train relations
    background: Share = 0.3  # of background relations
    types: Share = 0.3  # of all facts between two types of entities
    inverse: bool = True  # whether the inverse of each is a task, too

    def conflict(self) -> str | None:
        """Something must be drawn."""
        return None if self.train + self.background + self.types else "all shares of tasks are 0"


class TaskPool:
    """Training tasks of a dataset; batches depend only on a seed and a step."""

    def __init__(self, dataset: FewShotDataset, regime: Regime, shares: TaskShares, *, min_facts: int = 10) -> None:
        self.dataset = dataset
        tasks = [task for task in collect_tasks(dataset, regime, shares) if len(task.pairs) >= min_facts]
        if not tasks:
            raise HireError(
                f"no relation has the {min_facts} triples needed for training",
                file=dataset.name,
                remedy="use fewer shots, or a graph with more facts",
            )
        self.kinds = np.array([task.kind for task in tasks])
        self._relations = np.array([task.relation for task in tasks])
        self._sizes = np.array([len(task.pairs) for task in tasks])
        self._offsets = np.cumsum([0, *self._sizes])
        self._pairs = np.concatenate([task.pairs for task in tasks]).astype(np.int64)
        candidates = [task.candidates().astype(np.int32, copy=False) for task in tasks]
        self._candidates = np.concatenate(candidates)
        self._candidate_counts = np.array([len(of_task) for of_task in candidates])
        self._candidate_starts = np.cumsum(self._candidate_counts) - self._candidate_counts
        owners = np.repeat(np.arange(len(tasks)), self._sizes)
        self._facts = Facts.of(np.insert(self._pairs, 1, owners, axis=1), len(dataset.graph.entities), len(tasks))
        self._cumulative = cumulative_shares(self.kinds, shares)

    def __len__(self) -> int:
        return len(self.kinds)

    def batch(
        self,
        seed: int,
        step: int,
        *,
        tasks: int,
        shots: int,
        queries: int,
        negatives: int,
        inner_negatives: int = 0,
        own: slice = EVERYTHING,
    ) -> EpisodeBatch:
        """The batch of a step; the negatives of the references are the first ones of the queries.

        Of all that is drawn for it, only `own` tasks are looked up.
        """
        generator = random_stream(seed, "episodes", step)
        chosen = np.minimum(np.searchsorted(self._cumulative, generator.random(tasks)), len(self) - 1)[own]
        drawn_pairs = chosen_distinct(generator.random((tasks, shots + queries))[own], self._sizes[chosen], shots)
        pairs = self._pairs[self._offsets[chosen][:, None] + drawn_pairs]  # [tasks, shots + queries, 2]
        counts = self._candidate_counts[chosen]
        drawn = (generator.random((tasks, negatives))[own] * counts[:, None]).astype(np.int64)
        false_tails = self._candidates[self._candidate_starts[chosen][:, None] + drawn].astype(np.int64)
        is_false = ~self._true_among(chosen, pairs[..., 0], false_tails)  # [tasks, shots + queries, negatives]
        return EpisodeBatch(
            *map(
                torch.from_numpy,
                (
                    self._relations[chosen],
                    pairs[:, :shots],
                    false_tails[:, :inner_negatives],
                    pairs[:, shots:],
                    false_tails,
                    is_false[:, :shots, :inner_negatives],
                    is_false[:, shots:],
                    counts,
                ),
            )
        )

    def references(
        self, seed: int, step: int, *, tasks: int, shots: int, queries: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The relations [tasks] and references [tasks, shots, 2] of the batch of a step."""
        generator = random_stream(seed, "episodes", step)
        chosen = np.minimum(np.searchsorted(self._cumulative, generator.random(tasks)), len(self) - 1)
        uniform = generator.random((tasks, shots + queries))[:, :shots]
        drawn = chosen_distinct(uniform, self._sizes[chosen], shots)
        return self._relations[chosen], self._pairs[self._offsets[chosen][:, None] + drawn]

    def _true_among(
        self, chosen: NDArray[np.int64], heads: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which candidates [tasks, c] are true tails of the heads [tasks, h]: [tasks, h, c].

        A head has few true tails among many candidates, so the tails are looked up in the candidates.
        """
        tasks, width = candidates.shape
        rows, tails = self._facts.all_tails(heads.ravel(), np.repeat(chosen, heads.shape[1]))
        owners = rows // heads.shape[1]
        order = np.argsort(candidates, axis=1)
        keys = np.take_along_axis(candidates, order, axis=1) + np.arange(tasks)[:, None] * len(
            self.dataset.graph.entities
        )
        wanted = tails + owners * len(self.dataset.graph.entities)
        true = np.zeros((heads.size, width), bool)
        start = np.searchsorted(keys.ravel(), wanted)
        end = np.searchsorted(keys.ravel(), wanted, side="right")
        for repeat in range(int((end - start).max(initial=0))):  # a candidate may be drawn more than once
            hit = start + repeat < end
            columns = order.ravel()[(start + repeat)[hit]]
            true[rows[hit], columns] = True
        return true.reshape(*heads.shape, width)


def collect_tasks(dataset: FewShotDataset, regime: Regime, shares: TaskShares) -> list[TrainingTask]:
    """All tasks of a dataset: the train tasks and, if `in-train`, background relations and pairs of types."""
    graph = dataset.graph
    everything = np.arange(len(graph.entities), dtype=np.int32)

    def by_type(tails: IntArray) -> Callable[[], IntArray]:
        if graph.types is None:
            return lambda: everything
        types = graph.types.of_entities(tails)
        return partial(graph.types.entities_with, types) if len(types) else partial(np.unique, tails)

    def both_ways(kind: str, relation: int, pairs: IntArray, candidates: Callable[[], IntArray]) -> list[TrainingTask]:
        forward = TrainingTask(kind, relation, pairs, candidates)
        if not shares.inverse:
            return [forward]
        return [forward, TrainingTask(kind, relation + len(graph.relations), pairs[:, ::-1], by_type(pairs[:, 0]))]

    tasks = []
    for task in dataset.split("train"):
        listed = everything if task.candidates is None else task.candidates
        tasks += both_ways("train", task.relation, task.pairs, partial(np.asarray, listed))
    if regime == "in-train":
        for relation, pairs in background_pairs(graph).items():
            tasks += both_ways("background", relation, pairs, by_type(pairs[:, 1]))
        tasks += _between_types(dataset) if shares.types else []
    return tasks


def cumulative_shares(kinds: NDArray[np.str_], shares: TaskShares) -> NDArray[np.float64]:
    """Cumulative probabilities of the tasks; tasks of the same kind are equally likely."""
    weights = np.zeros(len(kinds))
    for kind in set(kinds):
        weights[kinds == kind] = getattr(shares, kind) / (kinds == kind).sum()
    return np.cumsum(weights / weights.sum())


def _between_types(dataset: FewShotDataset) -> list[TrainingTask]:
    """All facts between any two types, regardless of the relation, in both directions."""
    types = dataset.graph.types
    if types is None:
        return []
    train = [task.pairs for task in dataset.split("train")]
    pairs = np.concatenate([dataset.graph.triples[:, [0, 2]], *train]).astype(np.int64)
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    has_type = np.diff(types.offsets) > 0
    pairs = pairs[has_type[pairs].all(axis=1)]
    first_type = types.members[np.minimum(types.offsets[:-1], len(types.members) - 1)]  # of each entity
    type_pairs = first_type[pairs[:, 0]].astype(np.int64) * len(types.names) + first_type[pairs[:, 1]]
    order = np.argsort(type_pairs, kind="stable")
    present, starts, counts = np.unique(type_pairs[order], return_index=True, return_counts=True)
    sizes = np.bincount(types.members, minlength=len(types.names))
    found = []
    for i in np.flatnonzero(counts >= MIN_TYPE_PAIR):
        tail_type = present[i] % len(types.names)
        if sizes[tail_type] >= MIN_TYPE_PAIR:
            of_pair = pairs[order[starts[i] : starts[i] + counts[i]]]
            found.append(TrainingTask("types", -1, of_pair, partial(types.entities_with, np.array([tail_type]))))
    return found
