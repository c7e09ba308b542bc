"""What speaks for an answer, in numbers of entities and of kinds of edges, whoever found it.

A kind of edge is a relation, or its inverse: relation r has the kinds r and r + relations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Path:
    """A way from the head to the tail, and how much it counted."""

    entities: tuple[int, ...]  # the head, what lies between, the tail
    weight: float


@dataclass(frozen=True)
class Rule:
    """Paths over the same kinds of edges."""

    kinds: tuple[int, ...]
    support: int  # references that such a path links, too
    references: int
    weight: float  # of all its paths
    paths: tuple[Path, ...]  # the weightiest first


@dataclass(frozen=True)
class SharedTuple:
    """A kind of edge and an entity that it leads to, from the tail and from reference tails alike."""

    kind: int
    entity: int
    support: int  # reference tails that have it
    references: int
    weight: float


@dataclass(frozen=True)
class SimilarReference:
    """A reference, and how like the head its head is and how like the tail its tail is, from 0 to 1."""

    head: int
    tail: int
    head_similarity: float
    tail_similarity: float


@dataclass(frozen=True)
class Evidence:
    """What speaks for a tail, the weightiest first."""

    score: float
    rules: tuple[Rule, ...]
    shared: tuple[SharedTuple, ...]
    most_similar: SimilarReference

    def scaled(self, factor: float) -> Evidence:
        """The same where scores count so many times as much."""
        rules = (
            replace(
                rule,
                weight=factor * rule.weight,
                paths=tuple(replace(path, weight=factor * path.weight) for path in rule.paths),
            )
            for rule in self.rules
        )
        shared = (replace(each, weight=factor * each.weight) for each in self.shared)
        return replace(self, score=factor * self.score, rules=tuple(rules), shared=tuple(shared))
