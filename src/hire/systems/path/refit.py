"""A network that was trained on other graphs, fitted to the one that it answers on.

Graphs differ in what is to be believed: in one, an entity that is linked to the head already is often the answer, in
another never. The graph at hand tells: its own relations, each hidden in turn, are few-shot tasks with known answers.
Only the last, linear part of the read-out is fitted to them, so the problem is convex and small; what the network
learned elsewhere is the prior. It takes a second or two, once for each graph, and is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from hire import __version__
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import PathTrainingSettings
from hire.systems.path.tasks import PathTasks
from hire.util.checksums import checksum_of
from hire.util.files import cache_directory
from hire.util.ranges import Batch, Count, Scale, Shots
from hire.util.settings import Settings, to_plain
from hire.util.tensors import load_tensors, on_device, save_tensors

WEIGHTS = "last"  # the name of the tensor in the cache
TASKS_AT_ONCE = 4
LEAST_SPREAD = 1e-3  # of an input, relative to which its weight is kept near the prior
LEAST_LOGIT = -1e3  # below it is padding
TOLERANCE = 1e-4  # share of the slope that may be left
INEXACT = 1e-2  # share of the slope that a step of Newton's method may leave


@dataclass(frozen=True)
class RefitSettings(Settings):
    """What a network is fitted to, and how firmly it stays what it was."""

    tasks: Batch = 100  # at most; no more than there are relations and inverse ones
    queries: Batch = 4  # of a task
    shots: tuple[Shots, ...] = (1, 5)  # each task draws one of them
    candidates: Batch = 1_000  # of a task, from which negatives are drawn
    prior: Scale = 10_000.0  # of half the squared changes of weights, in standard deviations of their inputs
    least_tasks: Count = 20  # relations and inverse ones; with fewer, the weights stay as they are
    most_facts: Count = 2_000_000  # likewise with more, which would take too long to sort by relation
    steps: Count = 20  # of Newton's method, at most


class LastPart:
    """Queries of simulated tasks, by the inputs of the last part: a convex loss of the weights of that part.

    A change of the weights is in standard deviations of their inputs.
    """

    def __init__(self, inputs: Tensor, stands_for: Tensor, prior: Tensor, strength: float) -> None:
        self.strength = strength  # of the prior
        self.scores = inputs @ prior + stands_for  # [queries, width]: before; the first of each row is the true tail
        there = (stands_for > LEAST_LOGIT)[..., None]
        centred = (inputs - (inputs * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)) * there
        self.spread = (centred.square().sum((0, 1)) / there.sum()).sqrt().clamp(min=LEAST_SPREAD)  # [weights]
        self.inputs = inputs / self.spread  # [queries, width, weights]

    def loss(self, change: Tensor) -> Tensor:
        """The loss of all queries after a change of the weights [weights], and the price of the change."""
        logits = self.scores + self.inputs @ change
        return -torch.log_softmax(logits, dim=1)[:, 0].sum() + self.strength / 2 * change.square().sum()

    def slope(self, change: Tensor) -> Tensor:
        """The gradient of the loss, [weights]."""
        wrong = torch.softmax(self.scores + self.inputs @ change, dim=1)
        wrong[:, 0] -= 1
        return self._weighted(wrong) + self.strength * change

    def curvature(self, mass: Tensor, change: Tensor) -> Tensor:
        """The product of the loss's Hessian with a change, [weights], where the candidates have a mass."""
        moved = self.inputs @ change
        moved = mass * (moved - (mass * moved).sum(dim=1, keepdim=True))
        return self._weighted(moved) + self.strength * change

    def fitted(self, steps: int) -> Tensor:
        """The change that has the least loss, by Newton's method with conjugate gradients, [weights].

        An optimizer of PyTorch would do; but to import it takes longer than all of this.
        """
        change = torch.zeros_like(self.spread)
        slope, loss = self.slope(change), self.loss(change)
        least = TOLERANCE * slope.norm()
        for _ in range(steps):
            mass = torch.softmax(self.scores + self.inputs @ change, dim=1)
            step = _solution(partial(self.curvature, mass), slope)
            while self.loss(change - step) > loss and step.norm() > TOLERANCE:
                step = step / 2
            change = change - step
            slope, loss = self.slope(change), self.loss(change)
            if slope.norm() <= least:
                break
        return change

    def _weighted(self, weights: Tensor) -> Tensor:
        """The sum of all inputs, each with a weight [queries, width]."""
        return weights.flatten() @ self.inputs.flatten(0, 1)


