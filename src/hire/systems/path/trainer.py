"""Training of the path level: pretend few-shot tasks over all known relations, each hidden while it is a task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy

import torch
import torch.nn.functional as F

from hire.data.dataset import FewShotDataset
from hire.embeddings.tables import RowTable
from hire.sampling.ahead import drawn_ahead
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import PathSettings, PathTrainingSettings
from hire.systems.path.tasks import PathBatch, PathTasks


class PathTrainer:
    """Trains a path network on a dataset."""

    def __init__(
        self,
        dataset: FewShotDataset,
        model: PathSettings | None = None,
        training: PathTrainingSettings | None = None,
    ) -> None:
        self.training = training or PathTrainingSettings()
        torch.manual_seed(self.training.seed)
        self.graph = EvidenceGraph.of(dataset, train_facts=self.training.train_facts)
        self.tasks = PathTasks(dataset, self.graph, self.training)
        self.network = PathNetwork(model or PathSettings())
        self.averaged_network = deepcopy(self.network)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.training.rate, weight_decay=self.training.decay
        )
        of_one_pass = len(self.tasks) / (self.training.tasks * self.training.queries)
        self.steps = min(self.training.steps, math.ceil(self.training.passes * of_one_pass))
        self.step = 0
        self.losses: list[float] = []

    def model(self) -> PathModel:
        """The model as it is now, with averaged weights."""
        return PathModel(self.averaged_network, self.graph)

    def tables(self) -> dict[str, RowTable]:
        """No tables: nothing is learned of single entities."""
        return {}

    def train(self) -> None:
        """All steps that are left."""
        for _ in self.steps_left():
            pass

    def steps_left(self) -> Iterator[float]:
        """Takes all steps that are left, with batches drawn ahead; gives the loss of each."""
        with closing(drawn_ahead(self.tasks.batch, self.step)) as batches:
            while self.step < self.steps:
                yield self.train_step(next(batches))

    def train_step(self, batch: PathBatch | None = None) -> float:
        """One step; returns its loss. A batch that was drawn ahead must be that of the step."""
        settings = self.training
        torch.manual_seed(settings.seed * 1_000_003 + self.step)  # dropout; a step depends on its number alone
        batch = batch or self.tasks.batch(self.step)
        self.network.train()
        scores = self.network(batch.kind_features, batch.tails, batch.walks)  # [members, pairs]
        logits = scores.view(len(scores), *batch.stands_for.shape) + batch.stands_for
        loss = -F.log_softmax(logits, dim=-1)[..., 0].mean(dim=-1).sum()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for member in self.network.members:
            torch.nn.utils.clip_grad_norm_(member.parameters(), settings.clip)
        share = min(1.0, (self.step + 1) / settings.warm_up) * max(settings.final_rate, 1 - self.step / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate * share
        self.optimizer.step()
        self.step += 1
        kept = min(1 - 1 / settings.averaging, self.step / (self.step + 10))
        with torch.no_grad():
            for average, now in zip(self.averaged_network.parameters(), self.network.parameters(), strict=True):
                average.lerp_(now, 1 - kept)
        self.losses.append(loss.item() / len(scores))
        return self.losses[-1]
