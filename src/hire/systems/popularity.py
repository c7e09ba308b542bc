"""The baseline that every model must beat: the better connected an entity, the likelier it is the tail."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.systems.base import FewShotModel, as_tensor
from hire.util.arrays import IntArray


class Popularity(FewShotModel):
    """Ranks by degree in the background graph, whatever the head and the references."""

    name = "popularity"

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.degrees = torch.from_numpy(np.asarray(graph.degrees, np.float32))

    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> None:
        """Nothing is learned."""

    def score(self, relation: None, heads: IntArray, tails: IntArray) -> Tensor:
        """The degree of each tail, for every head."""
        return self.degrees[as_tensor(tails)].repeat(len(heads), 1)
