"""Networks whose relations are refined on their own references before they are used: MetaR and GANA."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hire.systems.episodic.maml import refine
from hire.systems.episodic.network import EpisodicNetwork, Pairs, part_of
from hire.systems.episodic.settings import EpisodicModelSettings
from hire.util.ranges import Batch, Rate, Repeats, Weight


@dataclass(frozen=True)
class RefinedModelSettings(EpisodicModelSettings):
    """How a relation is refined."""

    inner_steps: Repeats = 1  # on the references; 0 leaves them out
    inner_rate: Rate = 1.0  # beta, the factor of the gradient in such a step
    training_inner_rate: Rate | None = None  # beta in training; None for the same
    inner_negatives: Batch = 512  # drawn from the candidates when a relation is learned after training
    second_order: bool = False  # whether gradients flow through the inner steps
    reference_weight: Weight = 0.0  # of the loss on the references, before they are refined, in the objective


class RefinedNetwork(EpisodicNetwork):
    """A relation is learned from the references, then moved against the gradient of the loss on them."""

    def __init__(self, settings: RefinedModelSettings) -> None:
        super().__init__(settings)
        self.refinement = settings
        self.inner_negatives = settings.inner_negatives

    @abstractmethod
    def learn(self, references: Pairs) -> Any:
        """The relations of references before they are refined: a named tuple of tensors [tasks, ...]."""

    def adapt(self, references: Pairs) -> Any:
        """The refined relations."""
        return self._refined(self.learn(references), references)

    def seen(self, references: Pairs) -> Pairs:
        """References as `learn` sees them in a step of training: as they are, unless a system drops some of them."""
        return references

    @property
    def tasks_apart(self) -> bool:
        """Whether a task is learned the same way whichever others are in the step."""
        return True

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """The mean loss of the tasks.

        With the margin loss, tasks within the margin have neither a gradient nor an inner step: they are found first,
        and left out of what gradients are computed for.
        """
        seen, tasks = self.seen(references), len(references.heads.rows)
        if self.settings.loss == "margin" and self.tasks_apart:
            some = self._outside_margin(seen, references, queries)
            seen, references, queries = (part_of(pairs, some) for pairs in (seen, references, queries))
        return self.task_losses(seen, references, queries).sum() / tasks

    @torch.no_grad()
    def _outside_margin(self, seen: Pairs, references: Pairs, queries: Pairs) -> Tensor:
        """The tasks that have a gradient; one without, where there is none."""
        relation = self.learn(seen)
        of_references, of_queries = (self.losses(relation, pairs).sum(dim=-1) for pairs in (references, queries))
        some = (of_references + of_queries).nonzero().squeeze(-1)
        return some if len(some) else some.new_zeros(1)

    def task_losses(self, seen: Pairs, references: Pairs, queries: Pairs) -> Tensor:
        """The mean loss of each task's queries and, if it has a weight, that of its references, [tasks]."""
        relation = self.learn(seen)
        losses = self.losses(self._refined(relation, references), queries).mean(dim=-1)
        if self.refinement.reference_weight:
            losses = losses + self.refinement.reference_weight * self.losses(relation, references).mean(dim=-1)
        return losses

    def _refined(self, relation: Any, references: Pairs) -> Any:
        settings = self.refinement
        rate = settings.inner_rate
        if self.training and settings.training_inner_rate is not None:
            rate = settings.training_inner_rate
        # A softmax over scores times the temperature: without the scale, the step would grow as it is learned.
        scale = 1.0 if settings.loss == "margin" else 1 / self.log_temperature.exp().detach()
        return refine(
            relation,
            lambda at: (
                self.losses(at, references).mean(dim=-1) * scale
            ),  # a mean: the number of references is no matter
            [rate] * len(relation),
            steps=settings.inner_steps,
            second_order=settings.second_order and self.training,
        )
