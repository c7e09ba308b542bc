"""Networks that make one vector of a pair and its neighbors, to compare with those of references: FAAN and CIAN."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from hire.systems.episodic.network import Entities, EpisodicNetwork, Pairs, dropped_out, joined, part_of


class PairNetwork(EpisodicNetwork):
    """The vector of a pair depends on both ends at once: little can be encoded before they are paired."""

    pairs_at_once: ClassVar[int] = 1 << 12
    neighbor_dropout: float = 0.0  # of the vectors of neighbors and their relations

    def encode(self, entities: Entities) -> Any:
        """The entities themselves, unless a system says more: their neighbors have been looked up."""
        return entities

    @abstractmethod
    def pairs(self, heads: Any, tails: Any) -> Tensor:
        """The vectors [tasks, q, n, width] of encoded heads [tasks, q, 1] with tails [tasks, q or 1, n]."""

    def adapt(self, references: Pairs) -> Tensor:
        """The vectors of the references, [tasks, shots, width]."""
        every = slice(None)
        both = self.encode(joined([references.heads[:, :, None], references.tails[:, :, None]], dim=2))
        heads, tails = (part_of(both, (every, every, own)) for own in (slice(1), slice(1, None)))
        return self.pairs(self.as_heads(heads), tails)[:, :, 0]

    def score(self, relation: Tensor, heads: Any, tails: Any) -> Tensor:
        """q . sum of b_k s_k, where b is the softmax of q . s_k / sqrt(width) over the references s, [tasks, q, n]."""
        pairs = self.pairs(heads, tails)
        products = (pairs.flatten(1, 2) @ relation.transpose(-1, -2)).view(*pairs.shape[:3], -1)  # [..., shots]
        weights = torch.softmax(products / math.sqrt(pairs.shape[-1]), dim=-1)
        return (weights * products).sum(dim=-1)

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """The loss after dropout."""
        return super().objective(*dropped_out(self.neighbor_dropout, references, queries))
