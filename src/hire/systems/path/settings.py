"""Settings of the path level: its network, its evidence, its training and its optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hire.optim.settings import OptimizerSettings, SelectionSettings
from hire.util.ranges import Batch, Count, Drawn, Dropout, Few, Fraction, Scale, Seed, Share, Shots, Size, Weight
from hire.util.settings import Settings

Start = Literal["pretrained", "random"]


@dataclass(frozen=True)
class PathModelSettings(Settings):
    """The architecture."""

    channels: Size = 16  # of a message
    edge_width: Size = 32  # hidden units that turn the features of an edge type into weights
    profile_channels: Size = 8  # of what the edge types at a tail say
    readout_width: Size = 32  # hidden units of the read-out
    dropout: Dropout = 0.1  # in the read-out
    relation_dropout: Share = 0.1  # share of relations that a training step does not see
    members: Few = 3  # networks whose scores are averaged
    message_scale: Scale = 10.0  # of the sum of messages, before it is compressed
    degree_scale: Scale = 5.0  # turns the feature "degree" back into a logarithm


@dataclass(frozen=True)
class EvidenceSettings(Settings):
    """What of the graph is walked, and how it is described."""

    train_facts: bool = True  # the facts of train tasks are evidence; without them, the background graph alone is
    max_same_name: Few = 5  # entities with the same name whose facts count for each other; 1 for none
    max_fan_out: Count = 300  # edges of one type that are walked from a node; of more, a fixed sample
    max_degree: Count = 1_000  # a node with more edges is reached, but not passed by the middle hop of three
    sample: Count = 200_000  # nodes of a large graph from which co-occurrence is counted
    sharpness: Weight = 6.0  # of the weights of similar relations
    least_popularity: Fraction = 1e-5  # of an entity as a tail, before the logarithm
    similarity_scale: Scale = 3.0  # of the features of an edge type that lie between 0 and 1
    log_scale: Scale = 5.0  # by which logarithms of degrees and popularity are divided


@dataclass(frozen=True)
class PathTrainingSettings(Settings):
    """What the path level is trained with."""

    start: Start = "pretrained"  # the weights that ship with HiRe, or `random`
    steps: Count = 800  # at most
    epochs: Scale = 1.0  # over all facts as queries, at most: a small graph needs fewer steps
    tasks: Batch = 4  # in a step
    queries: Batch = 16  # of a task
    shots: tuple[Shots, ...] = (1, 1, 2, 3, 5, 5)  # each task draws one of them
    train_share: Share = 0.3  # of the tasks, those that are train relations; the others are background relations
    candidates: Batch = 3_000  # of a task, from which negatives are drawn
    hard_negatives: Drawn = 40  # of a query: near the head, popular, or a reference tail
    random_negatives: Drawn = 40  # of a query, which stand for all other candidates
    seed: Seed = 0  # of initial weights and tasks


def _optimizer() -> OptimizerSettings:
    return OptimizerSettings(
        learning_rate=3e-3, final_rate=0.01, warm_up=30, weight_decay=1e-2, ema=100.0, ema_warm_up=10, clip=1.0
    )


@dataclass(frozen=True)
class PathSettings(Settings):
    """All settings of the path level."""

    model: PathModelSettings = field(default_factory=PathModelSettings)
    evidence: EvidenceSettings = field(default_factory=EvidenceSettings)
    training: PathTrainingSettings = field(default_factory=PathTrainingSettings)
    optimizer: OptimizerSettings = field(default_factory=_optimizer)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
