"""The path model: ranks tails by the paths that lead to them and by the tuples they share with reference tails."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.systems.base import REMEMBERED, TAILS_AT_ONCE, Capability, FewShotSystem, LastTails, Resources, Support
from hire.systems.evidence import Evidence
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.network import DEGREE, PathNetwork
from hire.systems.path.readout import Described
from hire.systems.path.settings import PathSettings
from hire.systems.path.tile_kernels import TiledTails
from hire.systems.path.walks import Tails, Walks, walks
from hire.systems.path.whole import WholeGraph, WholeTails
from hire.util.arrays import FloatArray, IntArray
from hire.util.tensors import on_device

if TYPE_CHECKING:
    from hire.systems.path.trainer import PathTrainer

MOST_ASKED = REMEMBERED[-1]  # tails, of which each has a read-out of its own for every head
FEW = 8  # nor are fewer than this part of all entities worth to find out about all of them
KEPT_WHOLE = 2  # relations, in a few hundred bytes for each kind of entity that resembles a reference tail


class AskedTails(NamedTuple):
    """Tails that were asked about, as they are kept for the next head."""

    block: Tails
    described: Described | None
    tiled: TiledTails | None  # in place of it, on a CPU


@dataclass(frozen=True)
class PathState:
    """What the references say about a relation."""

    evidence: ReferenceEvidence
    weights: list[Tensor]  # of the edge types, for every hop and for profiles
    blocks: LastTails[AskedTails] = field(default_factory=LastTails)
    whole: list[WholeTails] = field(default_factory=list)  # one, while it is kept


class PathModel(FewShotSystem):
    """A trained path network over a graph of known facts."""

    name = "path"
    summary = "message passing over the paths between head and candidate, weighted by what the references say"
    paper = "in the manner of Zhu et al., Neural Bellman-Ford Networks, NeurIPS 2021, conditioned on references"
    settings_type: ClassVar[type[PathSettings]] = PathSettings
    capabilities: frozenset[Capability] = frozenset({"explain", "new-entities"})

    def __init__(self, network: PathNetwork, graph: EvidenceGraph) -> None:
        self.network = network
        self.graph = graph
        self.device = next(network.parameters()).device
        self._latest: deque[ref[PathState]] = deque()  # the relations that keep all entities as tails

    @classmethod
    def trainer(cls, dataset: FewShotDataset, settings: PathSettings, resources: Resources) -> PathTrainer:
        """A trainer on simulated tasks."""
        from hire.systems.path.trainer import PathTrainer

        return PathTrainer(dataset, settings, resources.device)

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the network."""
        return dict(self.network.state_dict())

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: PathSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> PathModel:
        """A model with the saved network, and the dataset's facts as evidence."""
        network = PathNetwork(settings.model)
        network.load_state_dict(tensors)
        return cls(network.to(device).eval(), EvidenceGraph.of(dataset, settings.evidence))

    def extended(self, graph: KnowledgeGraph) -> PathModel:
        """The same model with the facts of new entities as evidence."""
        return PathModel(self.network, self.graph.extended(graph))

    @torch.no_grad()
    def adapt(self, support: Support) -> PathState:
        """Find out what the references say."""
        self.network.eval()
        evidence = ReferenceEvidence(self.graph, support.pairs, support.relation)
        features = torch.from_numpy(evidence.edge_features).to(self.device)
        return PathState(evidence, self.network.weigh(features))

    def explain(self, state: PathState, head: int, tail: int, *, most: int = 10) -> Evidence:
        """Rules with their paths, tuples shared with reference tails, and the most similar reference."""
        from hire.systems.path.explain import explain_path

        return explain_path(self, state, head, tail, most=most)

    @torch.no_grad()
    def score(self, state: PathState, heads: IntArray, tails: IntArray) -> Tensor:
        """The mean score of the members, [heads, tails].

        One head after the other: products of matrices round differently for other numbers of rows, and so the scores
        of a head are the same bits whatever else is asked.
        """
        distinct, positions = np.unique(np.asarray(heads, np.int64), return_inverse=True)
        scores = torch.empty(len(distinct), len(tails))
        if self._asks_for_all(tails):
            whole = self._whole_tails(state)
            for row, head in enumerate(distinct):
                scores[row] = torch.from_numpy(self._scores_of_all(state, whole, int(head))[tails])
        else:
            asked = state.blocks.get(tails, partial(self._asked, state))
            for row, head in enumerate(distinct):
                scores[row] = self._scores_of(state, asked, int(head))
        return scores[torch.from_numpy(positions)]

    def score_many(self, state: PathState, heads: IntArray, tails: IntArray) -> Tensor:
        """The same, for any number of tails."""
        return (self.score if self._asks_for_all(tails) else super().score_many)(state, heads, tails)

    def _asks_for_all(self, tails: IntArray) -> bool:
        """Whether there are so many tails that all entities are looked at."""
        return self.device.type == "cpu" and len(tails) > max(MOST_ASKED, self.graph.entity_count // FEW)

    def _scores_of(self, state: PathState, asked: AskedTails, head: int) -> Tensor:
        """The scores of some tails for one head, [tails]."""
        walked = walks(state.evidence, np.array([head]), asked.block)
        if asked.tiled is None:
            return self.pair_scores(state, asked.block, walked, asked.described)
        return self.network.mean_scores(state.weights, asked.tiled, walked)

    def _scores_of_all(self, state: PathState, whole: WholeTails, head: int) -> FloatArray:
        """The scores of all entities as tails of one head, [entities]."""
        scores, linked = whole.unlinked_scores(head), whole.linked(head)
        for start in range(0, len(linked), TAILS_AT_ONCE):
            some = linked[start : start + TAILS_AT_ONCE]
            scores[some] = self._scores_of(state, self._asked(state, some), head).numpy()
        return scores

    @cached_property
    def _whole_graph(self) -> WholeGraph:
        return WholeGraph(self.graph)

    def _whole_tails(self, state: PathState) -> WholeTails:
        """All entities as tails of a relation, which is kept for the relations that were asked about last."""
        for known in state.whole[:1]:
            return known
        made = WholeTails(self._whole_graph, self.network, state.weights, state.evidence)
        state.whole[:] = [made]
        self._latest.append(ref(state))
        while len(self._latest) > KEPT_WHOLE:
            oldest = self._latest.popleft()()
            if oldest is not None:
                oldest.whole.clear()
        return made

    def _asked(self, state: PathState, entities: IntArray) -> AskedTails:
        """Some entities as tails, and their part of the read-out."""
        block = Tails.of(state.evidence, entities)
        described = self._describe(state, block)
        if self.device.type != "cpu":
            return AskedTails(block, described, None)
        return AskedTails(block, None, self.network.tiled(described, block.inputs.features[:, DEGREE]))

    def _describe(self, state: PathState, block: Tails) -> Described:
        return self.network.describe(state.weights, on_device(block.inputs, self.device))

    def pair_scores(
        self,
        state: PathState,
        block: Tails,
        walked: Walks,
        described: Described | None = None,
        edge_mask: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The mean score of the members for each pair of some walks and a block of tails, [pairs]."""
        degrees = block.inputs.features[:, DEGREE].to(self.device)
        of_tails = self._describe(state, block) if described is None else described
        walked = on_device(walked, self.device)
        return self.network.score(state.weights, of_tails, degrees, walked, edge_mask).mean(dim=0).cpu()
