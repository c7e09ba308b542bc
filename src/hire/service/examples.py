"""Relations of the graph to try, and facts that it lacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hire.data.dataset import Task
from hire.inference.answers import Answer
from hire.inference.relation import TaughtRelation
from hire.service.relations import NotFoundError, Pair
from hire.service.schemas import Answer as AnswerInfo
from hire.service.schemas import Example, MissingFact
from hire.service.teaching import Teaching
from hire.service.views import explanation_of, pair_of
from hire.util.arrays import IntArray

REFERENCES, HEADS = 3, 5
MIN_FACTS = 10  # of a background relation that serves as an example
MAX_RELATIONS = 30
ASKED_RELATIONS, ASKED_HEADS = 5, 40  # to find a missing fact
SURE = 0.8  # a confidence that is worth showing at once
REASONS = 5


class _Relation(NamedTuple):
    name: str
    split: str
    pairs: IntArray  # [n, 2]


class ExampleFinder:
    """Examples of one graph."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching = teaching
        self._missing: dict[str | None, MissingFact] = {}
        self._finding = threading.Lock()

    def all(self, limit: int) -> list[Example]:
        """Relations to try: their first pairs as references, and heads to ask about."""
        entities = self.teaching.model.dataset.graph.entities
        found = []
        for relation in self._relations()[:limit]:
            heads = list(dict.fromkeys(relation.pairs[REFERENCES:, 0].tolist()))[:HEADS]
            found.append(
                Example(
                    name=relation.name,
                    split=relation.split,
                    references=[pair_of(self.teaching, pair) for pair in self._references(relation)],
                    heads=[self.teaching.ref(entities[head]) for head in heads],
                )
            )
        return found

    def missing(self, name: str | None = None) -> MissingFact:
        """A fact that the graph lacks, of a relation by name or of any, with the reasons for it."""
        with self._finding:
            if name not in self._missing:
                self._missing[name] = self._find(name)
        return self._missing[name]

    def _find(self, name: str | None) -> MissingFact:
        relations = [relation for relation in self._relations() if name in (None, relation.name)]
        best: tuple[float, _Relation, TaughtRelation, str, Answer] | None = None
        for relation in relations[:ASKED_RELATIONS]:
            for taught, head, answer in self._novel(relation):
                strength = answer.confidence if answer.confidence is not None else answer.score
                if best is None or strength > best[0]:
                    best = strength, relation, taught, head, answer
            if best is not None and best[0] >= SURE:
                break
        if best is None:
            raise NotFoundError("found no missing fact to show", remedy="teach a relation instead")
        _, relation, taught, head, answer = best
        return MissingFact(
            name=relation.name,
            references=[pair_of(self.teaching, pair) for pair in self._references(relation)],
            head=self.teaching.ref(head),
            answer=AnswerInfo(
                tail=self.teaching.ref(answer.tail), score=answer.score, confidence=answer.confidence, known=False
            ),
            explanation=explanation_of(taught.explain(head, answer.tail, most=REASONS).to_dict()),
        )

    def _novel(self, relation: _Relation) -> Iterator[tuple[TaughtRelation, str, Answer]]:
        """The best answer that is not known for each of some heads."""
        model = self.teaching.model
        taught = model.teach(self._references(relation), relation.name)
        heads = np.setdiff1d(model.similar_entities(taught.references[:, 0], taught.relation), taught.references[:, 0])
        degrees = model.dataset.graph.degrees[heads]
        chosen = heads[np.argsort(-degrees, kind="stable")[:ASKED_HEADS]]
        names = [model.dataset.graph.entities[int(head)] for head in chosen]
        for head, answers in taught.predict_many(names, 1):
            if answers:
                yield taught, head, answers[0]

    def _references(self, relation: _Relation) -> list[Pair]:
        entities = self.teaching.model.dataset.graph.entities
        return [(entities[head], entities[tail]) for head, tail in relation.pairs[:REFERENCES].tolist()]

    def _relations(self) -> list[_Relation]:
        """Dev and test tasks of the dataset or, if it has none, its largest background relations."""
        dataset = self.teaching.model.dataset
        tasks: list[Task] = [task for task in dataset.tasks if task.split != "train" and len(task.pairs) > REFERENCES]
        if tasks:
            return [_Relation(task.name, task.split, task.pairs) for task in tasks[:MAX_RELATIONS]]
        graph = dataset.graph
        sizes = graph.edge_counts[: len(graph.relations)]
        largest = [int(each) for each in np.argsort(-sizes, kind="stable")[:MAX_RELATIONS] if sizes[each] >= MIN_FACTS]
        found = []
        for relation in largest:
            pairs = graph.triples[graph.triples[:, 1] == relation][:, [0, 2]]
            _, firsts = np.unique(pairs[:, 0], return_index=True)  # references of different heads say more
            found.append(_Relation(graph.relations[relation], "background", pairs[np.sort(firsts)]))
        return [relation for relation in found if len(relation.pairs) > REFERENCES]
