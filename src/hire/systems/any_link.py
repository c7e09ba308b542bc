"""A baseline that learns nothing: tails with which the head is already linked, by whatever relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.systems.base import Capability, FewShotSystem, Support, as_tensor
from hire.util.arrays import IntArray, expand_rows, positions_in
from hire.util.settings import Settings


@dataclass(frozen=True)
class AnyLinkSettings(Settings):
    """What counts as known."""

    train_facts: bool = True  # whether the facts of train tasks are links; if not, the background graph alone has them


class AnyLinkState(NamedTuple):
    """What is left of the graph without the facts of a relation."""

    hidden: int | None  # the relation whose facts are no links
    popularity: Tensor  # [entities]: from 0 to below 1, in the order of degrees


class AnyLink(FewShotSystem):
    """score(h, t) = the number of known facts between h and t, in either direction; popularity breaks ties."""

    name = "any-link"
    summary = "counts the known facts between head and tail, whatever their relation; popularity breaks ties"
    settings_type: ClassVar[type[AnyLinkSettings]] = AnyLinkSettings
    capabilities: frozenset[Capability] = frozenset({"new-entities"})

    def __init__(self, background: KnowledgeGraph, task_facts: IntArray) -> None:
        self.task_facts = task_facts  # [n, 3]: known facts besides the background graph
        self.graph = background.extended([], task_facts)

    def adapt(self, support: Support) -> AnyLinkState:
        """The relation to hide, and how popular entities are without its facts."""
        degrees = self.graph.degrees
        if support.relation is not None:
            own = self.graph.triples[self.graph.triples[:, 1] == support.relation][:, [0, 2]]
            degrees = degrees - np.bincount(own.ravel(), minlength=len(degrees))
        distinct, places = np.unique(degrees, return_inverse=True)
        return AnyLinkState(support.relation, torch.from_numpy((places / len(distinct)).astype(np.float32)))

    def score(self, state: AnyLinkState, heads: IntArray, tails: IntArray) -> Tensor:
        """The number of links, and a fraction for popularity, [heads, tails]."""
        positions, rows = expand_rows(self.graph.offsets, np.asarray(heads))
        edge_types, linked = self.graph.neighbors[positions].T
        if state.hidden is not None:
            seen = edge_types % len(self.graph.relations) != state.hidden
            rows, linked = rows[seen], linked[seen]
        distinct, places = np.unique(tails, return_inverse=True)
        columns = positions_in(distinct, linked)
        cells = (rows * len(distinct) + columns)[columns >= 0]
        counts = np.bincount(cells, minlength=len(heads) * len(distinct)).reshape(len(heads), len(distinct))
        return torch.from_numpy(counts.astype(np.float32)[:, places]) + state.popularity[as_tensor(tails)]

    def tensors(self) -> dict[str, Tensor]:
        """No weights: links are those of the graph."""
        return {}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: AnyLinkSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> AnyLink:
        """The links of the dataset's graph and, if they count, of its train tasks."""
        train = dataset.task_triples("train")
        return cls(dataset.graph, train if settings.train_facts else train[:0])

    def extended(self, graph: KnowledgeGraph) -> AnyLink:
        """The links of the larger graph."""
        return AnyLink(graph, self.task_facts)
