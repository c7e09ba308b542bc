"""What requests and responses about entities, relations and answers look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

MAX_REFERENCES = 1_000
MAX_NAME = 1_000  # characters
MAX_LISTED = 100_000  # heads of a scope
NAME = "The id or label of an entity."

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, description=NAME)]
NameQuery = Annotated[str, Query(min_length=1, max_length=MAX_NAME, description=NAME)]
Person = Annotated[str, Field(min_length=1, max_length=100, description="Who does this.")]
Client = Annotated[
    str, Field(max_length=100, description="An id of the tab or program, which never contradicts itself.")
]
Verdict = Literal["accept", "reject", "unsure", "no_tail"]
Confidence = Annotated[
    float | None, Field(description="The probability that the answer is right; null if the run is not calibrated.")
]


def example(**fields: Any) -> ConfigDict:
    """The settings of a model that is shown with an example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Ref(BaseModel):
    """An entity: its id, and its label, which is the id again if it has none."""

    model_config = example(id="http://www.wikidata.org/entity/Q220", label="Rome")
    id: str
    label: str


class Pair(BaseModel):
    """Two entities in a relation."""

    head: Ref
    tail: Ref


class NamedPair(BaseModel):
    """Two entities by id or label."""

    model_config = example(head="tissue", tail="cell")
    head: Name
    tail: Name


class Matches(BaseModel):
    """Entities that match a text, best first."""

    matches: list[Ref]


class EntityDetail(Ref):
    """What the graph says of an entity."""

    iri: Annotated[str, Field(description="Its IRI in exports.")]
    link: Annotated[str | None, Field(description="A page about it, if its id is a web address.")]
    types: list[str]
    description: str | None
    degree: Annotated[int, Field(description="The number of its facts, as head or tail.")]


class Neighbor(BaseModel):
    """A fact of an entity: `out` if it is the head, `in` if it is the tail."""

    relation: str
    direction: Literal["out", "in"]
    entity: Ref


class Neighbors(BaseModel):
    """Facts of an entity, in the order of the graph."""

    neighbors: list[Neighbor]
    total: int
    next: str | None


class TypeCount(BaseModel):
    """A type and how many entities have it."""

    name: str
    entities: int


class TypeCounts(BaseModel):
    """Types, most frequent first."""

    types: list[TypeCount]
    total: int


class ResolveRequest(BaseModel):
    """Names to look up."""

    names: Annotated[list[Annotated[str, Field(max_length=MAX_NAME)]], Field(max_length=1_000)]
    graph: str | None = None


class Resolved(BaseModel):
    """A name and the entity it stands for or, if there is none, entities that resemble it."""

    given: str
    entity: Ref | None
    suggestions: list[Ref]
    problem: str | None


class ResolvedNames(BaseModel):
    """Names and what they stand for, in the order they were given."""

    names: list[Resolved]


class TableText(BaseModel):
    """A table of pairs as text."""

    model_config = example(text='head,tail\n"tissue","cell"\n', format="csv")
    text: Annotated[str, Field(max_length=1 << 20)]
    format: Literal["tsv", "csv"] | None = None
    name: Annotated[str | None, Field(max_length=MAX_NAME, description="The file it is from.")] = None
    graph: str | None = None


class PairRow(BaseModel):
    """A row of a table of pairs."""

    line: int
    head: Resolved
    tail: Resolved


class PairRows(BaseModel):
    """The rows of a table of pairs, and how many of them name an unknown entity."""

    rows: list[PairRow]
    unknown: int


class Scope(BaseModel):
    """The heads that a relation is for: entities like the references' heads, of some types, of a list, or all."""

    model_config = example(kind="types", types=["city"])
    kind: Literal["similar", "types", "list", "all"] = "similar"
    types: Annotated[list[str], Field(max_length=1_000)] = []
    heads: Annotated[list[Name], Field(max_length=MAX_LISTED)] = []
    size: Annotated[int | None, Field(description="Of a list, of which responses show the first 1,000 heads.")] = None


Title = Annotated[str, Field(min_length=1, max_length=200)]
Predicate = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME, description="An IRI, or a property of Wikidata such as P361.")
]


class TeachRequest(BaseModel):
    """A relation to teach."""

    model_config = example(name="part_of", predicate="P361", references=[{"head": "tissue", "tail": "cell"}], by="ana")
    name: Title = "relation"
    predicate: Predicate | None = None
    scope: Scope = Scope()
    references: Annotated[list[NamedPair], Field(min_length=1, max_length=MAX_REFERENCES)]
    candidates: Annotated[list[Name] | None, Field(max_length=MAX_LISTED, description="The tails to choose from.")] = (
        None
    )
    graph: Annotated[str | None, Field(description="A graph with new entities; see /v1/graphs.")] = None
    by: Person = "anonymous"


