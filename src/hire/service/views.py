"""What the service knows, in the form of its responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hire.inference.answers import Answer as FoundAnswer
from hire.service.relations import Pair as NamePair
from hire.service.relations import StoredRelation
from hire.service.review_schemas import Batch, Entry, Job
from hire.service.schemas import Answer, Explanation, Pair, PathReason, Ref, SharedReason, Similar
from hire.service.store import Row
from hire.service.teaching import Teaching


def pair_of(teaching: Teaching, pair: NamePair, graph: str | None = None) -> Pair:
    """A pair with the labels of its entities."""
    return Pair(head=teaching.ref(pair[0], graph), tail=teaching.ref(pair[1], graph))


def entry_of(teaching: Teaching, relation: StoredRelation, row: Row) -> Entry:
    """An entry of the log with the labels of its entities."""
    values = {name: row[name] for name in Entry.model_fields if name not in ("head", "tail")}
    tail = teaching.ref(row["tail"], relation.graph) if row["tail"] else None
    return Entry(head=teaching.ref(row["head"], relation.graph), tail=tail, **values)


def job_of(row: Mapping[str, Any]) -> Job:
    """A job."""
    return Job(**{name: row[name] for name in Job.model_fields})


def batch_of(row: Mapping[str, Any]) -> Batch:
    """A batch."""
    return Batch(**{name: row[name] for name in Batch.model_fields})


def answers_of(
    teaching: Teaching, relation: StoredRelation, head: str, answers: list[FoundAnswer], verdicts: Mapping[str, str]
) -> list[Answer]:
    """Answers of a head with their labels, and whether they are known or judged."""
    known = set(teaching.known_tails(relation, head))
    return [
        Answer(
            tail=teaching.ref(answer.tail, relation.graph),
            score=answer.score,
            confidence=answer.confidence,
            known=answer.tail in known,
            verdict=verdicts.get(answer.tail),  # type: ignore[arg-type]
        )
        for answer in answers
    ]


def explanation_of(found: Mapping[str, Any]) -> Explanation:
    """An explanation from the plain data of the model."""
    labels = found["labels"]

    def ref(name: str) -> Ref:
        return Ref(id=name, label=labels.get(name, name))

    def shared_by_all(piece: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "supports": piece["for"],
            **{name: piece[name] for name in ("weight", "support", "references", "words")},
        }

    reasons: list[PathReason | SharedReason] = [
        PathReason(
            text=rule["text"],
            edge_types=rule["kinds"],
            paths=[[ref(name) for name in path] for path in rule["paths"]],
            **shared_by_all(rule),
        )
        for rule in found["rules"]
    ]
    reasons += [
        SharedReason(relation=each["relation"], entity=ref(each["entity"]), **shared_by_all(each))
        for each in found["shared"]
    ]
    similar = found["similar"]
    return Explanation(
        relation=found["relation"],
        head=ref(found["head"]),
        tail=ref(found["tail"]),
        score=found["score"],
        confidence=found["confidence"],
        sentence=found["sentence"],
        # What speaks for the answer comes first, and the weightiest at the top of either part.
        reasons=sorted(reasons, key=lambda reason: (not reason.supports, -abs(reason.weight))),
        similar=Similar(
            head=ref(similar["head"]),
            tail=ref(similar["tail"]),
            head_similarity=similar["head_similarity"],
            tail_similarity=similar["tail_similarity"],
        ),
    )
