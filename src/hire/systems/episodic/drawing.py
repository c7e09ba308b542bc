"""What is drawn for a system: the episodes of a step, and the negatives that references are refined against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings
from hire.optim.storage import Start
from hire.sampling.episodes import EpisodeBatch, EpisodeSampler
from hire.sampling.task_pool import TaskPool
from hire.systems.episodic.settings import EpisodeSettings
from hire.util.arrays import IntArray
from hire.util.randomness import random_stream
from hire.util.tensors import blocks_of


class Draw(NamedTuple):
    """What draws the episodes of a step, from its number and that of shots."""

    episodes: Callable[[int, int, slice], EpisodeBatch]  # some of the tasks
    references: Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]]  # relations and pairs of all tasks


def episodes_of(dataset: FewShotDataset, settings: EpisodeSettings) -> Draw:
    """What draws the episodes of a step."""
    return _pooled(dataset, settings) if settings.batches == "pooled" else _episodes(dataset, settings)


def _pooled(dataset: FewShotDataset, settings: EpisodeSettings) -> Draw:
    min_facts = max(settings.min_facts, max(settings.shots) + 1)
    pool = TaskPool(dataset, settings.regime, settings.shares, min_facts=min_facts)

    sizes = {"tasks": settings.tasks, "queries": settings.queries}
    drawn = {"negatives": settings.negatives, "inner_negatives": settings.inner_negatives}
    return Draw(
        lambda step, shots, own: pool.batch(settings.seed, step, shots=shots, **sizes, **drawn, own=own),
        lambda step, shots: pool.references(settings.seed, step, shots=shots, **sizes),
    )


def _episodes(dataset: FewShotDataset, settings: EpisodeSettings) -> Draw:
    samplers = {
        shots: EpisodeSampler(
            dataset,
            shots=shots,
            queries=settings.queries,
            negatives=settings.negatives,
            batch_size=settings.tasks,
            regime=settings.regime,
            min_facts=settings.min_facts,
            seed=settings.seed,
        )
        for shots in settings.shots
    }

    def references(step: int, shots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole = samplers[shots].batch(step)
        return whole.relations.numpy(), whole.references.numpy()

    return Draw(lambda step, shots, own: samplers[shots].batch(step).part(own), references)


def evaluated_shots(shots: tuple[int, ...]) -> tuple[int, ...]:
    """For how many references a system that is trained with so many is evaluated on dev."""
    return (1, 3, 5) if len(set(shots)) > 1 else shots[:1]


def initial_tables(embeddings: Embeddings, dimension: int, norm: float | None) -> tuple[Start, Start]:
    """Vectors of entities and relations to start from; a norm is the root mean square one that entities get."""
    entities, relations = (part[:, :dimension] for part in (embeddings.entities, embeddings.relations))
    if norm is None:
        return Start.of(entities), Start.of(relations)
    squares = torch.cat([block.float().square().sum(dim=1) for block in blocks_of(entities)])
    scale = norm / squares.mean().sqrt()
    return Start.of(entities, scale), Start.of(relations, scale)


def first_embeddings(
    dataset: FewShotDataset, training: EpisodeSettings, dimension: int, pretrained: Callable[[], Embeddings]
) -> Embeddings:
    """The embeddings that a system starts from: pre-trained or random ones."""
    if training.initial == "pretrained":
        return pretrained()
    return random_embeddings(len(dataset.graph.entities), len(dataset.graph.relations), dimension, training.seed)


def random_embeddings(entities: int, relations: int, dimension: int, seed: int) -> Embeddings:
    """Vectors by Xavier's initialization, of each relation and each inverse as well."""
    generator = torch.Generator().manual_seed(seed)
    tables = (torch.empty(rows, dimension) for rows in (entities, 2 * relations))
    return Embeddings(*(torch.nn.init.xavier_uniform_(table, generator=generator) for table in tables))


def adaptation_negatives(seed: int, true: IntArray, size: int, candidates: IntArray | None, count: int) -> IntArray:
    """Some of the candidates, or of all `size` entities, that are not true tails, if there are any; always the same."""
    spare = min(size, count + len(true))
    drawn = random_stream(seed, "adaptation").choice(size, spare, replace=False)
    drawn = drawn if candidates is None else np.asarray(candidates)[drawn]
    others = drawn[~np.isin(drawn, true)]
    return others[:count] if len(others) else drawn[:count]
