"""Few-shot episodes: references and queries of a relation with negatives, a whole batch at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.datasets import CandidateSets, FewShotDataset, candidates_by_type
from hire.errors import HireError
from hire.graph import row_offsets
from hire.vocabulary import IntArray

Regime = Literal["tasks", "in-train"]
REDRAWS = 8  # of negatives that turn out to be true, before all candidates are looked through


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes as integers; every tensor is int64."""

    relations: Tensor  # [batch]
    references: Tensor  # [batch, shots, 2]: head, tail
    reference_negatives: Tensor  # [batch, shots, negatives]: false tails of the references' heads
    queries: Tensor  # [batch, queries, 2]
    query_negatives: Tensor  # [batch, queries, negatives]


class EpisodeSampler:
    """Draws episodes by a seed and a step's number: any batch can be drawn at any time, by any thread.

    The regime `tasks` draws from the train tasks; `in-train` from the relations of the background graph as well.
    A relation needs one triple more than there are shots. If it has fewer than shots and queries take together,
    its queries repeat; references never are among the queries.
    """

    def __init__(
        self,
        dataset: FewShotDataset,
        *,
        shots: int,
        queries: int = 3,
        negatives: int = 1,
        batch_size: int = 1024,
        regime: Regime = "tasks",
        seed: int = 0,
    ) -> None:
        if min(shots, queries, negatives, batch_size) < 1:
            raise HireError("shots, queries, negatives and the batch size must be at least 1")
        if regime not in get_args(Regime):
            raise HireError(f"unknown regime {regime!r}", remedy=f"choose from {', '.join(get_args(Regime))}")
        self.dataset = dataset
        self.shots = shots
        self.queries = queries
        self.negatives = negatives
        self.batch_size = batch_size
        self.regime = regime
        self.seed = seed
        self._collect_tasks()

    def _collect_tasks(self) -> None:
        train = self.dataset.split("train", self.shots)
        everything = np.arange(len(self.dataset.graph.entities), dtype=np.int32)
        pairs = {task.relation: task.pairs for task in train}
        candidates = {task.relation: everything if task.candidates is None else task.candidates for task in train}
        if self.regime == "in-train":
            self._add_background(pairs, candidates)
        pairs = {relation: self._with_negatives(relation, of_task) for relation, of_task in pairs.items()}
        pairs = {relation: of_task for relation, of_task in pairs.items() if len(of_task) > self.shots}
        if not pairs:
            raise HireError(
                f"no relation has {self.shots + 1} triples whose head has a false tail, too",
                file=self.dataset.name,
                remedy="ask for fewer shots, or choose other tasks",
            )
        candidates = {relation: candidates[relation] for relation in pairs}
        self.relations = np.array(list(pairs), np.int64)  # [tasks]
        self._sizes = np.array([len(of_task) for of_task in pairs.values()])
        self._offsets = np.cumsum([0, *self._sizes])
        self._pairs = np.concatenate(list(pairs.values())).astype(np.int64)
        self._pools = _Pools(list(candidates.values()))

    def _add_background(self, pairs: dict[int, IntArray], candidates: dict[int, IntArray]) -> None:
        """Every background relation with enough triples; candidates by type where types are known, else by range."""
        graph = self.dataset.graph
        order = np.argsort(graph.triples[:, 1], kind="stable")
        offsets = row_offsets(graph.triples[:, 1], len(graph.relations))
        for relation in graph.background_relations:
            of_relation = graph.triples[order[offsets[relation] : offsets[relation + 1]]][:, [0, 2]]
            if len(of_relation) > self.shots:
                tails = of_relation[:, 1]
                pairs[int(relation)] = of_relation
                candidates[int(relation)] = (
                    np.unique(tails) if graph.types is None else candidates_by_type(graph, tails)
                )

    def _with_negatives(self, relation: int, pairs: IntArray) -> IntArray:
        """The pairs whose head has at least one entity that is not a true tail."""
        return pairs[self.dataset.facts.count_tails(pairs[:, 0], relation) < len(self.dataset.graph.entities)]

    def batch(self, step: int) -> EpisodeBatch:
        """The batch of a step; the same seed and step give the same batch."""
        generator = np.random.default_rng([self.seed, step])
        tasks = generator.integers(0, len(self.relations), self.batch_size)
        chosen = self._draw_distinct(generator, self._sizes[tasks])  # [batch, shots + queries]
        pairs = self._pairs[self._offsets[tasks][:, None] + chosen]
        negatives = self._draw_negatives(generator, tasks, pairs[..., 0])
        relations, *parts = map(
            torch.from_numpy,
            (
                self.relations[tasks],
                pairs[:, : self.shots],
                negatives[:, : self.shots],
                pairs[:, self.shots :],
                negatives[:, self.shots :],
            ),
        )
        return EpisodeBatch(relations, *parts)

    def stream(self, first_step: int = 0, *, workers: int = 1) -> Iterator[EpisodeBatch]:
        """All batches from a step on, in order, drawn ahead by some threads; their number changes nothing."""
        with ThreadPoolExecutor(workers) as pool:
            ahead = deque(pool.submit(self.batch, first_step + i) for i in range(2 * workers))
            step = first_step + len(ahead)
            try:
                while True:
                    batch = ahead.popleft().result()
                    ahead.append(pool.submit(self.batch, step))
                    step += 1
                    yield batch
            finally:
                for future in ahead:
                    future.cancel()

    def _draw_distinct(self, generator: np.random.Generator, sizes: NDArray[Any]) -> NDArray[np.int64]:
        """Distinct numbers below each size, [batch, shots + queries]; the queries repeat where a size is too small."""
        count = self.shots + self.queries
        chosen = np.empty((len(sizes), count), np.int64)
        taken = np.empty((len(sizes), 0), np.int64)  # what is chosen already, sorted
        uniform = generator.random((len(sizes), count))
        for i in range(count):
            left = sizes - i
            number = (uniform[:, i] * np.maximum(left, 1)).astype(np.int64)
            for column in range(i):  # skip what is taken: the number counts only what is left
                number += number >= taken[:, column]
            # Where nothing is left, the queries begin again from the first one.
            again = self.shots + (i - self.shots) % np.maximum(sizes - self.shots, 1)
            exhausted = left <= 0
            if exhausted.any():
                number[exhausted] = chosen[exhausted, again[exhausted]]
            chosen[:, i] = number
            taken = np.sort(chosen[:, : i + 1], axis=1)
        return chosen

    def _draw_negatives(
        self, generator: np.random.Generator, tasks: NDArray[np.int64], heads: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Candidates of each task that are not a known true tail of the head: [batch, triples, negatives]."""
        shape = (*heads.shape, self.negatives)
        owner = np.broadcast_to(tasks[:, None, None], shape).ravel()
        head = np.broadcast_to(heads[..., None], shape).ravel()
        relation = self.relations[owner]
        negatives = self._pools.draw(generator, owner)
        todo = np.flatnonzero(self.dataset.facts.contain(head, relation, negatives))
        for _ in range(REDRAWS):
            if not len(todo):
                break
            negatives[todo] = self._pools.draw(generator, owner[todo])
            todo = todo[self.dataset.facts.contain(head[todo], relation[todo], negatives[todo])]
        for i in todo:
            negatives[i] = self._false_tail(generator, int(owner[i]), int(head[i]))
        return negatives.reshape(shape)

    def _false_tail(self, generator: np.random.Generator, task: int, head: int) -> int:
        """A false tail of a head for which almost every candidate is true."""
        true = self.dataset.facts.tails(head, int(self.relations[task]))
        false = np.setdiff1d(self._pools.members(task), true)
        if not len(false):
            false = np.setdiff1d(np.arange(len(self.dataset.graph.entities)), true)
        return int(generator.choice(false))


class _Pools:
    """Sets of candidates behind one another, to draw from many at once."""

    def __init__(self, sets: list[IntArray]) -> None:
        distinct = CandidateSets()
        which = np.array([distinct.number_of(members) for members in sets])
        self._all = np.concatenate(distinct.members)
        self._sizes = np.array([len(members) for members in sets])
        self._starts = distinct.offsets()[which]

    def draw(self, generator: np.random.Generator, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """One member of each owner's set."""
        within = (generator.random(len(owners)) * self._sizes[owners]).astype(np.int64)
        return np.asarray(self._all[self._starts[owners] + within], np.int64)

    def members(self, owner: int) -> IntArray:
        """All members of an owner's set."""
        return self._all[self._starts[owner] : self._starts[owner] + self._sizes[owner]]
