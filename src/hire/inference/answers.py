"""What a model answers: the same from a model in this process and from a service."""

from __future__ import annotations

from typing import Literal, NamedTuple

UNNAMED = "taught"  # the name of a relation that was given none

Direction = Literal["out", "in"]  # of a fact of a new entity: whether that is its head or its tail


class Answer(NamedTuple):
    """One suggested tail."""

    tail: str
    score: float  # more is better; comparable between answers of one relation
    confidence: float | None = None  # the probability that it is right; None if the run is not calibrated


class HeadAnswer(NamedTuple):
    """One suggested head."""

    head: str
    score: float


class Match(NamedTuple):
    """An entity that was found."""

    entity: str
    label: str  # the id again if it has none