def _solution(product: Callable[[Tensor], Tensor], wanted: Tensor) -> Tensor:
    """The vector of which a positive definite product is the wanted one, nearly, by conjugate gradients."""
    found, rest = torch.zeros_like(wanted), wanted
    direction, left = rest, rest @ rest
    for _ in range(len(wanted)):
        ahead = product(direction)
        length = left / (direction @ ahead)
        found, rest = found + length * direction, rest - length * ahead
        before, left = left, rest @ rest
        if left <= INEXACT**2 * (wanted @ wanted):
            break
        direction = rest + left / before * direction
    return found


def refitted(
    network: PathNetwork,
    dataset: FewShotDataset,
    graph: EvidenceGraph,
    training: PathTrainingSettings,
    settings: RefitSettings | None = None,
) -> dict[str, Tensor]:
    """The last weights of a network [members, inputs] by their name, fitted to a graph; none for too few relations.

    They are taken from the cache if they are there, and kept there otherwise.
    """
    settings = settings or RefitSettings()
    path = _cached(network, dataset, graph, training, settings)
    if path is not None:
        with suppress(HireError):  # missing or damaged: it is made again
            return load_tensors(path)
    fitted = _fitted(network, dataset, graph, training, settings)
    found = {} if fitted is None else {WEIGHTS: fitted}
    if found and path is not None:
        with suppress(HireError, OSError):  # no room for it
            path.parent.mkdir(parents=True, exist_ok=True)
            save_tensors(path, found)
    return found


def _fitted(
    network: PathNetwork,
    dataset: FewShotDataset,
    graph: EvidenceGraph,
    training: PathTrainingSettings,
    settings: RefitSettings,
) -> Tensor | None:
    if len(dataset.graph.triples) > settings.most_facts:
        return None
    drawn = {name: getattr(settings, name) for name in ("queries", "shots", "candidates")}
    try:
        tasks = PathTasks(dataset, graph, replace(training, tasks=TASKS_AT_ONCE, **drawn))
    except HireError:  # no relation has enough facts
        return None
    if len(tasks.tasks) < settings.least_tasks:
        return None
    inputs, stands_for = [], []
    device, prior = network.start.device, network.last_weights.detach()
    with torch.no_grad():
        for step in range(min(settings.tasks, len(tasks.tasks)) // TASKS_AT_ONCE):
            batch = on_device(tasks.batch(step), device)
            of_pairs = network.last_inputs(network.weigh(batch.edge_features), batch.tails, batch.walks)
            inputs.append(of_pairs.flatten(1).view(*batch.stands_for.shape, -1))
            stands_for.append(batch.stands_for)
    mean = prior.flatten() / len(prior)  # of the members' scores
    part = LastPart(torch.cat(inputs), torch.cat(stands_for), mean, settings.prior)
    return (prior + len(prior) * (part.fitted(settings.steps) / part.spread).view_as(prior)).cpu()


def _cached(
    network: PathNetwork,
    dataset: FewShotDataset,
    graph: EvidenceGraph,
    training: PathTrainingSettings,
    settings: RefitSettings,
) -> Path | None:
    """Where the weights for a dataset are in the cache; nowhere, if it is not a dataset as it was opened."""
    if dataset.identity is None:
        return None
    weights = checksum_of(part.cpu().numpy().tobytes() for part in network.state_dict().values())
    plain = [to_plain(own) for own in (graph.settings, training, settings)]
    content = json.dumps([__version__, dataset.identity, weights, plain], sort_keys=True)
    return cache_directory() / f"refit-{hashlib.sha256(content.encode()).hexdigest()[:16]}.safetensors"
