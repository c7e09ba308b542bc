"""HiRe's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hire.systems.hire.entity import Decoder

Loss = Literal["softmax", "margin"]


@dataclass(frozen=True)
class HireSettings:
    """The architecture, and how its losses are computed."""

    dimension: int = 100
    learner: Literal["set", "mean", "lstm"] = "set"  # MRL, and its ablations AVG and LSTM
    decoder: Decoder = "mtransd"
    loss: Loss = "softmax"
    margin: float = 1.0  # gamma of Eq. 12 and 20, for the margin loss
    temperature: float = 8.0  # what distances are multiplied with before the softmax; learned from here
    residual: bool = True  # add the gated mean of t - h to the meta relation
    learner_start: float = (
        1.0  # what the learner's last layer is multiplied with at first: with little, R is mean(t - h)
    )
    drop_path: float = 0.2
    inner_steps: int = 1  # of MAML; 0 leaves it out
    inner_rate: float = 0.1  # l_r of Eq. 13; learned for each dimension from here with the softmax loss
    inner_negatives: int = 512  # drawn from the candidates when a relation is learned after training
    full_negatives: int = 128  # up to so many candidates, each counts fully in the softmax; C of them beyond it
    crowding: float = 0.5  # count as full_negatives * (C / full_negatives) ** crowding, however many are drawn
    second_order: bool = True
    context_weight: float = 0.05  # lambda of Eq. 21; 0 leaves the context level out
    context_temperature: float = 0.1  # tau of Eq. 5
    false_contexts: int = 1  # N of Eq. 5
    context_heads: int = 1  # of the self-attention over a context
