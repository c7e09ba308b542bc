"""Settings that the systems of the literature share; the defaults are the recipe `common`, as in the preset `fast`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.optim.settings import OptimizerSettings, SelectionSettings
from hire.sampling.episodes import Regime
from hire.sampling.task_pool import TaskShares
from hire.systems.episodic.losses import LossName
from hire.util.ranges import Batch, Count, Drawn, Scale, Seed, Share, Shots, Size, Weight
from hire.util.settings import Settings


def check_heads(width: int, heads: int) -> None:
    """Attention gives each of its heads an equal part of the vectors."""
    if width % heads:
        raise HireError(
            f"vectors of {width} numbers cannot be split evenly among {heads} attention heads",
            remedy="choose another number of heads, or another dimension",
        )


@dataclass(frozen=True)
class EpisodicModelSettings(Settings):
    """The size of a model, and its loss; a system adds what its own equations need."""

    dimension: Size = 100  # of entities and relations
    loss: LossName = "softmax"  # over shared negatives, or the margin of the literature
    margin: Weight = 1.0  # for the margin loss
    temperature: Scale = 8.0  # factor of scores before the softmax; learned from here
    full_negatives: Batch = 128  # candidates that each count fully in the softmax; for more of them see crowding
    crowding: Share = 0.5  # C > full_negatives candidates count as full_negatives * (C / full_negatives) ** crowding


@dataclass(frozen=True)
class EpisodeSettings(Settings):
    """What a system is trained with; the defaults are those of the preset `fast`."""

    steps: Count = 3_000  # of training
    shots: tuple[Shots, ...] = (1, 1, 3, 5, 5)  # each step draws one of them
    regime: Regime = "in-train"  # or `tasks`, the train relations alone
    batches: Literal["pooled", "episodes"] = "pooled"  # a pool with several kinds of tasks, or relations drawn evenly
    min_facts: Count = 10  # background relations with fewer serve as no task
    shares: TaskShares = field(default_factory=TaskShares)  # of the pool
    tasks: Batch = 32  # in a step
    queries: Batch = 48  # of a task
    negatives: Batch = 128  # shared by the queries of a task; of each query with `episodes`
    inner_negatives: Drawn = 32  # the first of the negatives, used for the references
    initial: Literal["pretrained", "random"] = "pretrained"  # where the embeddings start
    embedding_norm: Scale | None = 1.5  # root mean square norm to which the initial embeddings are scaled
    seed: Seed = 0  # of initial weights, tasks, negatives and contexts


@dataclass(frozen=True)
class EpisodicSettings(Settings):
    """All settings of a system; a system replaces the model section by its own."""

    model: EpisodicModelSettings = field(default_factory=EpisodicModelSettings)
    training: EpisodeSettings = field(default_factory=EpisodeSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(ema=0.05, clip=5.0))
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(evaluate_every=500))


@dataclass(frozen=True)
class PairwiseTrainingSettings(EpisodeSettings):
    """What a system is trained with if it computes every pair of a head and a tail: fewer of them in a step."""

    queries: Batch = 6  # of a task
    negatives: Batch = 32  # shared by the queries of a task; of each query with `episodes`
    inner_negatives: Drawn = 0  # none: references are not contrasted with any


@dataclass(frozen=True)
class PairwiseSettings(EpisodicSettings):
    """All settings of such a system."""

    training: PairwiseTrainingSettings = field(default_factory=PairwiseTrainingSettings)
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(evaluate_every=1_000))
