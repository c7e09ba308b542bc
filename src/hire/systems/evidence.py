"""What speaks for and against an answer, in ids of entities and of edge types, whoever found it.

An edge type is a relation, or its inverse: relation r has the edge types r and r + relations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar


@dataclass(frozen=True)
class Rule:
    """Paths over the same edge types."""

    edge_types: tuple[int, ...]
    support: int  # references that such a path links, too
    references: int
    weight: float  # what the score loses without the facts on its paths; below zero, they speak against the answer
    paths: tuple[tuple[int, ...], ...]  # from head to tail, the entities on each; what counts most comes first


@dataclass(frozen=True)
class SharedTuple:
    """A edge type and an entity that it leads to, from the tail and from reference tails alike."""

    edge_type: int
    entity: int
    support: int  # reference tails that have it
    references: int
    weight: float  # what the score loses without the tail's fact; below zero, it speaks against the answer


Piece = TypeVar("Piece", Rule, SharedTuple)


def strongest_first(pieces: list[Piece]) -> tuple[Piece, ...]:
    """What speaks for an answer, the weightiest first, then what speaks against it, the weightiest first."""
    return tuple(sorted(pieces, key=lambda piece: (piece.weight < 0, -abs(piece.weight), -piece.support)))


@dataclass(frozen=True)
class SimilarReference:
    """A reference, and how like the head its head is and how like the tail its tail is, from 0 to 1."""

    head: int
    tail: int
    head_similarity: float
    tail_similarity: float


@dataclass(frozen=True)
class Evidence:
    """What speaks for a tail, the weightiest first, and then what speaks against it, the weightiest first."""

    score: float
    rules: tuple[Rule, ...]
    shared: tuple[SharedTuple, ...]
    most_similar: SimilarReference

    def scaled(self, factor: float) -> Evidence:
        """The same where scores count so many times as much; what then counts for nothing is no evidence."""
        rules = (replace(rule, weight=factor * rule.weight) for rule in self.rules if factor)
        shared = (replace(each, weight=factor * each.weight) for each in self.shared if factor)
        return replace(self, score=factor * self.score, rules=tuple(rules), shared=tuple(shared))
