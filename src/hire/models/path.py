"""The path model: ranks tails by the paths that lead to them and by what they share with the reference tails."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hire.evidence import EvidenceGraph
from hire.levels.path import DEGREE, PathNetwork
from hire.models.base import FewShotModel
from hire.references import ReferenceEvidence
from hire.vocabulary import IntArray
from hire.walks import Tails, walks

PAIRS_AT_ONCE = 24_000


@dataclass(frozen=True)
class PathRelation:
    """A relation as its references show it."""

    evidence: ReferenceEvidence
    weights: list[list[Tensor]]  # of each member, for every hop and for profiles
    _last: list[tuple[Tails, list[Tensor]]] = field(default_factory=list)  # the tails that were last asked for

    def tails(self, network: PathNetwork, entities: IntArray) -> tuple[Tails, list[Tensor]]:
        """Some entities as tails, and what each member makes of them; remembered until others are asked for."""
        if not self._last or not np.array_equal(self._last[0][0].entities, entities):
            block = Tails.of(self.evidence, entities)
            described = [
                member.describe(weights, block.inputs)
                for member, weights in zip(network.members, self.weights, strict=True)
            ]
            self._last[:] = [(block, described)]
        return self._last[0]


class PathModel(FewShotModel):
    """A trained path network over a graph of known facts."""

    name = "path"

    def __init__(self, network: PathNetwork, graph: EvidenceGraph) -> None:
        self.network = network
        self.graph = graph

    @torch.no_grad()
    def adapt(
        self, references: IntArray, candidates: IntArray | None = None, *, hidden: int | None = None
    ) -> PathRelation:
        """What the references say; of a hidden relation, no fact of the graph is looked at."""
        self.network.eval()
        evidence = ReferenceEvidence(self.graph, references, hidden)
        features = torch.from_numpy(evidence.kind_features)
        return PathRelation(evidence, [member.weigh(features) for member in self.network.members])

    @torch.no_grad()
    def score(self, relation: PathRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """The mean score of the members, [heads, tails]."""
        self.network.eval()
        distinct, places = np.unique(np.asarray(heads, np.int64), return_inverse=True)
        block, described = relation.tails(self.network, tails)
        degrees = block.inputs.features[:, DEGREE]
        at_once = max(1, PAIRS_AT_ONCE // max(1, len(tails)))
        scores = torch.empty(len(distinct), len(tails))
        for start in range(0, len(distinct), at_once):
            some = distinct[start : start + at_once]
            walked = walks(relation.evidence, some, block)
            of_members = [
                member(weights, of_tails, degrees, walked)
                for member, weights, of_tails in zip(self.network.members, relation.weights, described, strict=True)
            ]
            scores[start : start + at_once] = torch.stack(of_members).mean(dim=0).view(len(some), -1)
        return scores[torch.from_numpy(places)]
