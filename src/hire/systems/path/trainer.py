"""Training of the path level: simulated few-shot tasks over all known relations, each hidden while it is a task."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from hire.data.dataset import FewShotDataset
from hire.optim.trainer import Loss
from hire.systems.base import SystemTrainer
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.pretrained import load_pretrained
from hire.systems.path.settings import PathSettings
from hire.systems.path.tasks import PathBatch, PathTasks
from hire.util.tensors import on_device


class PathNetworkTrainer(SystemTrainer[PathBatch, PathNetwork]):
    """Trains a path network, wherever its batches come from."""

    device: torch.device

    @torch.no_grad()
    def clip(self, limit: float) -> None:
        """Clip the gradients of each member on its own."""
        gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)  # [members]
        factors = (limit / (norms + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))

    def loss(self, batch: PathBatch) -> Loss:
        """Softmax over the true tail and its negatives, each weighted by the candidates that it stands for."""
        batch = on_device(batch, self.device)
        scores = self.network(batch.edge_features, batch.tails, batch.walks)  # [members, pairs]
        logits = scores.view(len(scores), *batch.stands_for.shape) + batch.stands_for
        value = -F.log_softmax(logits, dim=-1)[..., 0].mean(dim=-1).sum()
        return Loss(value, terms=len(scores), weight=len(batch.stands_for))


class PathTrainer(PathNetworkTrainer):
    """Trains a path network on a dataset."""

    def __init__(
        self, dataset: FewShotDataset, settings: PathSettings | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.settings = settings or PathSettings()
        self.selection = self.settings.selection
        training = self.settings.training
        self.device = torch.device(device)
        self.graph = EvidenceGraph.of(dataset, self.settings.evidence)
        self.tasks = PathTasks(dataset, self.graph, training)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            network = PathNetwork(self.settings.model)
        if training.start == "pretrained":
            load_pretrained(network)
        network.to(self.device)
        epoch_steps = len(self.tasks) / (training.tasks * training.queries)
        super().__init__(
            self.settings.optimizer,
            steps=min(training.steps, math.ceil(training.epochs * epoch_steps)),
            seed=training.seed,
            network=network,
        )

    def system(self) -> PathModel:
        """The current system, with EMA weights."""
        return PathModel(self.averaged_network, self.graph)

    def batch(self, step: int) -> PathBatch:
        """Tasks with references, queries and negatives."""
        return self.tasks.batch(step, self.share)
