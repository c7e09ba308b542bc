"""A few-shot system in a package of its own: a pair is true if it resembles at least one of the references.

A relation may link several kinds of entities, which a mean over the references blurs: `part_of` leads from a tissue to
an animal and from a gene to a cell. Here every reference stands for itself. Pairs are compared by t - h in a linear map
of pre-trained embeddings, and the map is trained to rank true tails before other candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.embeddings.distances import distance, squared_distances
from hire.embeddings.settings import EmbeddingSettings
from hire.optim.settings import OptimizerSettings, SelectionSettings
from hire.optim.trainer import Loss
from hire.sampling.episodes import EpisodeBatch
from hire.sampling.task_pool import TaskPool, TaskShares
from hire.systems.base import Capability, FewShotSystem, Resources, Support, SystemTrainer, as_tensor
from hire.util.arrays import IntArray
from hire.util.randomness import random_stream


@dataclass(frozen=True)
class TrainingSettings:
    """What the map is trained with."""

    steps: int = 300
    shots: tuple[int, ...] = (1, 3, 5)  # each step draws one of them
    tasks: int = 16  # in a step
    queries: int = 32  # of a task
    negatives: int = 128  # shared by the queries of a task
    temperature: float = 8.0  # what scores are multiplied with before the softmax; learned from here
    sharpness: float = 2.0  # how much the nearest reference counts more than the others; learned from here
    seed: int = 0


@dataclass(frozen=True)
class NearestReferenceSettings:
    """All settings; `hire train --set training.steps=100` changes one."""

    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(learning_rate=1e-2, ema=0.05))
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(evaluate_every=50))


class NearestReference(FewShotSystem):
    """score(h, t) = log(sum of exp(-s d) over the references) / s, a smooth form of minus the smallest d.

    d = ||W(t - h) - W(t' - h')|| is the distance to a reference (h', t'); the map W and the sharpness s are learned.
    """

    name = "nearest-reference"
    summary = "a pair is as good as the reference it resembles most, by t - h in a learned map of embeddings"
    settings_type: ClassVar[type[NearestReferenceSettings]] = NearestReferenceSettings
    capabilities: frozenset[Capability] = frozenset({"vectors"})

    def __init__(self, mapped: Tensor, temperature: Tensor, sharpness: Tensor) -> None:
        self.mapped = mapped  # [entities, dim]: W e for every entity e
        self.scale = temperature.item()
        self.sharpness = sharpness.item()

    def adapt(self, support: Support) -> Tensor:
        """The translation of each reference, [shots, dim]."""
        heads, tails = (self.vectors(column) for column in support.pairs.T)
        return tails - heads

    def score(self, state: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """How closely each pair resembles the nearest references, [heads, tails]."""
        from_heads, to_tails = self.vectors(heads), self.vectors(tails)
        distances = (distance(squared_distances(from_heads + each, to_tails)) for each in state)
        likeness = reduce(torch.logaddexp, (-self.sharpness * each for each in distances))  # one at a time in memory
        return (likeness / self.sharpness).cpu()

    def vectors(self, entities: IntArray) -> Tensor:
        """The mapped embeddings of some entities, [n, dim]."""
        return self.mapped[as_tensor(entities).to(self.mapped.device)]

    def tensors(self) -> dict[str, Tensor]:
        """The mapped embeddings, the temperature and the sharpness; W itself is not needed any more."""
        return {"mapped": self.mapped, "learned": torch.tensor([self.scale, self.sharpness])}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: NearestReferenceSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> NearestReference:
        """With the weights that were saved."""
        return cls(tensors["mapped"].to(device), *tensors["learned"])

    @classmethod
    def trainer(
        cls, dataset: FewShotDataset, settings: NearestReferenceSettings, resources: Resources
    ) -> NearestReferenceTrainer:
        """A trainer that starts from pre-trained embeddings."""
        embeddings = resources.embeddings(settings.embedding)
        return NearestReferenceTrainer(dataset, embeddings.entities.to(resources.device), settings)


class LearnedMap(nn.Module):
    """W, and two numbers that are learned as logarithms, to stay above zero."""

    def __init__(self, dimension: int, settings: TrainingSettings) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dimension))  # [dim, dim]: at first, embeddings as they are
        self.logarithms = nn.Parameter(torch.tensor([settings.temperature, settings.sharpness]).log())  # [2]

    @property
    def temperature(self) -> Tensor:
        """What scores are multiplied with before the softmax, []."""
        return self.logarithms[0].exp()

    @property
    def sharpness(self) -> Tensor:
        """How much the nearest reference counts more than the others, []."""
        return self.logarithms[1].exp()

    def forward(self, vectors: Tensor) -> Tensor:
        """W e for vectors [..., dim]."""
        return vectors @ self.weight


class NearestReferenceTrainer(SystemTrainer[EpisodeBatch, LearnedMap]):
    """Trains the map; the training loop of hire does the rest."""

    def __init__(self, dataset: FewShotDataset, entities: Tensor, settings: NearestReferenceSettings) -> None:
        self.settings = settings.training
        self.selection = settings.selection
        self.pool = TaskPool(dataset, "in-train", TaskShares(), min_facts=max(self.settings.shots) + 1)
        self.entities = entities / entities.square().sum(dim=1).mean().sqrt()  # [entities, dim]
        network = LearnedMap(entities.shape[1], self.settings).to(entities.device)
        super().__init__(settings.optimizer, steps=self.settings.steps, seed=self.settings.seed, network=network)

    @torch.no_grad()
    def system(self) -> NearestReference:
        """The system as it is now, with the EMA of the weights."""
        averaged = self.averaged_network
        return NearestReference(averaged(self.entities), averaged.temperature, averaged.sharpness)

    def batch(self, step: int) -> EpisodeBatch:
        """Tasks with the same number of references, drawn by the seed and the step alone."""
        shots = int(random_stream(self.seed, "training", step).choice(self.settings.shots))
        tasks, queries, negatives = self.settings.tasks, self.settings.queries, self.settings.negatives
        batch = self.pool.batch(self.seed, step, tasks=tasks, shots=shots, queries=queries, negatives=negatives)
        return batch.part(self.share.of(tasks, "tasks"))

    def loss(self, batch: EpisodeBatch) -> Loss:
        """The cross entropy of the true tail of each query among itself and the negatives of its task."""
        references, queries, negatives = map(self._mapped, (batch.references, batch.queries, batch.query_negatives))
        translations = references[:, :, 1] - references[:, :, 0]  # [tasks, shots, dim]
        aims = queries[:, :, 0].unsqueeze(2) + translations.unsqueeze(1)  # [tasks, queries, shots, dim]
        true = (aims - queries[:, :, 1].unsqueeze(2)).square().sum(-1, keepdim=True)  # [tasks, queries, shots, 1]
        false = squared_distances(aims, negatives.unsqueeze(1))  # [tasks, queries, shots, negatives]
        distances = distance(torch.cat([true, false], dim=3))
        sharpness, temperature = self.network.sharpness, self.network.temperature
        logits = temperature * (-sharpness * distances).logsumexp(dim=2) / sharpness  # [tasks, queries, 1 + negatives]
        if batch.query_false is not None:  # what is drawn as a negative may be true for some of the queries
            is_true = ~batch.query_false.to(logits.device)
            logits = logits.masked_fill(F.pad(is_true, (1, 0)), -torch.inf)
        return Loss(-logits.log_softmax(dim=2)[:, :, 0].mean(), weight=len(logits))

    def _mapped(self, ids: Tensor) -> Tensor:
        mapped: Tensor = self.network(self.entities[ids.to(self.entities.device)])  # [..., dim]
        return mapped
