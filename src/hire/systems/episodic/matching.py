"""Networks that match a query pair with the references of a relation, step by step: GMatching and FSRL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.episodic.fused import is_compiled, matched
from hire.systems.episodic.network import EpisodicNetwork, Pairs, dropout, dropped_out, joined
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
    pair_dropout: Dropout | None = None  # of a feed-forward layer that every pair passes first; None leaves it out


class MatchingNetwork(EpisodicNetwork):
    """An entity is its encoded neighborhood, [..., dim], and a relation one vector made of pairs, [tasks, 2 * dim]."""

    pairs_at_once: ClassVar[int] = 1 << 13

    def __init__(self, settings: MatchingModelSettings) -> None:
        super().__init__(settings)
        self.matching = settings
        self.max_neighbors = settings.max_neighbors
        width, rate = 2 * settings.dimension, settings.pair_dropout
        self.pair_layer: nn.Module = nn.Identity() if rate is None else PairLayer(width, rate)
        self.processor = MatchingProcessor(width, settings.matching_steps)

    def encoded_pairs(self, references: Pairs) -> Tensor:
        """The encoded heads and tails of references, one behind the other, [tasks, shots, 2 * dim]."""
        both: Tensor = self.encode(joined([references.heads[:, :, None], references.tails[:, :, None]], dim=2))
        pairs: Tensor = self.pair_layer(both.flatten(2))
        return pairs

    def score(self, relation: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
        """The similarity of matched pairs and their relation, [tasks, q, n]."""
        if self.matching.pair_dropout is None:
            found: Tensor = self.processor(relation, heads, tails)
        else:
            found = self.processor.of_pairs(relation, self.pair_layer(side_by_side(heads, tails)))
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


class PairLayer(nn.Module):
    """A feed-forward layer with a residual and a layer norm, in the authors' code of both systems."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.hidden, self.output = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)
        for layer in (self.hidden, self.output):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, pairs: Tensor) -> Tensor:
        """Pairs [..., width] with entries of mean 0 and variance 1, before they are scaled."""
        found = dropout(self.output(F.relu(self.hidden(pairs))), self.rate if self.training else 0.0)
        normed: Tensor = self.norm(found + pairs)
        return normed


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
        """The last h of heads beside tails, [tasks, q, n, width]."""
        weight, bias, state = self._read(relation, heads)
        # What heads and tails give is computed once for each of them, not for each pair.
        of_heads, of_tails = weight.chunk(2, dim=1)
        read = heads @ of_heads.T + bias, tails @ of_tails.T  # [tasks, q, 1, 4 * width], [tasks, q or 1, n, 4 * width]
        return self._last(side_by_side(heads, tails), *read, state)

    def of_pairs(self, relation: Tensor, pairs: Tensor) -> Tensor:
        """The last h of pairs [tasks, q, n, width]."""
        weight, bias, state = self._read(relation, pairs)
        return self._last(pairs, bias.expand(-1, pairs.shape[1], -1, -1), pairs @ weight.T, state)

    def _read(self, relation: Tensor, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What pairs are multiplied with, what the relation adds, [tasks, 1, 1, 4 * width], and the weight of h."""
        weight, bias, state = self.pair.weight, self.pair.bias + self.relation(relation), self.state.weight
        if is_compiled(like):
            weight, bias, state = weight * self.twice[:, None], bias * self.twice, state * self.twice[:, None]
        return weight, bias[:, None, None], state

    def _last(self, pairs: Tensor, read_heads: Tensor, read_tails: Tensor, state: Tensor) -> Tensor:
        if is_compiled(pairs):
            return matched(pairs.flatten(0, 2), read_heads, read_tails, state, self.steps).view_as(pairs)
        found, cell = pairs, torch.zeros_like(pairs)
        for step in range(self.steps):
            gates = read_heads + read_tails + (self.state(found) if step else 0)
            enter, forget, leave, new = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            found = torch.sigmoid(leave) * torch.tanh(cell) + pairs
        return found


def side_by_side(heads: Tensor, tails: Tensor) -> Tensor:
    """q = [h; t] of heads [tasks, q, 1, dim] and tails [tasks, q or 1, n, dim]: [tasks, q, n, 2 * dim]."""
    shape = (len(heads), heads.shape[1], tails.shape[2], -1)
    return torch.cat([heads.expand(shape), tails.expand(shape)], dim=-1)
