"""Few-shot episodes: references and queries of a relation with negatives, drawn as a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.sampling.ahead import drawn_ahead
from hire.util.arrays import IntArray, row_offsets
from hire.util.randomness import random_stream

Regime = Literal["tasks", "in-train"]
REDRAWS = 8  # of negatives that turn out to be true, before all candidates are enumerated


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes as int64 ids.

    Negatives are false tails of one pair each, or they are shared by all pairs of an episode, [batch, negatives], and a
    mask says for which pairs each is false.
    """

    relations: Tensor  # [batch]
    references: Tensor  # [batch, shots, 2]: head, tail
    reference_negatives: Tensor  # [batch, shots, negatives], or [batch, negatives]
    queries: Tensor  # [batch, queries, 2]
    query_negatives: Tensor  # [batch, queries, negatives], or [batch, negatives]
    reference_false: Tensor | None = None  # [batch, shots, negatives] bool, for shared negatives
    query_false: Tensor | None = None  # [batch, queries, negatives] bool
    candidates: Tensor | None = None  # [batch]: number of candidates that shared negatives were drawn from

    def part(self, own: slice | Tensor) -> EpisodeBatch:
        """Some of the episodes."""
        parts: dict[str, Any] = {name: None if part is None else part[own] for name, part in vars(self).items()}
        return EpisodeBatch(**parts)


class EpisodeSampler:
    """Draws episodes from a seed and a step: any batch can be drawn at any time, by any thread.

    The regime `tasks` draws from the train tasks, `in-train` from the relations of the background graph as well. All
    relations are equally likely. Each needs one more triple than there are shots: a train task with fewer is an error,
    a background relation with fewer, or with fewer than `min_facts`, is skipped. If a relation has fewer triples than
    shots and queries together, the queries repeat; references are never among them.
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
        min_facts: int = 1,
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
        self.min_facts = min_facts
        self.seed = seed
        self._collect_tasks()

    def _collect_tasks(self) -> None:
        train = self.dataset.split("train", self.shots)
        pairs = {task.relation: task.pairs for task in train}
        if self.regime == "in-train":
            background = background_pairs(self.dataset.graph)
            pairs |= {relation: of_task for relation, of_task in background.items() if len(of_task) >= self.min_facts}
        pairs = self._with_negatives(pairs)
        pairs = {relation: of_task for relation, of_task in pairs.items() if len(of_task) > self.shots}
        if not pairs:
            raise HireError(
                f"no relation has {self.shots + 1} triples whose heads have a false tail",
                file=self.dataset.name,
                remedy="use fewer shots, or choose other tasks",
            )
        self.relations = np.array(list(pairs), np.int64)  # [tasks]
        self._sizes = np.array([len(of_task) for of_task in pairs.values()])
        self._offsets = np.cumsum([0, *self._sizes])
        self._pairs = np.concatenate(list(pairs.values())).astype(np.int64)
        self._pools = _Pools(self.dataset, pairs, {task.relation: task.candidates for task in train})
        self._facts = self.dataset.facts.of_relations(self.relations)

    def _with_negatives(self, pairs: dict[int, IntArray]) -> dict[int, IntArray]:
        """The pairs whose head has at least one entity that is not a true tail."""
        heads, relations = self.dataset.facts.saturated_heads()
        for relation in set(relations.tolist()) & pairs.keys():
            saturated = heads[relations == relation]
            pairs[relation] = pairs[relation][~np.isin(pairs[relation][:, 0], saturated)]
        return pairs

    def batch(self, step: int) -> EpisodeBatch:
        """The batch of a step; the same seed and step give the same batch."""
        generator = random_stream(self.seed, "episodes", step)
        tasks = generator.integers(0, len(self.relations), self.batch_size)
        chosen = draw_distinct(generator, self._sizes[tasks], self.shots, self.queries)  # [batch, shots + queries]
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
        """All batches from a step on, in order; the number of threads does not change them."""
        return drawn_ahead(self.batch, first_step, workers=workers)

    def _draw_negatives(
        self, generator: np.random.Generator, tasks: NDArray[np.int64], heads: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Candidates of each task that are not known tails of the head: [batch, triples, negatives]."""
        shape = (*heads.shape, self.negatives)
        owner = np.broadcast_to(tasks[:, None, None], shape).ravel()
        head = np.broadcast_to(heads[..., None], shape).ravel()
        relation = self.relations[owner]
        negatives = self._pools.draw(generator, owner)
        todo = np.flatnonzero(self._facts.contain(head, relation, negatives))
        for _ in range(REDRAWS):
            if not len(todo):
                break
            negatives[todo] = self._pools.draw(generator, owner[todo])
            todo = todo[self._facts.contain(head[todo], relation[todo], negatives[todo])]
        for i in todo:
            negatives[i] = self._false_tail(generator, int(owner[i]), int(head[i]))
        return negatives.reshape(shape)

    def _false_tail(self, generator: np.random.Generator, task: int, head: int) -> int:
        """A false tail of a head for which almost every candidate is true."""
        true = self._facts.tails(head, int(self.relations[task]))
        false = np.setdiff1d(self._pools.members(task), true)
        if not len(false):
            false = np.setdiff1d(np.arange(len(self.dataset.graph.entities)), true)
        return int(generator.choice(false))


