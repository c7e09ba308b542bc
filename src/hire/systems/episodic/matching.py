"""Networks that match a query pair with the references of a relation, step by step: GMatching and FSRL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.episodic.fused import is_compiled, matched
from hire.systems.episodic.network import EpisodicNetwork, Pairs, dropped_out, joined
from hire.systems.episodic.settings import EpisodicModelSettings
from hire.util.ranges import Count, Dropout, Few

Similarity = Literal["cosine", "product"]

LEAST_NORM = 1e-8  # a pair whose ends have no neighbors may be zero


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

    def encoded_pairs(self, references: Pairs) -> Tensor:
        """The encoded heads and tails of references, one behind the other, [tasks, shots, 2 * dim]."""
        both: Tensor = self.encode(joined([references.heads[:, :, None], references.tails[:, :, None]], dim=2))
        return both.flatten(2)

    def score(self, relation: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
        """The similarity of matched pairs and their relation, [tasks, q, n]."""
        found: Tensor = self.processor(relation, heads, tails)
        if self.matching.similarity == "cosine":
            relation = F.normalize(relation, dim=-1, eps=LEAST_NORM)
        products = (found @ relation[:, None, :, None]).squeeze(-1)
        if self.matching.similarity == "product":
            return products
        norms: Tensor = torch.linalg.vector_norm(found, dim=-1)
        return products / norms.clamp_min(LEAST_NORM)

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """The loss after dropout."""
        return super().objective(*dropped_out(self.matching.dropout, references, queries))


class MatchingProcessor(nn.Module):
    """An LSTM that reads the same pair q at every step, and the relation s beside its own state.

    h'_{k+1}, c_{k+1} = LSTM(q, [h_k; s], c_k) and h_{k+1} = h'_{k+1} + q, where h_0 and c_0 are zero.
    """

    twice: Tensor

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.pair = nn.Linear(width, 4 * width)
        self.state = nn.Linear(width, 4 * width, bias=False)
        self.relation = nn.Linear(width, 4 * width, bias=False)
        twice = torch.cat([torch.ones(3 * width), torch.full((width,), 2.0)])  # see `matched`
        self.register_buffer("twice", twice, persistent=False)

    def forward(self, relation: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
        """The last h of pairs, [tasks, q, n, width]."""
        shape = (len(heads), heads.shape[1], tails.shape[2], -1)
        pairs = torch.cat([heads.expand(shape), tails.expand(shape)], dim=-1)  # q: [tasks, q, n, width]
        # What heads and tails give is computed once for each of them, not for each pair.
        weight, bias, state = self.pair.weight, self.pair.bias + self.relation(relation), self.state.weight
        if is_compiled(pairs):
            weight, bias, state = weight * self.twice[:, None], bias * self.twice, state * self.twice[:, None]
        of_heads, of_tails = weight.chunk(2, dim=1)
        read_heads = heads @ of_heads.T + bias[:, None, None]  # [tasks, q, 1, 4 * width]
        read_tails = tails @ of_tails.T  # [tasks, q or 1, n, 4 * width]
        if is_compiled(pairs):
            return matched(pairs.flatten(0, 2), read_heads, read_tails, state, self.steps).view_as(pairs)
        found, cell = pairs, torch.zeros_like(pairs)
        for step in range(self.steps):
            gates = read_heads + read_tails + (self.state(found) if step else 0)
            enter, forget, leave, new = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            found = torch.sigmoid(leave) * torch.tanh(cell) + pairs
        return found
