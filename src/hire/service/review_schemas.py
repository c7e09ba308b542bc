"""What requests and responses about relations under review look like: jobs, cards, verdicts, batches, exports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from hire.service.schemas import Answer, Client, Confidence, Name, Pair, Person, Ref, Scope, Verdict, example

State = Literal["open", "accepted", "rejected", "unsure", "no_tail", "empty"]
Order = Literal["useful", "confident", "head", "audit"]
Format = Literal["tsv", "ntriples", "turtle", "quickstatements", "sparql", "log"]
Threshold = Annotated[float, Field(ge=0, le=1)]
MAX_NUMBER = 1 << 62  # of an entry or a version: what the state file can hold


class JobRequest(BaseModel):
    """Complete a relation over all of its heads."""

    k: Annotated[int, Field(ge=1, le=100, description="Tails to keep for each head.")] = 10
    by: Person = "anonymous"


class Job(BaseModel):
    """A job that completes a relation."""

    id: str
    relation: str
    state: Literal["queued", "running", "done", "cancelled", "failed"]
    heads: int
    done: int
    seconds: Annotated[float, Field(description="Time spent so far.")]
    seconds_left: float | None
    k: int
    created: str
    ended: str | None
    by: str
    problem: str | None


class Jobs(BaseModel):
    """Jobs, newest first."""

    jobs: list[Job]
    next: str | None


class Relation(BaseModel):
    """A taught relation, and how far its review has come."""

    id: str
    name: str
    predicate: str | None
    graph: str | None
    scope: Scope
    version: Annotated[int, Field(description="Also its ETag.")]
    created: str
    by: str
    references: list[Pair]
    heads: Annotated[int, Field(description="Heads that it has been or is being completed for.")]
    counts: dict[State, int]
    facts: Annotated[int, Field(description="Accepted pairs.")]
    learning: Annotated[bool, Field(description="Whether the model has yet to learn from new verdicts.")]
    learned_entries: Annotated[int, Field(description="The last entry of the log that answers consider.")]
    job: Job | None


class Relations(BaseModel):
    """Taught relations, newest first."""

    relations: list[Relation]
    next: str | None


class GraphInfo(BaseModel):
    """What is being served."""

    name: str
    version: str
    model: str
    weights: str
    calibrated: bool
    across_graphs: Annotated[bool, Field(description="Whether the confidence was fitted to other graphs than this.")]
    entities: int
    facts: int
    edge_types: int
    types: int
    relations: Annotated[int, Field(description="Number of taught relations.")]
    open_reviews: list[Relation]


class Entry(BaseModel):
    """An entry of the log."""

    entry: int
    relation: str
    head: Ref
    tail: Ref | None
    verdict: Literal["accept", "reject", "unsure", "no_tail", "undo"]
    undoes: int | None
    undone_by: int | None
    by: str
    client: str
    at: str
    model: str
    confidence: Confidence
    batch: str | None


class Entries(BaseModel):
    """Entries of the log, newest first."""

    entries: list[Entry]
    next: str | None
    total: int


class Card(BaseModel):
    """A head, and the pair to judge: its best undecided tail."""

    head: Ref
    type: str | None
    state: State
    version: Annotated[int, Field(description="The last entry about this head.")]
    tail: Ref | None
    score: float | None
    confidence: Confidence
    suggestions: list[Answer]
    known: list[Ref]
    last: Entry | None


class Cards(BaseModel):
    """Cards in the order that was asked for."""

    cards: list[Card]
    next: str | None
    total: int


class Count(BaseModel):
    """How many heads have a value."""

    value: str
    count: int


class Bin(BaseModel):
    """How many heads have a best answer with a confidence of at least `low` and below `high`."""

    low: float
    high: float
    count: int


class Facets(BaseModel):
    """Counts by type, confidence and state; each ignores the filter by itself."""

    total: int
    types: list[Count]
    confidence: list[Bin]
    states: list[Count]


class VerdictRequest(BaseModel):
    """A verdict on the pair that was shown or, without a tail, on the head."""

    model_config = example(head="tissue", tail="cell", verdict="accept", version=812, by="ana", client="tab-1")
    head: Name
    tail: Name | None = None
    verdict: Verdict
    version: Annotated[
        int | None, Field(ge=0, le=MAX_NUMBER, description="Of the card that was shown; null checks no conflict.")
    ] = None
    force: Annotated[bool, Field(description="Overrule what others have decided since.")] = False
    by: Person = "anonymous"
    client: Client = ""


class Undo(BaseModel):
    """The entry to undo."""

    entry: Annotated[int, Field(ge=1, le=MAX_NUMBER)]
    by: Person = "anonymous"
    client: Client = ""


class Judged(BaseModel):
    """The new entry of the log, and the card as it is now."""

    entry: Entry
    card: Card


class Estimate(BaseModel):
    """How many facts a threshold would accept, and what share of them is correct, estimated from checked cards."""

    model_config = example(
        threshold=0.9, facts=214, checked=30, correct=28, share=0.93, low=0.79, high=0.98, level=0.95, enough=True,
        message="0.9 or higher: 214 facts, estimated 93% correct (79–98%, 30 checked)",
    )  # fmt: skip
    threshold: float
    facts: int
    checked: int
    correct: int
    share: float | None
    low: float
    high: float
    level: float
    enough: bool
    message: str


class BatchRequest(BaseModel):
    """Accept all undecided pairs whose confidence is at least the threshold."""

    threshold: Threshold
    type: str | None = None
    expected: Annotated[
        int | None, Field(ge=0, le=MAX_NUMBER, description="The number of facts that was shown; 409 if it differs.")
    ] = None
    by: Person = "anonymous"
    client: Client = ""


class RevertRequest(BaseModel):
    """Who reverts a batch."""

    by: Person = "anonymous"
    client: Client = ""


class Batch(BaseModel):
    """Entries of the log that were made at once, and can be reverted at once."""

    id: str
    relation: str
    kind: Literal["accept", "import", "revert"]
    by: str
    at: str
    threshold: float | None
    entries: int
    reverted: bool


class Batches(BaseModel):
    """Batches, newest first."""

    batches: list[Batch]
    next: str | None


class Preview(BaseModel):
    """The beginning of an export."""

    facts: int
    text: str
    media_type: str
    file_name: str
    problem: str | None


class PushRequest(BaseModel):
    """A SPARQL endpoint to write accepted facts to."""

    model_config = example(endpoint="http://127.0.0.1:7878/update")
    endpoint: Annotated[str, Field(max_length=2_000)]
    target_graph: Annotated[str | None, Field(max_length=2_000, description="The named graph to write to.")] = None
    prefix: Annotated[str, Field(max_length=1_000)] = "urn:hire:"
    user: Annotated[str | None, Field(max_length=200)] = None
    password: Annotated[str | None, Field(max_length=200)] = None
    by: Person = "anonymous"


class Pushed(BaseModel):
    """What was written to an endpoint."""

    facts: int
    requests: int
    endpoint: str


class ImportRequest(BaseModel):
    """Verdicts as a table: head, tail and, unless all are accepted, verdict; or the log as exported."""

    model_config = example(text="head\ttail\tverdict\ntissue\tcell\taccept\n", format="tsv")
    text: Annotated[str, Field(max_length=1 << 20)]
    format: Literal["tsv", "csv", "log"] = "tsv"
    by: Person = "anonymous"
    client: Client = ""
