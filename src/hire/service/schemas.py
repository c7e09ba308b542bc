"""What requests and responses of the HTTP API look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

MAX_REFERENCES = 1_000
MAX_NAME = 1_000  # characters
NAME = "The id or label of an entity."

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, description=NAME)]
NameQuery = Annotated[str, Query(min_length=1, max_length=MAX_NAME, description=NAME)]


class Pair(BaseModel):
    """Two entities in a relation."""

    head: Name
    tail: Name


class TeachRequest(BaseModel):
    """A relation to teach."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "relation"
    references: Annotated[list[Pair], Field(min_length=1, max_length=MAX_REFERENCES)]


class Verdict(Pair):
    """Whether a person accepts or rejects a pair."""

    verdict: Literal["accepted", "rejected"]


class LabelledPair(Pair):
    """A pair with the labels of its entities."""

    head_label: str
    tail_label: str


class RelationInfo(BaseModel):
    """A taught relation: its references and the verdicts on other pairs."""

    id: str
    name: str
    references: list[LabelledPair]
    accepted: list[LabelledPair]
    rejected: list[LabelledPair]


class Entity(BaseModel):
    """An entity."""

    entity: str
    label: str


class AnswerInfo(BaseModel):
    """A predicted tail."""

    tail: str
    label: str
    score: Annotated[float, Field(description="Higher is better; comparable within one relation.")]
    confidence: Annotated[
        float | None, Field(description="The probability that the answer is right; null if the run is not calibrated.")
    ]
    known: Annotated[bool, Field(description="Whether the dataset contains this fact.")]


class Answers(BaseModel):
    """The predicted tails of a head, best first."""

    head: str
    answers: list[AnswerInfo]


class Example(BaseModel):
    """A relation of the dataset to try."""

    name: str
    split: str
    references: list[LabelledPair]
    heads: list[Entity]


class About(BaseModel):
    """What is being served."""

    version: str
    dataset: str
    model: str
    entities: int
    relations: Annotated[int, Field(description="Number of taught relations.")]


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    error: str
    remedy: str | None = None


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The request cannot be read.",
        401: "The token is missing or wrong.",
        404: "There is no such relation.",
        413: "The request is too large.",
        422: "The request is invalid.",
        503: "The service is overloaded.",
        504: "The request timed out.",
    }.items()
}
