"""Settings of the path level."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PathTrainingSettings:
    """How the path level is trained."""

    steps: int = 800  # at most
    passes: float = 1.0  # over all facts as queries, at most: a small graph needs fewer steps
    tasks: int = 4  # in a step
    queries: int = 16  # of a task
    shots: tuple[int, ...] = (1, 1, 2, 3, 5, 5)  # each task draws one of them
    train_share: float = 0.3  # of the tasks, those that are train relations; the others are background relations
    candidates: int = 3_000  # of a task, from which negatives are drawn
    hard_negatives: int = 40  # of a query: near the head, popular, or a reference tail
    random_negatives: int = 40  # of a query, which stand for all other candidates
    rate: float = 3e-3  # of AdamW
    final_rate: float = 0.01  # it falls linearly to this share
    warm_up: int = 30  # steps in which it first rises
    decay: float = 1e-2  # of the weights, in AdamW
    averaging: float = 100.0  # steps that the averaged weights reach back
    clip: float = 1.0  # largest norm of a member's gradient
    train_facts: bool = True  # the facts of train tasks are evidence; without them, the background graph alone is
    seed: int = 0


@dataclass(frozen=True)
class PathSettings:
    """The architecture of the path level."""

    channels: int = 16  # of a message
    kind_width: int = 32  # hidden units that turn the features of a kind of edge into weights
    profile_channels: int = 8  # of what the kinds of edges at a tail say
    readout_width: int = 32
    dropout: float = 0.1
    kind_dropout: float = 0.1  # share of relations that a training step does not see
    members: int = 3  # networks whose scores are averaged
    hire_weight: float = 0.3  # how much HiRe's logits count beside theirs
