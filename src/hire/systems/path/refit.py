"""A network that was trained on other graphs, fitted to the one that it answers on.

Graphs differ in what is to be believed: in one, an entity that is linked to the head already is often the answer, in
another never. The graph at hand tells: its own relations, each hidden in turn, are few-shot tasks with known answers.
Only the last, linear part of the read-out is fitted to them, so the problem is convex and small; what the network
learned elsewhere is the prior. It takes a second or two, once for each graph, and is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
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
TOLERANCE = 1e-6  # of the change of a weight, in standard deviations of its input, at which the fit is done


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
    steps: Count = 100  # of L-BFGS, at most


class LastPart:
    """Queries of simulated tasks, by the inputs of the last part: a convex loss of the weights of that part."""

    def __init__(self, inputs: Tensor, stands_for: Tensor, prior: Tensor) -> None:
        self.inputs = inputs  # [queries, width, weights]; the first of each row is of the true tail
        self.scores = inputs @ prior + stands_for  # [queries, width]: before
        there = (stands_for > -1e3)[..., None]
        centred = (inputs - (inputs * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)) * there
        self.spread = (centred.square().sum((0, 1)) / there.sum()).sqrt().clamp(min=LEAST_SPREAD)  # [weights]

    def loss(self, change: Tensor, strength: float) -> Tensor:
        """The loss of all queries after a change of the weights [weights], in standard deviations of their inputs."""
        logits = self.scores + self.inputs @ (change / self.spread)
        return -torch.log_softmax(logits, dim=1)[:, 0].sum() + strength / 2 * change.square().sum()

    def fitted(self, strength: float, steps: int) -> Tensor:
        """The change of the weights that has the least loss, [weights]."""
        change = torch.zeros_like(self.spread, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [change], max_iter=steps, tolerance_change=TOLERANCE, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = self.loss(change, strength)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return (change / self.spread).detach()


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
    part = LastPart(torch.cat(inputs), torch.cat(stands_for), mean)
    return (prior + len(prior) * part.fitted(settings.prior, settings.steps).view_as(prior)).cpu()


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
