"""The plainest few-shot system with embeddings: the mean difference of the references is the relation (TransE)."""

from __future__ import annotations

from torch import Tensor

from hire.embeddings.distances import squared_distances
from hire.systems.base import FewShotModel, as_tensor
from hire.util.arrays import IntArray


class MeanTranslation(FewShotModel):
    """R = mean(t - h) over the references, score = -||h + R - t||."""

    name = "transe"

    def __init__(self, entities: Tensor) -> None:
        self.entities = entities  # [entities, dim]

    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> Tensor:
        """The mean translation, [dim]."""
        heads, tails = (self.entities[as_tensor(column)] for column in references.T)
        return (tails - heads).mean(dim=0)

    def score(self, relation: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """Minus the squared distance from the translated head."""
        translated = self.entities[as_tensor(heads)] + relation
        return -squared_distances(translated, self.entities[as_tensor(tails)])

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self.entities[as_tensor(entities)]
