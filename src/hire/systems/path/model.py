"""The path model: ranks tails by the paths that lead to them and by what they share with the reference tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.systems.base import FewShotModel, LastTails
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.network import DEGREE, PathNetwork
from hire.systems.path.walks import Tails, Walks, walks
from hire.util.arrays import IntArray

PAIRS_AT_ONCE = 24_000


@dataclass(frozen=True)
class PathRelation:
    """A relation as its references show it."""

    evidence: ReferenceEvidence
    weights: list[list[Tensor]]  # of each member, for every hop and for profiles
    blocks: LastTails[tuple[Tails, list[Tensor]]] = field(default_factory=LastTails)


class PathModel(FewShotModel):
    """A trained path network over a graph of known facts."""

    name = "path"

    def __init__(self, network: PathNetwork, graph: EvidenceGraph, hidden: int | None = None) -> None:
        self.network = network
        self.graph = graph
        self.hidden = hidden  # a relation, no fact of which is looked at

    def hiding(self, relation: int) -> PathModel:
        """The same model with a hidden relation."""
        return PathModel(self.network, self.graph, relation)

    def extended(self, graph: KnowledgeGraph) -> PathModel:
        """The same model with the new entities' facts as evidence."""
        return PathModel(self.network, self.graph.extended(graph), self.hidden)

    @torch.no_grad()
    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> PathRelation:
        """What the references say."""
        self.network.eval()
        evidence = ReferenceEvidence(self.graph, references, self.hidden)
        features = torch.from_numpy(evidence.kind_features)
        return PathRelation(evidence, [member.weigh(features) for member in self.network.members])

    @torch.no_grad()
    def score(self, relation: PathRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """The mean score of the members, [heads, tails]."""
        distinct, places = np.unique(np.asarray(heads, np.int64), return_inverse=True)
        block, described = relation.blocks.get(tails, partial(self._block, relation))
        at_once = max(1, PAIRS_AT_ONCE // max(1, len(tails)))
        scores = torch.empty(len(distinct), len(tails))
        for start in range(0, len(distinct), at_once):
            some = distinct[start : start + at_once]
            walked = walks(relation.evidence, some, block)
            scores[start : start + at_once] = self.pair_scores(relation, block, walked, described).view(len(some), -1)
        return scores[torch.from_numpy(places)]

    def _block(self, relation: PathRelation, entities: IntArray) -> tuple[Tails, list[Tensor]]:
        """Some entities as tails, and what each member makes of them."""
        block = Tails.of(relation.evidence, entities)
        return block, self._describe(relation, block)

    def _describe(self, relation: PathRelation, block: Tails) -> list[Tensor]:
        return [
            member.describe(weights, block.inputs)
            for member, weights in zip(self.network.members, relation.weights, strict=True)
        ]

    def pair_scores(
        self,
        relation: PathRelation,
        block: Tails,
        walked: Walks,
        described: list[Tensor] | None = None,
        counted: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The mean score of the members for each pair of some walks to a block of tails, [pairs]."""
        degrees = block.inputs.features[:, DEGREE]
        of_members = [
            member(weights, of_tails, degrees, walked, counted)
            for member, weights, of_tails in zip(
                self.network.members, relation.weights, described or self._describe(relation, block), strict=True
            )
        ]
        return torch.stack(of_members).mean(dim=0)
