"""A baseline that compares pairs: a pair is as likely as it is similar to the nearest of the references."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import EmbeddingSettings
from hire.systems.base import Capability, FewShotSystem, Resources, Support, as_tensor
from hire.util.arrays import IntArray
from hire.util.settings import Settings


@dataclass(frozen=True)
class NearestPairSettings(Settings):
    """Which embeddings; any model will do."""

    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)


class NearestPair(FewShotSystem):
    """score(h, t) = max over the references (h', t') of (cos(h, h') + cos(t, t')) / 2.

    That is the cosine of two pairs, each the concatenation of its entities' vectors at length 1. Nothing is trained
    but the embeddings, and relations between the two entities of a pair play no part.
    """

    name = "nearest-pair"
    summary = "the cosine of pre-trained embeddings to the most similar reference, heads and tails each"
    settings_type: ClassVar[type[NearestPairSettings]] = NearestPairSettings
    capabilities: frozenset[Capability] = frozenset({"vectors"})

    def __init__(self, entities: Tensor) -> None:
        self.entities = entities  # [entities, dim]: of length 1

    def adapt(self, support: Support) -> Tensor:
        """The vectors of the references, [shots, 2, dim]."""
        return torch.stack([self.vectors(column) for column in support.pairs.T], dim=1)

    def score(self, state: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """The cosine to the nearest reference, [heads, tails]."""
        of_heads = self.vectors(heads) @ state[:, 0].T  # [heads, shots]
        of_tails = self.vectors(tails) @ state[:, 1].T  # [tails, shots]
        sums = (of_heads[:, None, i] + of_tails[None, :, i] for i in range(len(state)))  # one at a time in memory
        return (reduce(torch.maximum, sums) / 2).cpu()

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities, [n, dim]."""
        return self.entities[as_tensor(entities).to(self.entities.device)].float()

    def tensors(self) -> dict[str, Tensor]:
        """The embeddings."""
        return {"entities": self.entities}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: NearestPairSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> NearestPair:
        """With the embeddings that were saved."""
        return cls(tensors["entities"].to(device))

    @classmethod
    def without_training(
        cls, dataset: FewShotDataset, settings: NearestPairSettings, resources: Resources
    ) -> NearestPair:
        """With pre-trained embeddings, brought to length 1."""
        return cls(F.normalize(resources.embeddings(settings.embedding).entities.to(resources.device), dim=1))
