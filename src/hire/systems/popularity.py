"""The baseline that every system must beat: the better connected an entity, the likelier it is the tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.systems.base import Capability, FewShotSystem, Support, as_tensor
from hire.util.arrays import IntArray
from hire.util.settings import Settings


@dataclass(frozen=True)
class PopularitySettings(Settings):
    """There is nothing to set."""


class Popularity(FewShotSystem):
    """Ranks by degree in the background graph, whatever the head and the references."""

    name = "popularity"
    summary = "ranks by degree in the background graph"
    settings_type: ClassVar[type[PopularitySettings]] = PopularitySettings
    capabilities: frozenset[Capability] = frozenset({"new-entities"})

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph

    def adapt(self, support: Support) -> Tensor:
        """The degrees of all entities, [entities], without the facts of the relation itself."""
        degrees = np.array(self.graph.degrees)
        if support.relation is not None:
            own = self.graph.triples[self.graph.triples[:, 1] == support.relation][:, [0, 2]]
            degrees -= np.bincount(own.ravel(), minlength=len(degrees))
        return torch.from_numpy(degrees.astype(np.float32))

    def score(self, state: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """The degree of each tail, for every head."""
        return state[as_tensor(tails)].repeat(len(heads), 1)

    def tensors(self) -> dict[str, Tensor]:
        """No weights: degrees are those of the graph."""
        return {}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: PopularitySettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> Popularity:
        """The degrees of the dataset's graph."""
        return cls(dataset.graph)

    def extended(self, graph: KnowledgeGraph) -> Popularity:
        """The degrees of the larger graph."""
        return Popularity(graph)
