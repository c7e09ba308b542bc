"""All four levels: HiRe's score and the evidence of paths, added up."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from hire.levels.entity import Relation
from hire.models.base import FewShotModel
from hire.models.hire import Hire
from hire.models.path import PathModel, PathRelation
from hire.vocabulary import IntArray


class JoinedRelation(NamedTuple):
    """A relation as HiRe and the path level know it."""

    learned: Relation
    paths: PathRelation


class HirePath(FewShotModel):
    """HiRe and the path level, each trained by itself: both score by logits of the same softmax.

    A weight for the sum is a setting, not learned on the train relations: those HiRe knows by heart.
    """

    name = "hire-path"

    def __init__(self, hire: Hire, path: PathModel) -> None:
        self.hire = hire
        self.path = path

    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> JoinedRelation:
        """Learn a relation from references [shots, 2] at all levels."""
        return JoinedRelation(self.hire.adapt(references, candidates), self.path.adapt(references, candidates))

    def score(self, relation: JoinedRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """The sum of logits, [heads, tails]."""
        weight = self.path.network.settings.hire_weight * self.hire.network.log_temperature.exp().item()
        return self.path.score(relation.paths, heads, tails) + weight * self.hire.score(relation.learned, heads, tails)