def background_pairs(graph: KnowledgeGraph) -> dict[int, IntArray]:
    """The pairs [n, 2] of each relation of a graph, in file order."""
    order = np.argsort(graph.triples[:, 1], kind="stable")
    offsets = row_offsets(graph.triples[:, 1], len(graph.relations))
    return {
        int(relation): graph.triples[order[offsets[relation] : offsets[relation + 1]]][:, [0, 2]]
        for relation in graph.background_relations
    }


def draw_distinct(generator: np.random.Generator, sizes: NDArray[Any], shots: int, queries: int) -> NDArray[np.int64]:
    """Distinct indices below each size, [sizes, shots + queries]; queries repeat if a size is too small."""
    return chosen_distinct(generator.random((len(sizes), shots + queries)), sizes, shots)


def chosen_distinct(uniform: NDArray[np.float64], sizes: NDArray[Any], shots: int) -> NDArray[np.int64]:
    """The same from random numbers [sizes, shots + queries]; of fewer columns, the first ones of the result."""
    count = uniform.shape[1]
    chosen = np.empty((len(sizes), count), np.int64)
    taken = np.empty((len(sizes), 0), np.int64)  # what is already chosen, sorted
    for i in range(count):
        left = sizes - i
        index = (uniform[:, i] * np.maximum(left, 1)).astype(np.int64)
        # Skip what is taken: the index counts only what is left, and of that, taken[j] - j lies before taken[j].
        index += (taken - np.arange(i) <= index[:, None]).sum(axis=1)
        # If nothing is left, repeat the queries from the first one.
        exhausted = np.flatnonzero(left <= 0)
        again = shots + (i - shots) % (sizes[exhausted] - shots)
        index[exhausted] = chosen[exhausted, again]
        chosen[:, i] = index
        taken = np.sort(chosen[:, : i + 1], axis=1)
    return chosen


class _Pools:
    """The candidates of each relation, to draw for many at once.

    A pool is a union of blocks of entities: a task has one block, its candidates; a background relation has one block
    for each type of its tails, or its tails themselves if there are no types. So the entities of a type are stored
    once, however many relations have it. (An entity with several of the types is drawn more often.)
    """

    def __init__(
        self, dataset: FewShotDataset, pairs: dict[int, IntArray], candidates: dict[int, IntArray | None]
    ) -> None:
        types = dataset.graph.types
        offsets, entities = (np.zeros(1, np.int64), np.zeros(0, np.int32)) if types is None else types.by_type
        blocks = [entities, np.arange(len(dataset.graph.entities), dtype=np.int32)]
        starts, sizes = list(offsets[:-1]), list(np.diff(offsets))  # of each block; types come first
        starts.append(len(entities))
        sizes.append(len(blocks[1]))
        everything = len(starts) - 1
        pools: list[IntArray] = []
        for relation, of_relation in pairs.items():
            members = candidates[relation] if relation in candidates else np.unique(of_relation[:, 1])
            by_type = np.zeros(0, np.int64)
            if relation not in candidates and types is not None and members is not None:
                by_type = types.of_entities(members)
            if len(by_type):
                pools.append(by_type)
            elif members is None:
                pools.append(np.array([everything]))
            else:
                pools.append(np.array([len(starts)]))
                starts.append(starts[-1] + sizes[-1])
                sizes.append(len(members))
                blocks.append(members)
        self._entities = np.concatenate(blocks).astype(np.int32)
        all_blocks = np.concatenate(pools)  # of all pools, concatenated
        block_sizes = np.array(sizes)[all_blocks]
        self._block_starts = np.array(starts)[all_blocks]
        self._ends = np.cumsum(block_sizes)  # counts entities over all pools
        self._firsts = self._ends - block_sizes
        lengths = np.array([len(pool) for pool in pools])
        last_blocks = np.cumsum(lengths) - 1
        self._starts = self._firsts[last_blocks - lengths + 1]
        self._sizes = self._ends[last_blocks] - self._starts

    def draw(self, generator: np.random.Generator, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """One random member of each owner's pool."""
        positions = self._starts[owners] + (generator.random(len(owners)) * self._sizes[owners]).astype(np.int64)
        return self._at(positions)

    def members(self, owner: int) -> NDArray[np.int64]:
        """All members of an owner's pool."""
        return np.unique(self._at(np.arange(self._starts[owner], self._starts[owner] + self._sizes[owner])))

    def _at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        blocks = np.searchsorted(self._ends, positions, side="right")
        return np.asarray(self._entities[self._block_starts[blocks] + positions - self._firsts[blocks]], np.int64)
