"""The plainest few-shot system with embeddings: the mean of t - h over the references is the relation (TransE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.distances import squared_distances
from hire.embeddings.settings import EmbeddingSettings
from hire.systems.base import Capability, FewShotSystem, Resources, Support, as_tensor, in_blocks
from hire.util.arrays import IntArray
from hire.util.settings import Settings


@dataclass(frozen=True)
class MeanTranslationSettings(Settings):
    """Which embeddings; those of a model that translates make sense."""

    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)


class MeanTranslation(FewShotSystem):
    """R = mean(t - h) over the references, score = -||h + R - t||^2."""

    name = "mean-translation"
    summary = "TransE embeddings; the relation is the mean of t - h over the references"
    paper = "after Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NeurIPS 2013"
    settings_type: ClassVar[type[MeanTranslationSettings]] = MeanTranslationSettings
    capabilities: frozenset[Capability] = frozenset({"vectors"})

    def __init__(self, entities: Tensor) -> None:
        self.entities = entities  # [entities, dim]

    def adapt(self, support: Support) -> Tensor:
        """The mean translation, [dim]."""
        heads, tails = (self.vectors(column) for column in support.pairs.T)
        return (tails - heads).mean(dim=0)

    def score(self, state: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """Minus the squared distance from the translated head."""
        moved = self.vectors(heads) + state
        return in_blocks(
            lambda tails: -squared_distances(moved, self.vectors(tails)).cpu(), tails, self.entities.shape[1]
        )

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self.entities[as_tensor(entities)].float()

    def tensors(self) -> dict[str, Tensor]:
        """The embeddings."""
        return {"entities": self.entities}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: MeanTranslationSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> MeanTranslation:
        """With the embeddings that were saved."""
        return cls(tensors["entities"].to(device))

    @classmethod
    def without_training(
        cls, dataset: FewShotDataset, settings: MeanTranslationSettings, resources: Resources
    ) -> MeanTranslation:
        """With pre-trained embeddings."""
        return cls(resources.embeddings(settings.embedding).entities.to(resources.device))
