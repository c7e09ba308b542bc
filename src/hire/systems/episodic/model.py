"""A trained system of the literature: its network, its tables, and the graph whose neighbors it looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.sampling.neighbors import NOTHING, NeighborFinder
from hire.systems.base import Capability, FewShotSystem, LastTails, Resources, Support, as_tensor
from hire.systems.episodic.drawing import adaptation_negatives, first_embeddings
from hire.systems.episodic.network import Entities, EpisodicNetwork, Neighbors, Pairs, part_of
from hire.systems.episodic.settings import EpisodicSettings
from hire.util.arrays import IntArray
from hire.util.tensors import on_device

if TYPE_CHECKING:
    from hire.systems.episodic.trainer import EpisodicTrainer

System = TypeVar("System", bound="EpisodicSystem")


class EpisodicState(NamedTuple):
    """What a system knows about a relation."""

    relation: Any  # of the network
    hidden: int  # what must not be seen of the neighbors of entities
    tails: LastTails[Any]  # the latest tails, encoded


class EpisodicSystem(FewShotSystem):
    """A trained system; a subclass names its settings and its network."""

    network_type: ClassVar[type[Any]]  # an EpisodicNetwork that is made of the section `model` of the settings
    settings_type: ClassVar[type[Any]]  # EpisodicSettings with a section `model` of its own
    capabilities: frozenset[Capability] = frozenset({"vectors"})

    def __init__(
        self, network: EpisodicNetwork, entities: Tensor, relations: Tensor, graph: KnowledgeGraph, seed: int = 0
    ) -> None:
        self.network = network
        self.entities = entities.contiguous()  # [entities, dim]
        self.relations = relations.contiguous()  # [2 * relations, dim]
        self.graph = graph
        self.seed = seed  # of the negatives that references are contrasted with
        self.scale = network.log_temperature.exp().item() if network.settings.loss == "softmax" else 1.0
        self._finder = NeighborFinder(graph, network.max_neighbors)

    @classmethod
    def trainer(cls, dataset: FewShotDataset, settings: EpisodicSettings, resources: Resources) -> EpisodicTrainer:
        """A trainer that starts from pre-trained or random embeddings."""
        from hire.systems.episodic.trainer import EpisodicTrainer

        dimension = settings.model.dimension
        embeddings = first_embeddings(
            dataset, settings.training, dimension, lambda: resources.embeddings(settings.embedding)
        )
        return EpisodicTrainer(cls, dataset, embeddings, settings, resources.device)

    def tensors(self) -> dict[str, Tensor]:
        """The tables and the weights of the network."""
        network = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tables = {"entities": self.entities}
        if self.network.max_neighbors:
            tables["relations"] = self.relations
        return {**tables, **network}

    @classmethod
    def restore(
        cls: type[System],
        dataset: FewShotDataset,
        settings: EpisodicSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> System:
        """A system with saved weights."""
        network: EpisodicNetwork = cls.network_type(settings.model)
        network.load_state_dict(
            {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
        )
        entities = tensors["entities"].to(device)
        relations = tensors["relations"].to(device) if "relations" in tensors else entities[:0]
        return cls(network.to(device).eval(), entities, relations, dataset.graph, settings.training.seed)

    def _entities(self, groups: Sequence[IntArray], hidden: int, *, neighbors: bool) -> list[Entities]:
        """Groups of entities as the network sees them, all of the same tables."""
        rows = [as_tensor(ids).to(self.entities.device) for ids in groups]
        if not neighbors or not self.network.max_neighbors:
            own, table = self._rows(*rows)
            return [Entities(each, table) for each in own]
        finder, out_of_sight = self._finder, np.array(hidden)
        near = [on_device(finder.find(np.asarray(ids, np.int64), out_of_sight), self.entities.device) for ids in groups]
        every, table = self._rows(*rows, *(found.entities for found in near))
        return [
            Entities(own, table, Neighbors(found.relations, ends, found.mask, self.relations, table))
            for own, ends, found in zip(every[: len(rows)], every[len(rows) :], near, strict=True)
        ]

    def _rows(self, *ids: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Entities as rows of a table in single precision: of all entities, or, where that is not kept, of these."""
        if self.entities.dtype == torch.float32:
            return ids, self.entities
        used, rows = torch.unique(torch.cat([part.flatten() for part in ids]), return_inverse=True)
        parts = torch.split(rows, [part.numel() for part in ids])
        return [rows.view(part.shape) for rows, part in zip(parts, ids, strict=True)], self.entities[used].float()

    @torch.no_grad()
    def adapt(self, support: Support) -> EpisodicState:
        """The relation of a support set, whose order means nothing: references are sorted first."""
        self.network.eval()
        hidden = NOTHING if support.relation is None else support.relation % len(self.graph.relations)
        pairs = support.pairs[np.lexsort(support.pairs.T[::-1])]
        size = len(self.entities) if support.candidates is None else len(support.candidates)
        count = self.network.inner_negatives
        drawn = adaptation_negatives(self.seed, pairs[:, 1], size, support.candidates, count)
        groups = [ids[None] for ids in (pairs[:, 0], pairs[:, 1], drawn)]
        heads, tails, negatives = self._entities(groups, hidden, neighbors=True)
        sizes = torch.tensor([size], device=self.entities.device)
        relation = self.network.adapt(Pairs(heads, tails, negatives, candidates=sizes))
        return EpisodicState(_detached(relation), hidden, LastTails())

    @torch.no_grad()
    def score(self, state: EpisodicState, heads: IntArray, tails: IntArray) -> Tensor:
        """The network's scores, [heads, tails], some pairs at a time; those of a head that occurs twice once."""
        network, every = self.network, slice(None)

        def encode(ids: IntArray) -> Any:
            (found,) = self._entities([ids[None]], state.hidden, neighbors=network.neighbors_of_queries)
            return network.encode(found)

        distinct, positions = np.unique(heads, return_inverse=True)
        of_tails = part_of(state.tails.get(tails, encode), (every, None))  # [1, 1, tails, ...]
        columns = max(1, min(len(tails), network.pairs_at_once))
        rows = max(1, network.pairs_at_once // columns)
        scores = torch.empty(len(distinct), len(tails))
        for row in range(0, len(distinct), rows):
            of_heads = network.as_heads(part_of(encode(distinct[row : row + rows]), (every, every, None)))
            for column in range(0, len(tails), columns):
                some_tails = part_of(of_tails, (every, every, slice(column, column + columns)))
                found = network.score(state.relation, of_heads, some_tails)[0]
                scores[row : row + rows, column : column + columns] = found
        return scores[as_tensor(positions)]

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self.entities[as_tensor(entities).to(self.entities.device)].float()


def _detached(value: Any) -> Any:
    """Whatever a network makes, without its graph of gradients."""
    if isinstance(value, tuple):
        parts = [_detached(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.detach() if isinstance(value, Tensor) else value
