"""All four levels: HiRe's score and the evidence of paths, added up."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.systems.base import FewShotModel
from hire.systems.evidence import Evidence
from hire.systems.hire.model import Hire, LearnedRelation
from hire.systems.path.explain import explain_path
from hire.systems.path.model import PathModel, PathRelation
from hire.util.arrays import IntArray


class JoinedRelation(NamedTuple):
    """A relation as HiRe and the path level know it."""

    learned: LearnedRelation
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

    def adapt_against(self, references: IntArray, candidates: IntArray | None, rejected: IntArray) -> JoinedRelation:
        """As `adapt`; HiRe learns from what is false, too."""
        learned = self.hire.adapt_against(references, candidates, rejected)
        return JoinedRelation(learned, self.path.adapt(references, candidates))

    def score(self, relation: JoinedRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """The sum of logits, [heads, tails]."""
        return self.path.score(relation.paths, heads, tails) + self._of_hire(relation, heads, tails)

    def _of_hire(self, relation: JoinedRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """What HiRe adds to the logits, [heads, tails]."""
        weight = self.path.network.settings.hire_weight * self.hire.network.log_temperature.exp().item()
        return weight * self.hire.score(relation.learned, heads, tails)

    def explain(self, relation: JoinedRelation, head: int, tail: int, *, most: int = 10) -> Evidence:
        """The path level's evidence, with the score of all levels."""
        found = explain_path(self.path, relation.paths, head, tail, most=most)
        of_hire = self._of_hire(relation, np.array([head]), np.array([tail])).item()
        return replace(found, score=found.score + of_hire)

    def hiding(self, relation: int) -> HirePath:
        """The same model, whose path level looks at no fact of a relation."""
        return HirePath(self.hire, self.path.hiding(relation))

    def vectors(self, entities: IntArray) -> Tensor:
        """HiRe's embeddings of some entities."""
        return self.hire.vectors(entities)

    def extended(self, graph: KnowledgeGraph) -> HirePath:
        """Both with the new entities."""
        return HirePath(self.hire.extended(graph), self.path.extended(graph))
