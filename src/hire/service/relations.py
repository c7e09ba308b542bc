"""What the service does, without HTTP: relations taught, judged and asked about, kept in a store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hire.errors import HireError
from hire.inference.model import TaughtRelation, TrainedModel
from hire.service.store import Kind, Pair, RelationStore, StoredRelation

MOST_RELATIONS = 10_000
MOST_PAIRS = 10_000  # of one relation
MOST_LEARNED = 64  # relations that are kept ready; others are learned again when they are asked about
MOST_SEARCHES = 10_000  # whose results are kept
EXAMPLE_REFERENCES, EXAMPLE_HEADS = 3, 5


class UnknownRelationError(HireError):
    """There is no relation with an id."""


class Desk:
    """Relations by id over one model; its methods may be called from several threads."""

    def __init__(self, model: TrainedModel, store: RelationStore) -> None:
        self.model = model
        self.store = store
        self._relations = {relation.id: relation for relation in store.all()}
        self._learned: OrderedDict[str, tuple[StoredRelation, TaughtRelation]] = OrderedDict()
        self._changing = threading.Lock()  # one change at a time, so that none is built on an old state
        self._ready = threading.Lock()  # guards the dictionaries, never held while anything is learned
        self.search = lru_cache(MOST_SEARCHES)(self._search)  # who types asks for the same beginnings again
        self.model.search("a", 1)  # makes what all searches need

    def relations(self) -> list[StoredRelation]:
        """All relations, in the order in which they were taught."""
        with self._ready:
            return list(self._relations.values())

    def relation(self, number: str) -> StoredRelation:
        """The relation with an id."""
        with self._ready:
            found = self._relations.get(number)
        if found is None:
            raise UnknownRelationError(
                f"there is no relation {number!r}", remedy="it may have been deleted: list the relations"
            )
        return found

    def teach(self, name: str, references: Sequence[Pair]) -> StoredRelation:
        """Learn a relation and keep it."""
        pairs = [self._known(pair) for pair in references]
        with self._changing:
            if len(self._relations) >= MOST_RELATIONS:
                raise HireError(f"there are {MOST_RELATIONS:,} relations", remedy="delete some first")
            draft = StoredRelation("", name, dict.fromkeys(pairs, "reference"))
            learned = self._learn(draft)
            relation = self.store.add(name, draft.pairs)
            self._keep(relation, learned)
        return relation

    def judge(self, number: str, head: str, tail: str, kind: Kind | None) -> StoredRelation:
        """Accept a pair as a further example, or reject it as a false one, or take back what was said of it."""
        pair = self._known((head, tail))
        with self._changing:
            before = self.relation(number)
            if kind == "accepted" and before.pairs.get(pair) == "reference":
                return before
            relation = before.with_pair(pair, kind)
            if len(relation.pairs) > MOST_PAIRS:
                raise HireError(f"the relation has {MOST_PAIRS:,} pairs", remedy="take back some verdicts first")
            if not relation.of_kind("reference") and not relation.of_kind("accepted"):
                raise HireError("no example of the relation would be left", remedy="add another one first")
            learned = self._learn(relation)
            self.store.say(number, pair, kind)
            self._keep(relation, learned)
        return relation

    def delete(self, number: str) -> None:
        """Forget a relation."""
        with self._changing:
            self.relation(number)
            self.store.delete(number)
            with self._ready:
                del self._relations[number]
                self._learned.pop(number, None)

    def answers(self, number: str, head: str, k: int, known: bool, threshold: float | None) -> list[dict[str, Any]]:
        """The best tails of a head, with labels; each tells whether the dataset has it already."""
        relation = self._taught(number)
        (head, _) = self._known((head, head))
        graph, facts = self.model.dataset.graph, self.model.dataset.facts
        same = graph.relations.find(self.relation(number).name)
        given = {int(tail) for tail in facts.tails(graph.entities.id(head), same)} if same is not None else set()
        found = []
        for answer in relation.predict(head, k, known=known, threshold=threshold):
            tail = graph.entities.id(answer.tail)
            found.append(
                {
                    "tail": answer.tail,
                    "label": graph.label(tail),
                    "score": answer.score,
                    "confidence": answer.confidence,
                    "known": tail in given,
                }
            )
        return found

    def explanation(self, number: str, head: str, tail: str) -> dict[str, Any]:
        """Why a tail is suggested for a head."""
        return self._taught(number).explain(head, tail).to_dict()

    def _search(self, text: str, k: int) -> list[dict[str, str]]:
        """Entities by what is typed."""
        return [{"entity": match.entity, "label": match.label} for match in self.model.search(text, k)]

    def label(self, entity: str) -> str:
        """The label of an entity; its id if it has none, or is none of this dataset's."""
        graph = self.model.dataset.graph
        number = graph.entities.find(entity)
        return entity if number is None else graph.label(number)

    def examples(self) -> list[dict[str, Any]]:
        """The relations of dev and test that can be tried: their first pairs, and heads to ask about."""
        entities = self.model.dataset.graph.entities
        found = []
        for task in self.model.dataset.tasks:
            if task.split == "train" or len(task.pairs) <= EXAMPLE_REFERENCES:
                continue
            heads = list(dict.fromkeys(task.pairs[EXAMPLE_REFERENCES:, 0].tolist()))[:EXAMPLE_HEADS]
            references = task.pairs[:EXAMPLE_REFERENCES].tolist()
            found.append(
                {
                    "name": task.name,
                    "split": task.split,
                    "references": [(entities[head], entities[tail]) for head, tail in references],
                    "heads": [entities[head] for head in heads],
                }
            )
        return found

    def _known(self, pair: Pair) -> Pair:
        """The ids of a pair that is given by ids or labels."""
        entities = self.model.dataset.graph.entities
        head, tail = (entities[self.model.names.id(name)] for name in pair)
        return head, tail

    def _taught(self, number: str) -> TaughtRelation:
        relation = self.relation(number)
        with self._ready:
            found = self._learned.get(number)
            if found is not None and found[0] is relation:
                self._learned.move_to_end(number)
                return found[1]
        learned = self._learn(relation)
        with self._ready:
            if self._relations.get(number) is relation:  # it may have been judged or deleted meanwhile
                self._remember(relation, learned)
        return learned

    def _learn(self, relation: StoredRelation) -> TaughtRelation:
        pairs = [*relation.of_kind("reference"), *relation.of_kind("accepted")]
        names = self.model.names
        false = relation.of_kind("rejected")
        numbers, rejected = (
            np.array([[names.id(name) for name in pair] for pair in some], np.int64).reshape(-1, 2)
            for some in (pairs, false)
        )
        learned = self.model.taught(numbers, relation.name, rejected=rejected)
        learned.candidate_scores(numbers[:1, 0])  # so that the first answer does not wait for what all answers need
        return learned

    def _keep(self, relation: StoredRelation, learned: TaughtRelation) -> None:
        with self._ready:
            self._relations[relation.id] = relation
            self._remember(relation, learned)

    def _remember(self, relation: StoredRelation, learned: TaughtRelation) -> None:
        self._learned[relation.id] = relation, learned
        self._learned.move_to_end(relation.id)
        while len(self._learned) > MOST_LEARNED:
            self._learned.popitem(last=False)
