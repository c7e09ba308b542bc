"""Evidence for and against an answer, as ids of entities and edge types, whichever system found it.

An edge type is a relation or its inverse: relation r has the edge types r and r + relations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar


@dataclass(frozen=True)
class Rule:
    """Paths over the same edge types."""

    # Of R relations: r and, backwards, r + R; r + 2R and r + 3R where the fact is one of an entity of the same name;
    # 4R between entities of the same name.
    edge_types: tuple[int, ...]
    support: int  # references that are linked by such a path too
    references: int
    weight: float  # what the score loses without the facts on its paths; if negative, they speak against the answer
    paths: tuple[tuple[int, ...], ...]  # the nodes on each path, from head to tail; the most important path first


@dataclass(frozen=True)
class SharedTuple:
    """An edge type and the entity it leads to, from the tail and from reference tails alike."""

    edge_type: int  # as in `Rule`
    entity: int
    support: int  # reference tails that have it
    references: int
    weight: float  # what the score loses without the tail's fact; if negative, it speaks against the answer


Piece = TypeVar("Piece", Rule, SharedTuple)


def strongest_first(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Evidence for an answer, the strongest first, then evidence against it, the strongest first."""
    return tuple(sorted(pieces, key=lambda piece: (piece.weight < 0, -abs(piece.weight), -piece.support)))


@dataclass(frozen=True)
class SimilarReference:
    """A reference, and the similarity of its head to the head and of its tail to the tail, from 0 to 1."""

    head: int
    tail: int
    head_similarity: float
    tail_similarity: float


@dataclass(frozen=True)
class Evidence:
    """Evidence for a tail, the strongest first, and then against it, the strongest first."""

    score: float
    rules: tuple[Rule, ...]
    shared: tuple[SharedTuple, ...]
    most_similar: SimilarReference

    def scaled(self, factor: float) -> Evidence:
        """The same evidence with scores and weights multiplied by a factor; with 0, there is none left."""
        rules = (replace(rule, weight=factor * rule.weight) for rule in self.rules if factor)
        shared = (replace(each, weight=factor * each.weight) for each in self.shared if factor)
        return replace(self, score=factor * self.score, rules=tuple(rules), shared=tuple(shared))
