"""What the network of a system is, and what it sees of entities: their vectors and, if it asks, their neighbors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.embeddings.distances import distance, squared_distances
from hire.systems.episodic.losses import crowd, margin_losses, softmax_losses
from hire.systems.episodic.settings import EpisodicModelSettings


@dataclass(frozen=True)
class Neighbors:
    """The neighbors of some entities, as rows of two tables; padding has the row 0 and counts nothing."""

    relations: Tensor  # [..., neighbors]: rows of relation_table
    entities: Tensor  # [..., neighbors]: rows of entity_table
    mask: Tensor  # [..., neighbors] bool: False for padding
    relation_table: Tensor  # [n, dim]
    entity_table: Tensor  # [n, dim]

    @property
    def relation_vectors(self) -> Tensor:
        """The vectors of the edges' relations, [..., neighbors, dim]."""
        return F.embedding(self.relations, self.relation_table)

    @property
    def entity_vectors(self) -> Tensor:
        """The vectors of the neighbors, [..., neighbors, dim]."""
        return F.embedding(self.entities, self.entity_table)

    def weighted(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of relation and of entity vectors with weights [..., neighbors], two of [..., dim].

        Takes far less memory than the vectors of all neighbors would.
        """
        parts = ((self.relations, self.relation_table), (self.entities, self.entity_table))
        of_relations, of_entities = (pooled(rows, table, weights, self.mask) for rows, table in parts)
        return of_relations, of_entities

    def linear(self, weight: Tensor) -> Tensor:
        """W [r; e] of each neighbor, [..., neighbors, outputs], for a weight [outputs, 2 * dim].

        W is applied to each distinct relation and entity once, then summed.
        """
        parts = ((self.relations, self.relation_table), (self.entities, self.entity_table))
        projected = []
        for (rows, table), of_part in zip(parts, weight.chunk(2, dim=1), strict=True):
            if len(table) > rows.numel():  # leave out what is no neighbor
                used, rows = torch.unique(rows, return_inverse=True)
                table = table[used]
            projected.append(F.embedding(rows, table @ of_part.T))
        return projected[0] + projected[1]

    def even(self) -> Tensor:
        """Weights of a mean over the neighbors, [..., neighbors]; zero where there are none."""
        return self.mask / self.mask.sum(dim=-1, keepdim=True).clamp_min(1)

    def __getitem__(self, index: Any) -> Neighbors:
        return self._each(lambda part: part[index])

    def reshape(self, *shape: int) -> Neighbors:
        """The same with other leading dimensions."""
        return self._each(lambda part: part.reshape(*shape, part.shape[-1]))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Neighbors:
        return replace(self, relations=change(self.relations), entities=change(self.entities), mask=change(self.mask))


@dataclass(frozen=True)
class Entities:
    """Some entities of any shape, as a network sees them; vectors are looked up when they are asked for.

    An index selects from the leading dimensions, as with a tensor.
    """

    rows: Tensor  # [...]: rows of the table
    table: Tensor  # [n, dim]
    around: Neighbors | None = None  # [..., neighbors]; None if the network does not look at them

    @property
    def vectors(self) -> Tensor:
        """The embeddings, [..., dim]."""
        return F.embedding(self.rows, self.table)

    @property
    def neighbors(self) -> Neighbors:
        """The neighbors, without any edge that the task must not see."""
        if self.around is None:
            raise TypeError("the network did not ask for the neighbors of these entities")
        return self.around

    @property
    def shape(self) -> torch.Size:
        """The leading dimensions."""
        return self.rows.shape

    def __getitem__(self, index: Any) -> Entities:
        return Entities(self.rows[index], self.table, None if self.around is None else self.around[index])

    def reshape(self, *shape: int) -> Entities:
        """The same with other leading dimensions."""
        return Entities(
            self.rows.reshape(shape), self.table, None if self.around is None else self.around.reshape(*shape)
        )


class Pairs(NamedTuple):
    """The references or the queries of some tasks, with negatives; see `EpisodeBatch`."""

    heads: Entities  # [tasks, pairs]
    tails: Entities  # [tasks, pairs]
    negatives: Entities  # [tasks, pairs, n], or [tasks, n] and shared by the pairs of a task
    false: Tensor | None = None  # [tasks, pairs, n] bool: where a negative is not a true tail; None for everywhere
    candidates: Tensor | None = None  # [tasks]: number of candidates that shared negatives were drawn from


class EpisodicNetwork(nn.Module, ABC):
    """The equations of a system: it encodes entities, learns relations from references, and scores pairs.

    Whatever a network passes from one method to another consists of tensors and `Entities` in tuples, so that it can be
    cut into parts along its leading dimensions.
    """

    max_neighbors: int = 0  # of an entity that the network looks at; 0 for none
    neighbors_of_queries: ClassVar[bool] = True  # whether it looks at those of queries, or of references alone
    inner_negatives: int = 0  # that references are contrasted with after training; 0 if `adapt` needs none
    pairs_at_once: ClassVar[int] = 1 << 24  # that `score` is asked for after training; bounds its memory

    def __init__(self, settings: EpisodicModelSettings) -> None:
        super().__init__()
        self.settings = settings
        start = torch.tensor(math.log(settings.temperature))
        self.log_temperature = nn.Parameter(start, requires_grad=settings.loss == "softmax")

    def encode(self, entities: Entities) -> Any:
        """What is known of entities before they are paired, [..., width]: their vectors, unless a system says more."""
        return entities.vectors

    @abstractmethod
    def adapt(self, references: Pairs) -> Any:
        """The relations of some tasks' references; all its tensors begin with [tasks]."""

    @abstractmethod
    def score(self, relation: Any, heads: Any, tails: Any) -> Tensor:
        """How well pairs fit their relations, [tasks, q, n]; more is better.

        heads [tasks, q, 1, ...] and tails [tasks, q or 1, n, ...] are encoded.
        """

    def at_step(self, step: int) -> None:
        """Get ready for a step of training, in the mode of training: nothing, unless a system says more."""

    def objective(self, references: Pairs, queries: Pairs) -> Tensor:
        """What a step minimizes: the mean loss of the queries, unless a system adds more."""
        return self.losses(self.adapt(references), queries).mean()

    def as_heads(self, heads: Any) -> Any:
        """Encoded heads [tasks, q, 1, ...], with what is the same for all pairs that they are the heads of."""
        return heads

    def losses(self, relation: Any, pairs: Pairs) -> Tensor:
        """The loss of each pair, [tasks, pairs]."""
        shared = len(pairs.negatives.shape) == len(pairs.heads.shape)
        if pairs.negatives.around is not None:
            return self._of_all(relation, pairs, shared)
        heads = part_of(self.encode(pairs.heads), (slice(None), slice(None), None))
        tails = part_of(self.encode(pairs.tails), (slice(None), slice(None), None))
        negatives = self.encode(pairs.negatives)
        if shared:
            negatives = part_of(negatives, (slice(None), None))
        positive = self.score(relation, heads, tails)[..., 0]  # [tasks, pairs]
        return self.contrasted(positive, self.score(relation, heads, negatives), pairs)

    def _of_all(self, relation: Any, pairs: Pairs, shared: bool) -> Tensor:
        """`losses` of entities whose neighbors are looked at: all of them are encoded at once."""
        every, (_, count) = slice(None), pairs.heads.shape
        if not shared:
            parts = [pairs.heads[:, :, None], pairs.tails[:, :, None], pairs.negatives]
            found = self.encode(joined(parts, dim=2))  # [tasks, pairs, 2 + n, ...]
            heads, tails = (part_of(found, (every, every, own)) for own in (slice(1), slice(1, None)))
            scores = self.score(relation, self.as_heads(heads), tails)  # [tasks, pairs, 1 + n]
            return self.contrasted(scores[..., 0], scores[..., 1:], pairs)
        found = self.encode(joined([pairs.heads, pairs.tails, pairs.negatives], dim=1))  # [tasks, 2 * pairs + n, ...]
        heads, tails = (part_of(found, (every, own, None)) for own in (slice(count), slice(count, 2 * count)))
        heads, negatives = self.as_heads(heads), part_of(found, (every, None, slice(2 * count, None)))
        positive = self.score(relation, heads, tails)[..., 0]  # [tasks, pairs]
        return self.contrasted(positive, self.score(relation, heads, negatives), pairs)

    def contrasted(self, positive: Tensor, negative: Tensor, pairs: Pairs) -> Tensor:
        """The loss of pairs, from their scores [tasks, pairs] and those of their negatives [tasks, pairs, n]."""
        settings = self.settings
        if settings.loss == "margin":
            return margin_losses(positive, negative, settings.margin, pairs.false)
        stands_for = None
        if pairs.candidates is not None:
            drawn = negative.shape[-1]
            stands_for = crowd(pairs.candidates, drawn, full=settings.full_negatives, crowding=settings.crowding)
        return softmax_losses(positive, negative, self.log_temperature.exp(), pairs.false, stands_for)


def dropout_factors(shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
    """What dropout multiplies values with: 0 in a share of the places, and so much in the others that the mean is 1.

    A place takes 16 random bits, so that four of them share what the generator makes at a time.
    """
    count = int(torch.Size(shape).numel())
    drawn = torch.empty(-(-count // 4), dtype=torch.int64, device=like.device).random_(-(2**63), None)
    dropped = round(rate * 2**16)
    kept = drawn.view(torch.int16)[:count].view(shape) >= dropped - 2**15
    return kept.to(like.dtype).mul_(2**16 / max(1, 2**16 - dropped))


def dropout(values: Tensor, rate: float) -> Tensor:
    """Values after dropout; several times as fast as PyTorch's on a CPU."""
    return values * dropout_factors(tuple(values.shape), rate, values) if rate else values


def dropped_out(rate: float, *groups: Pairs) -> list[Pairs]:
    """The same pairs after dropout on the vectors of neighbors and relations, once for each of them in a step."""
    near = groups[0].heads.neighbors
    relations, entities = (dropout(table, rate) for table in (near.relation_table, near.entity_table))

    def seen(of: Entities) -> Entities:
        return replace(of, around=replace(of.neighbors, relation_table=relations, entity_table=entities))

    return [
        pairs._replace(heads=seen(pairs.heads), tails=seen(pairs.tails), negatives=seen(pairs.negatives))
        for pairs in groups
    ]


def joined(parts: Sequence[Entities], dim: int) -> Entities:
    """Entities of the same tables, one after another along a dimension."""
    near = [part.neighbors for part in parts]
    if any(part.entity_table is not near[0].entity_table for part in near):  # loops that are compiled check no index
        raise ValueError("entities of different tables cannot be joined")
    widest = max(part.mask.shape[-1] for part in near)

    def together(name: str) -> Tensor:
        each = (getattr(part, name) for part in near)
        return torch.cat([F.pad(part, (0, widest - part.shape[-1])) for part in each], dim=dim)

    around = replace(near[0], **{name: together(name) for name in ("relations", "entities", "mask")})
    return Entities(torch.cat([part.rows for part in parts], dim=dim), parts[0].table, around)


def part_of(value: Any, index: Any) -> Any:
    """Some of the leading dimensions of whatever a network makes: tensors and entities, or none of them, in tuples."""
    if isinstance(value, tuple):
        parts = [part_of(part, index) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return None if value is None else value[index]


def pair_distances(heads: Tensor, tails: Tensor) -> Tensor:
    """||h - t|| of heads [tasks, q, 1, dim] and tails [tasks, q or 1, n, dim]: [tasks, q, n]."""
    if tails.shape[1] == 1:
        return distance(squared_distances(heads[:, :, 0], tails[:, 0]))
    return distance((heads - tails).square().sum(dim=-1))


def pooled(rows: Tensor, table: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """The sums of some rows [..., n] of a table [m, dim] with weights [..., n], where the mask is true: [..., dim].

    Most entities have far fewer neighbors than the one with the most, so that most of the rows are padding.
    """
    counts = mask.sum(dim=-1).flatten()
    flat = F.embedding_bag(rows[mask], table, counts.cumsum(0) - counts, mode="sum", per_sample_weights=weights[mask])
    return flat.view(*rows.shape[:-1], -1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """A softmax over the last dimension, where the mask allows; all zero where it allows nothing."""
    scores = scores.masked_fill(~mask, -torch.inf)
    largest = scores.amax(dim=-1, keepdim=True).detach().clamp_min(torch.finfo(scores.dtype).min)
    exponents = (scores - largest).exp()
    return exponents / exponents.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
