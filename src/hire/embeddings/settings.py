"""The settings of embeddings, and what is learned."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from hire.embeddings.scores import EmbeddingName
from hire.optim.storage import StorageSettings
from hire.util.ranges import Batch, Count, Rate, Seed, Size, Weight
from hire.util.settings import Settings


@dataclass(frozen=True)
class EmbeddingSettings(Settings):
    """How embeddings are learned."""

    model: EmbeddingName = "transe"  # the score function
    dimension: Size = 100  # of entities and relations
    batch_size: Batch = 1024  # triples in a step
    negatives: Batch = 512  # entities drawn for each batch, shared by all of its triples
    steps: Count = 20_000  # at most
    epochs: Count = 100  # over all triples, in both directions, at most: a small graph needs fewer steps
    learning_rate: Rate = 6e-2  # of row-wise Adam, falling linearly to 2%
    margin: Weight = 9.0  # of the translational models
    adversarial: Weight = 1.0  # how much the harder negatives count more
    regularization: Weight = 1e-3  # of distmult and complex-n3, on the cubes of absolute values
    seed: Seed = 0  # of initial weights and batches
    storage: StorageSettings = field(default_factory=StorageSettings)


@dataclass(frozen=True)
class Embeddings:
    """One vector for each entity, and one for each relation and each inverse."""

    entities: Tensor  # [entities, width]: for transd, embedding and projection behind one another
    relations: Tensor  # [2 * relations, width]: for transh and transd, translation and direction
