"""Simulated few-shot tasks over all known relations, each hidden while it is a task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.facts import Facts
from hire.errors import HireError
from hire.sampling.task_pool import TaskShares, collect_tasks, cumulative_shares
from hire.systems.path import walk_kernels
from hire.systems.path.features import ENTITY_FEATURES, ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.positions import Positions
from hire.systems.path.settings import PathTrainingSettings
from hire.systems.path.walks import TailInputs, Tails, Walks, walks
from hire.util.arrays import IntArray, positions_in
from hire.util.group import SINGLE, Share
from hire.util.randomness import random_stream

NEVER = -1e4  # a logit
MIN_QUERIES = 5  # facts that a relation needs besides the references to serve as a task
IS_TAIL, POPULARITY, DEGREE = (ENTITY_FEATURES.index(name) for name in ("is a tail", "popularity", "degree"))


class PathBatch(NamedTuple):
    """The tasks of a step; in each row of pairs, the first tail is the true one."""

    edge_features: Tensor  # [tasks, edge types, features]
    tails: TailInputs
    walks: Walks
    stands_for: Tensor  # [queries, width]: the logarithm of the number of candidates that each tail stands for


class DrawnTask(NamedTuple):
    """References, and queries with some candidates each."""

    evidence: ReferenceEvidence
    heads: IntArray  # [queries]
    tails: IntArray  # [queries, width]: the true tail, then false ones
    stands_for: NDArray[np.float32]  # [queries, width]


class Chance(NamedTuple):
    """What is drawn of a task, before any evidence is looked at."""

    references: IntArray  # [shots, 2]
    queries: IntArray  # [queries, 2]
    candidates: int  # how many there are
    pool: IntArray  # [pool]: some of them, from which negatives are chosen, sorted
    noise: NDArray[np.float64]  # [queries, pool]: added to how hard each is; minus infinity for true tails
    orders: list[NDArray[np.int64]]  # of each query: the order in which false tails that are not hard are taken


class PathTasks:
    """Draws simulated tasks, which depend only on a seed and a step."""

    def __init__(self, dataset: FewShotDataset, graph: EvidenceGraph, settings: PathTrainingSettings) -> None:
        self.graph = graph
        self.settings = settings
        shares = TaskShares(train=settings.train_share, background=1 - settings.train_share, types=0)
        min_facts = max(settings.shots) + MIN_QUERIES
        self.tasks = [task for task in collect_tasks(dataset, "in-train", shares) if len(task.pairs) >= min_facts]
        if not self.tasks:
            raise HireError(
                f"no relation has {min_facts} triples to train with",
                file=dataset.name,
                remedy="ask for fewer shots, or give a graph with more facts",
            )
        self._cumulative = cumulative_shares(np.array([task.kind for task in self.tasks]), shares)
        owners = np.repeat(np.arange(len(self.tasks)), [len(task.pairs) for task in self.tasks])
        pairs = np.concatenate([task.pairs for task in self.tasks])
        self._facts = Facts.of(np.insert(pairs, 1, owners, axis=1), graph.entity_count, len(self.tasks))

    def __len__(self) -> int:
        """The number of facts of all tasks."""
        return len(self._facts.keys)

    def batch(self, step: int, share: Share = SINGLE) -> PathBatch:
        """The batch of a step, or a share of its tasks."""
        settings = self.settings
        generator = random_stream(settings.seed, "paths", step)
        own = share.of(settings.tasks, "tasks")
        features, inputs, walked, stands_for = [], [], [], []
        for number, uniform in enumerate(generator.random(settings.tasks)[: own.stop]):
            index = min(int(np.searchsorted(self._cumulative, uniform)), len(self.tasks) - 1)
            chance = self._chance(generator, index)  # also of tasks that others compute: theirs comes before ours
            if number < own.start:
                continue
            drawn = self._drawn(index, chance)
            entities, positions = np.unique(drawn.tails, return_inverse=True)
            block = Tails.of(drawn.evidence, entities)
            features.append(torch.from_numpy(drawn.evidence.edge_features))
            inputs.append(block.inputs)
            walked.append(walks(drawn.evidence, drawn.heads, block, positions.reshape(drawn.tails.shape)))
            stands_for.append(torch.from_numpy(drawn.stands_for))
        return PathBatch(
            torch.stack(features),
            TailInputs.joined(inputs, self.graph.edge_type_count),
            Walks.joined(walked, [len(part.features) for part in inputs], self.graph.edge_type_count),
            torch.cat(stands_for),
        )

    def draw(self, generator: np.random.Generator, index: int) -> DrawnTask:
        """References, queries and negatives of the task at an index."""
        return self._drawn(index, self._chance(generator, index))

    def _chance(self, generator: np.random.Generator, index: int) -> Chance:
        """All of a task that is random; a small part of the time that the task itself takes."""
        settings, task = self.settings, self.tasks[index]
        shots = int(generator.choice(settings.shots))
        chosen = generator.permutation(len(task.pairs))[: shots + settings.queries]
        references, queries = np.asarray(task.pairs[chosen[:shots]]), np.asarray(task.pairs[chosen[shots:]])
        pool = task.candidates()
        if task.kind == "train":  # those of others are sorted
            pool = np.sort(pool)
        count = len(pool)
        if count > settings.candidates:
            some = pool[generator.integers(0, count, settings.candidates)]
            pool = np.unique(np.concatenate([some, references[:, 1]]))
        noise = 0.5 * generator.gumbel(size=(len(queries), len(pool)))
        rows, true = self._facts.all_tails(queries[:, 0], index)
        positions = positions_in(pool, true)
        known = positions >= 0
        noise[rows[known], positions[known]] = -np.inf
        false = (noise > -np.inf).sum(axis=1)  # [queries]
        orders = [generator.permutation(max(0, int(count) - settings.hard_negatives)) for count in false]
        return Chance(references, queries, count, pool, noise, orders)

    def _drawn(self, index: int, chance: Chance) -> DrawnTask:
        settings, graph = self.settings, self.graph
        task, (references, queries, count, pool, noise, orders) = self.tasks[index], chance
        evidence = ReferenceEvidence(graph, references, task.relation % graph.known_relations)
        difficulty = self._difficulty(evidence, queries[:, 0], pool)
        difficulty += noise
        hard, drawn = settings.hard_negatives, settings.random_negatives
        width = 1 + hard + drawn
        tails = np.full((len(queries), width), pool[0])
        weights = np.full((len(queries), width), NEVER, np.float32)
        tails[:, 0], weights[:, 0] = queries[:, 1], 0
        crowd = np.log(max(1.0, count / len(pool)))
        for row in range(len(queries)):
            false = np.flatnonzero(difficulty[row] > -np.inf)
            if len(false) > hard:
                false = false[np.argpartition(-difficulty[row, false], hard)]
            best, rest = false[:hard], false[hard:][orders[row]][:drawn]
            tails[row, 1 : 1 + len(best)] = pool[best]
            weights[row, 1 : 1 + len(best)] = crowd
            tails[row, 1 + hard : 1 + hard + len(rest)] = pool[rest]
            if len(rest):
                weights[row, 1 + hard : 1 + hard + len(rest)] = crowd + np.log((len(false) - hard) / len(rest))
        return DrawnTask(evidence, queries[:, 0], tails, weights)

    def _difficulty(self, evidence: ReferenceEvidence, heads: IntArray, pool: IntArray) -> NDArray[np.float64]:
        """How hard each candidate may be to tell from a true tail, [queries, pool]."""
        graph = self.graph
        position, _, _ = Positions.of(pool, graph.entity_count)  # which is sorted and distinct: as it is
        once, twice = np.zeros((2, len(heads), len(pool)), np.int32)
        near = graph.leaving(np.asarray(heads), evidence.hidden)
        nodes = graph.targets[near.ids]
        walk_kernels.count_walks(
            near.owners,
            nodes,
            graph.passable(nodes, evidence.hidden),
            graph.offsets,
            graph.edge_types,
            graph.targets,
            graph.hides(evidence.hidden),
            position,
            once,
            twice,
        )
        difficulty: NDArray[np.float64] = 2.0 * np.log1p(once) + np.log1p(twice)
        features = evidence.entity_features(pool)
        return difficulty + 3 * features[:, IS_TAIL] + 1.5 * features[:, POPULARITY] + features[:, DEGREE]