class RelationChange(BaseModel):
    """What to change of a relation; what is left out stays."""

    model_config = example(predicate="P361")
    name: Title | None = None
    predicate: Predicate | None = None
    scope: Scope | None = None


class MoreReferences(BaseModel):
    """References to add to a relation."""

    references: Annotated[list[NamedPair], Field(min_length=1, max_length=MAX_REFERENCES)]
    by: Person = "anonymous"


class ScopeRequest(BaseModel):
    """A scope whose heads to count."""

    scope: Scope
    references: Annotated[list[NamedPair], Field(max_length=MAX_REFERENCES)] = []
    graph: str | None = None


class HeadCount(BaseModel):
    """The number of heads of a scope."""

    heads: int


class Answer(BaseModel):
    """A predicted tail."""

    tail: Ref
    score: Annotated[float, Field(description="Higher is better; comparable within one relation.")]
    confidence: Confidence = None
    known: Annotated[bool, Field(description="Whether the fact is known: a reference, or in the dataset.")] = False
    verdict: Annotated[Verdict | None, Field(description="The verdict that holds for the pair.")] = None
    explanation: Annotated[Explanation | None, Field(description="In streams of predictions, if asked for.")] = None


class Answers(BaseModel):
    """The predicted tails of a head, best first."""

    head: Ref
    answers: list[Answer]


class AnswerSet(Answers):
    """The tails that contain the answer with a given confidence."""

    confidence: float


class HeadAnswer(BaseModel):
    """A predicted head."""

    head: Ref
    score: float


class HeadAnswers(BaseModel):
    """The predicted heads of a tail, best first."""

    tail: Ref
    heads: list[HeadAnswer]


class ScoresRequest(BaseModel):
    """Pairs to score."""

    pairs: Annotated[list[NamedPair], Field(min_length=1, max_length=10_000)]


class Scores(BaseModel):
    """How well each pair fits, in the order they were given."""

    answers: list[Answer]


class PredictRequest(BaseModel):
    """Heads to predict for; without heads, those of the relation's scope."""

    model_config = example(heads=["tissue", "cell"], k=3)
    heads: Annotated[list[Name] | None, Field(max_length=MAX_LISTED)] = None
    k: Annotated[int, Field(ge=1, le=1_000)] = 10
    known: bool = False
    threshold: Annotated[float | None, Field(ge=0, le=1)] = None
    explain: bool = False


class _Reason(BaseModel):
    supports: Annotated[bool, Field(alias="for", description="Whether it speaks for the answer.")]
    weight: Annotated[float, Field(description="What the score would lose without it.")]
    support: Annotated[int, Field(description="How many references have the same.")]
    references: int
    words: str
    model_config = ConfigDict(populate_by_name=True)


class PathReason(_Reason):
    """Paths of one kind from the head to the tail."""

    kind: Literal["path"] = "path"
    text: Annotated[str, Field(description="The paths as a rule.")]
    edge_types: list[str]
    paths: list[list[Ref]]


class SharedReason(_Reason):
    """A fact that the tail has in common with tails of references."""

    kind: Literal["shared"] = "shared"
    relation: str
    entity: Ref


Reason = Annotated[PathReason | SharedReason, Field(discriminator="kind")]


class Similar(Pair):
    """The reference most similar to the answer; similarities are from 0 to 1."""

    head_similarity: float
    tail_similarity: float


class Explanation(BaseModel):
    """Why a tail is predicted: what speaks for it, strongest first, then what speaks against it."""

    relation: str
    head: Ref
    tail: Ref
    score: float
    confidence: Confidence
    sentence: str
    reasons: list[Reason]
    similar: Similar


class Example(BaseModel):
    """A relation of the graph to try."""

    name: str
    split: str
    references: list[Pair]
    heads: list[Ref]


class Examples(BaseModel):
    """Relations of the graph to try."""

    examples: list[Example]


class MissingFact(BaseModel):
    """A fact that the graph lacks, and why it is predicted."""

    name: str
    references: list[Pair]
    head: Ref
    answer: Answer
    explanation: Explanation


class NewEntities(BaseModel):
    """New entities, each with facts of its own: relation, other entity, and `out` if the new one is the head."""

    model_config = example(entities={"moss": [["isa", "plant", "out"]]})
    entities: Annotated[dict[Name, list[tuple[str, Name, Literal["out", "in"]]]], Field(min_length=1, max_length=1_000)]


class ExtendedGraph(BaseModel):
    """The graph with new entities."""

    id: str
    entities: list[str]


class Problem(BaseModel):
    """What went wrong, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    code: Annotated[str, Field(description="For programs; see the documentation of errors.")]
    detail: str
    remedy: str | None = None
    field: Annotated[str | None, Field(description="What in the request is wrong.")] = None
    conflict: Annotated[dict[str, Any] | None, Field(description="The entry of the log that stands against it.")] = None
