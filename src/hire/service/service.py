"""What the service does, without HTTP: its parts over one model and one state file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from hire import __version__
from hire.inference.model import TrainedModel
from hire.service.cards import CardTable
from hire.service.estimate import LEVEL, Rated, estimate, in_words
from hire.service.events import Events
from hire.service.examples import ExampleFinder
from hire.service.jobs import Jobs
from hire.service.relations import RelationTable, StoredRelation
from hire.service.review import Review
from hire.service.review_schemas import Estimate, GraphInfo, Relation, State
from hire.service.schemas import Scope
from hire.service.store import Store
from hire.service.teaching import Teaching
from hire.service.views import job_of, pair_of

SHOWN_HEADS = 1_000  # of a scope that is a list
OPEN_REVIEWS = 5


class Service:
    """The parts of the service."""

    def __init__(self, model: TrainedModel, store: Store, weights: str = "") -> None:
        self.store = store
        self.teaching = Teaching(model, store, weights)
        self.relations = RelationTable(store)
        self.review = Review(store, self.teaching)
        self.cards = CardTable(store, self.teaching)
        self.jobs = Jobs(store, self.teaching, self.relations, self.review)
        self.events = Events(store)
        self.examples = ExampleFinder(self.teaching)

    @classmethod
    def over(cls, model: TrainedModel, path: Path, weights: str = "") -> Service:
        """The service over a model, with its state in a file."""
        return cls(model, Store(path), weights)

    def start(self) -> None:
        """Begin what happens in the background."""
        self.store.forget_old_requests()
        self.jobs.start()

    def stop(self) -> None:
        """End what happens in the background."""
        self.jobs.stop()

    def delete(self, relation: str, expected: int | None = None) -> None:
        """Delete a relation, and what the model has learned of it."""
        self.relations.delete(relation, expected)
        self.teaching.forget(relation)

    def info(self, relation: StoredRelation) -> Relation:
        """A relation, and how far its review has come."""
        with self.store.reading() as connection:
            counts: dict[Any, int] = dict.fromkeys(get_args(State), 0) | dict(
                connection.execute(
                    "SELECT state, count(*) FROM heads WHERE relation = ? GROUP BY state", (relation.id,)
                ).fetchall()
            )
            (facts,) = connection.execute(
                "SELECT count(*) FROM judged WHERE relation = ? AND verdict = 'accept'", (relation.id,)
            ).fetchone()
        scope = dict(relation.scope)
        if scope["kind"] == "list":
            scope |= {"heads": scope["heads"][:SHOWN_HEADS], "size": len(scope["heads"])}
        job = self.jobs.last(relation.id)
        return Relation(
            id=relation.id,
            name=relation.name,
            predicate=relation.predicate,
            graph=relation.graph,
            scope=Scope.model_construct(**scope),
            version=relation.version,
            created=relation.created,
            by=relation.by,
            references=[pair_of(self.teaching, pair, relation.graph) for pair in relation.references],
            heads=sum(counts.values()),
            counts=counts,
            facts=facts,
            learning=self.teaching.is_behind(relation),
            learned_entries=self.teaching.learned_entry(relation),
            job=None if job is None else job_of(job),
        )

    def about(self) -> GraphInfo:
        """What is being served."""
        model = self.teaching.model
        graph = model.dataset.graph
        newest = [self.info(relation) for relation, _ in self.relations.page(OPEN_REVIEWS)]
        return GraphInfo(
            name=model.dataset.name,
            version=__version__,
            model=model.system.name,
            weights=self.teaching.weights,
            calibrated=bool(model.calibrations),
            across_graphs=model.across_graphs,
            entities=len(graph.entities),
            facts=len(graph.triples),
            edge_types=len(graph.background_relations),
            types=0 if graph.types is None else len(graph.types.names),
            relations=self.relations.count(),
            open_reviews=newest,
        )

    def estimate(self, relation: StoredRelation, threshold: float, type_: str | None = None) -> Estimate:
        """How many facts a threshold would accept, and what share of them is correct."""
        facts = [
            Rated(row["confidence"], row["place"] == 0) for row in self.review.undecided(relation.id, threshold, type_)
        ]
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT j.confidence, j.verdict = 'accept' AS correct, coalesce(s.place, 0) AS place FROM judged j "
                "JOIN heads h ON h.relation = j.relation AND h.head = j.head "
                "LEFT JOIN suggestions s ON s.relation = j.relation AND s.head = j.head AND s.tail = j.tail "
                "WHERE j.relation = ? AND j.checked AND j.verdict != 'unsure' AND j.confidence >= ? "
                "AND (? IS NULL OR h.type = ?)",
                (relation.id, threshold, type_, type_),
            ).fetchall()
        checked = [Rated(row["confidence"], row["place"] == 0) for row in rows]
        found = estimate(facts, checked, [bool(row["correct"]) for row in rows])
        return Estimate(
            threshold=threshold,
            facts=found.facts,
            checked=found.checked,
            correct=found.correct,
            share=found.share,
            low=found.low,
            high=found.high,
            level=LEVEL,
            enough=bool(found.facts) and not found.needed,
            message=in_words(threshold, found),
        )
