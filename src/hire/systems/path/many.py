"""Training of one path network on several graphs, for graphs that it has never seen.

No parameter belongs to an entity or a relation. The tasks of a step come from one graph, drawn by the graphs' shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import PathSettings
from hire.systems.path.tasks import PathBatch, PathTasks
from hire.systems.path.trainer import PathNetworkTrainer
from hire.util.arrays import IntArray
from hire.util.randomness import random_stream

UNECHOED = 0.4  # share of relations that are not repeated
MIN_ECHOED = 20  # facts that a relation needs to be repeated
FORMS = {"both ways": 0.25, "backwards": 0.5}  # a quarter of the echoes each


class TrainingGraph(NamedTuple):
    """A dataset to train on, and its share of the steps."""

    dataset: FewShotDataset
    share: float
    settings: PathSettings


class ManyGraphsTrainer(PathNetworkTrainer):
    """Trains a path network on several datasets."""

    def __init__(
        self, graphs: Sequence[TrainingGraph], settings: PathSettings, device: torch.device | str = "cpu"
    ) -> None:
        self.device = torch.device(device)
        self.selection = settings.selection
        self.evidence = [EvidenceGraph.of(of.dataset, of.settings.evidence) for of in graphs]
        self.tasks = [
            PathTasks(of.dataset, evidence, of.settings.training)
            for of, evidence in zip(graphs, self.evidence, strict=True)
        ]
        shares = np.array([of.share for of in graphs])
        self._shares = shares / shares.sum()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.training.seed)
            network = PathNetwork(settings.model).to(self.device)
        super().__init__(
            settings.optimizer, steps=settings.training.steps, seed=settings.training.seed, network=network
        )

    def graph_of(self, step: int) -> int:
        """The index of the graph that a step draws its tasks from."""
        return int(random_stream(self.seed, "graphs", step).choice(len(self._shares), p=self._shares))

    def system(self) -> PathModel:
        """The network with EMA weights, over the first graph."""
        return PathModel(self.averaged_network, self.evidence[0])

    def batch(self, step: int) -> PathBatch:
        """Some tasks of one graph."""
        return self.tasks[self.graph_of(step)].batch(step)


def with_graph(dataset: FewShotDataset, triples: IntArray, types: Types | None) -> FewShotDataset:
    """A dataset with another background graph over the same entities and relations; all entities are candidates."""
    graph = dataset.graph
    changed = KnowledgeGraph.of(graph.entities, graph.relations, triples, graph.labels, types)
    everything = np.full_like(np.asarray(dataset.task_candidates), -1)
    return replace(dataset, graph=changed, task_candidates=everything)


def without_types(dataset: FewShotDataset) -> FewShotDataset:
    """A dataset without its types; all entities are candidates."""
    return with_graph(dataset, dataset.graph.triples, None)


def thinned(dataset: FewShotDataset, share: float, types: Types | None, seed: int = 0) -> FewShotDataset:
    """A dataset with a share of its background facts, and with other types; all entities are candidates."""
    triples = np.asarray(dataset.graph.triples)
    kept = random_stream(seed, "thinned").random(len(triples)) < share
    return with_graph(dataset, triples[kept], types)


def with_echoes(dataset: FewShotDataset, seed: int = 0) -> FewShotDataset:
    """A dataset with relations that repeat part of others, some backwards or both ways, with noise.

    In many graphs one relation often tells another; benchmarks such as FB15k-237 were freed of such relations.
    """
    generator = random_stream(seed, "thinned", 1)
    graph = dataset.graph
    tasks = [np.insert(task.pairs, 1, task.relation, axis=1) for task in dataset.split("train")]
    facts = np.concatenate([np.asarray(graph.triples), *tasks]).astype(np.int64)
    facts = facts[np.argsort(facts[:, 1], kind="stable")]
    by_relation = np.split(facts[:, [0, 2]], np.flatnonzero(np.diff(facts[:, 1])) + 1)
    sources = [pairs for pairs in by_relation if len(pairs) >= MIN_ECHOED]
    parts = [np.asarray(graph.triples)]
    for pairs in sources:
        if generator.random() < UNECHOED:
            continue
        chosen = pairs[generator.random(len(pairs)) < generator.uniform(0.2, 0.8)]
        noise = np.column_stack([generator.permutation(pairs[:, 0]), generator.permutation(pairs[:, 1])])
        echo = np.concatenate([chosen, noise[: int(len(chosen) * generator.uniform(0, 0.5))]])
        form = generator.random()
        if form < FORMS["both ways"]:
            echo = np.concatenate([echo, echo[:, ::-1]])
        elif form < FORMS["backwards"]:
            echo = echo[:, ::-1]
        parts.append(np.insert(echo, 1, len(graph.relations) + len(parts) - 1, axis=1))
    names = [f"echo:{number}" for number in range(len(parts) - 1)]
    more = KnowledgeGraph.of(
        graph.entities, graph.relations.extended(names), np.concatenate(parts), graph.labels, graph.types
    )
    return replace(dataset, graph=more)


def types_by_relation_name(graph: KnowledgeGraph) -> Types:
    """The types of entities, where the first parts of a relation's name are the type of its heads, as in Freebase."""
    prefixes = ["/".join(name.split("/")[:3]) for name in graph.relations]
    names = Vocabulary.of(sorted(set(prefixes)), "type")
    of_relation = np.array([names.id(prefix) for prefix in prefixes])
    heads, relations, _ = np.asarray(graph.triples).T
    return Types.of(names, heads, of_relation[relations], len(graph.entities))


def training_graphs(
    datasets: Mapping[str, FewShotDataset], shares: Mapping[str, float], settings: PathSettings
) -> list[TrainingGraph]:
    """Each dataset with its share; a dataset with types is used with and without them, in equal parts."""
    found = []
    for name, dataset in datasets.items():
        forms = [dataset] if dataset.graph.types is None else [dataset, without_types(dataset)]
        found += [TrainingGraph(form, shares[name] / len(forms), settings) for form in forms]
    return found
