"""Networks that match a query pair with the references of a relation, step by step: GMatching and FSRL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.episodic.network import EpisodicNetwork, Pairs, dropped_out
from hire.systems.episodic.settings import EpisodicModelSettings
from hire.util.ranges import Count, Dropout, Few

Similarity = Literal["cosine", "product"]


@dataclass(frozen=True)
class MatchingModelSettings(EpisodicModelSettings):
    """What an entity is encoded from, and how a pair is matched."""

    max_neighbors: Count = 50  # of each entity, in file order
    dropout: Dropout = 0.2  # of the vectors of neighbors and their relations
    matching_steps: Few = 2  # of the LSTM that compares a pair with the references
    similarity: Similarity = "cosine"  # of what the LSTM ends with and the references, or their inner product


class MatchingNetwork(EpisodicNetwork):
    """An entity is its encoded neighborhood, [..., dim], and a relation one vector made of pairs, [tasks, 2 * dim]."""

    pairs_at_once: ClassVar[int] = 1 << 13

    def __init__(self, settings: MatchingModelSettings) -> None:
        super().__init__(settings)
        self.matching = settings
        self.max_neighbors = settings.max_neighbors
        self.processor = MatchingProcessor(2 * settings.dimension, settings.matching_steps)

    def score(self, relation: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
        """The similarity of matched pairs and their relation, [tasks, q, n]."""
        matched: Tensor = self.processor(relation, heads, tails)
        if self.matching.similarity == "cosine":
            return F.cosine_similarity(matched, relation[:, None, None], dim=-1)
        return (matched @ relation[:, None, :, None]).squeeze(-1)

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """The loss after dropout."""
        return super().objective(*dropped_out(self.matching.dropout, references, queries))


class MatchingProcessor(nn.Module):
    """An LSTM that reads the same pair q at every step, and the relation s beside its own state.

    h'_{k+1}, c_{k+1} = LSTM(q, [h_k; s], c_k) and h_{k+1} = h'_{k+1} + q, where h_0 and c_0 are zero.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.pair = nn.Linear(width, 4 * width)
        self.state = nn.Linear(width, 4 * width, bias=False)
        self.relation = nn.Linear(width, 4 * width, bias=False)

    def forward(self, relation: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
        """The last h of pairs, [tasks, q, n, width]."""
        shape = (len(heads), heads.shape[1], tails.shape[2], -1)
        pairs = torch.cat([heads.expand(shape), tails.expand(shape)], dim=-1)  # q: [tasks, q, n, width]
        # What heads and tails give is computed once for each of them, not for each pair.
        of_heads, of_tails = self.pair.weight.chunk(2, dim=1)
        read = heads @ of_heads.T + (self.pair.bias + self.relation(relation))[:, None, None]
        read = read + tails @ of_tails.T  # [tasks, q, n, 4 * width]
        matched, cell = pairs, torch.zeros_like(pairs)
        for step in range(self.steps):
            gates = read + self.state(matched) if step else read
            enter, forget, leave, new = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            matched = torch.sigmoid(leave) * torch.tanh(cell) + pairs
        return matched
