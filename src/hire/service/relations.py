"""What the service does, without HTTP: relations are taught, judged, queried, and kept in a store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from hire.errors import HireError
from hire.inference.model import TrainedModel
from hire.inference.relation import TaughtRelation
from hire.service.store import Kind, Pair, RelationStore, StoredRelation
from hire.util.cache import SizedCache, text_bytes

MAX_RELATIONS = 10_000
MAX_PAIRS = 10_000  # of one relation
MAX_ADAPTED = 64  # relations the model stays adapted to; others are adapted to again when they are queried
MAX_SEARCH_BYTES = 32 << 20  # of cached searches
MOST_REASONS = 5  # rules of an explanation, and as many shared tuples
EXAMPLE_REFERENCES, EXAMPLE_HEADS = 3, 5


class UnknownRelationError(HireError):
    """There is no relation with this id."""


class RelationService:
    """Relations by id over one model; safe to call from several threads."""

    def __init__(self, model: TrainedModel, store: RelationStore) -> None:
        self.model = model
        self.store = store
        self._relations = {relation.id: relation for relation in store.all()}
        self._adapted: OrderedDict[str, tuple[StoredRelation, TaughtRelation]] = OrderedDict()
        self._changing = threading.Lock()  # one change at a time, so that none starts from a stale state
        self._ready = threading.Lock()  # guards the dictionaries; never held while the model adapts
        # One at a time of each kind: threads that compute at once wait for one another, and none is done sooner.
        self._answering, self._explaining = threading.Lock(), threading.Lock()
        self.search = SizedCache(self._search, MAX_SEARCH_BYTES, _bytes_of)  # typing repeats the same beginnings
        self.model.search("a", 1)  # builds the search index now, not at the first request

    def relations(self) -> list[StoredRelation]:
        """All relations, in the order they were taught."""
        with self._ready:
            return list(self._relations.values())

    def relation(self, relation_id: str) -> StoredRelation:
        """The relation with this id."""
        with self._ready:
            found = self._relations.get(relation_id)
        if found is None:
            raise UnknownRelationError(
                f"there is no relation {relation_id!r}",
                remedy="it may have been deleted; list the relations to see which exist",
            )
        return found

    def teach(self, name: str, references: Sequence[Pair]) -> StoredRelation:
        """Adapt the model to a new relation and save it."""
        pairs = [self._resolved(pair) for pair in references]
        with self._changing:
            if len(self._relations) >= MAX_RELATIONS:
                raise HireError(f"there are already {MAX_RELATIONS:,} relations", remedy="delete some first")
            draft = StoredRelation("", name, dict.fromkeys(pairs, "reference"))
            adapted = self._adapt(draft)
            relation = self.store.add(name, draft.pairs)
            self._keep(relation, adapted)
        return relation

    def judge(self, relation_id: str, head: str, tail: str, kind: Kind | None) -> StoredRelation:
        """Accept a pair as a new reference, reject it, or, with None, withdraw the verdict on it."""
        pair = self._resolved((head, tail))
        with self._changing:
            before = self.relation(relation_id)
            if kind == "accepted" and before.pairs.get(pair) == "reference":
                return before
            relation = before.with_pair(pair, kind)
            if len(relation.pairs) > MAX_PAIRS:
                raise HireError(f"the relation already has {MAX_PAIRS:,} pairs", remedy="withdraw some verdicts first")
            if not relation.of_kind("reference") and not relation.of_kind("accepted"):
                raise HireError("the relation would have no references left", remedy="accept another pair first")
            adapted = self._adapt(relation)
            self.store.set_kind(relation_id, pair, kind)
            self._keep(relation, adapted)
        return relation

    def delete(self, relation_id: str) -> None:
        """Delete a relation."""
        with self._changing:
            self.relation(relation_id)
            self.store.delete(relation_id)
            with self._ready:
                del self._relations[relation_id]
                self._adapted.pop(relation_id, None)

    def answers(
        self, relation_id: str, head: str, k: int, known: bool, threshold: float | None
    ) -> list[dict[str, Any]]:
        """The predicted tails of a head, best first, with labels and whether the dataset contains the fact."""
        relation = self._taught(relation_id)
        (head, _) = self._resolved((head, head))
        graph, facts = self.model.dataset.graph, self.model.dataset.facts
        same = graph.relations.find(self.relation(relation_id).name)
        given = {int(tail) for tail in facts.tails(graph.entities.id(head), same)} if same is not None else set()
        with self._answering:
            answers = relation.predict(head, k, known=known, threshold=threshold)
        found = []
        for answer in answers:
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

    def explanation(self, relation_id: str, head: str, tail: str) -> dict[str, Any]:
        """Why a tail is predicted for a head."""
        relation = self._taught(relation_id)
        with self._explaining:
            return relation.explain(head, tail, most=MOST_REASONS).to_dict()

    def _search(self, text: str, k: int) -> list[dict[str, str]]:
        """Entities that match a text."""
        return [{"entity": match.entity, "label": match.label} for match in self.model.search(text, k)]

    def label(self, entity: str) -> str:
        """The label of an entity; its id if it has no label or is not in this dataset."""
        graph = self.model.dataset.graph
        if graph.labels is None:
            return entity
        entity_id = graph.entities.find(entity)
        return entity if entity_id is None else graph.label(entity_id)

    def examples(self) -> list[dict[str, Any]]:
        """Dev and test relations to try: their first pairs as references, and heads to ask about."""
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

    def _resolved(self, pair: Pair) -> Pair:
        """A pair of entity ids from ids or labels; an error if one is unknown."""
        entities = self.model.dataset.graph.entities
        head, tail = (entities[self.model.names.id(name)] for name in pair)
        return head, tail

    def _taught(self, relation_id: str) -> TaughtRelation:
        relation = self.relation(relation_id)
        with self._ready:
            found = self._adapted.get(relation_id)
            if found is not None and found[0] is relation:
                self._adapted.move_to_end(relation_id)
                return found[1]
        adapted = self._adapt(relation)
        with self._ready:
            if self._relations.get(relation_id) is relation:  # unless it was judged or deleted in the meantime
                self._remember(relation, adapted)
        return adapted

    def _adapt(self, relation: StoredRelation) -> TaughtRelation:
        true = [*relation.of_kind("reference"), *relation.of_kind("accepted")]
        names = self.model.names
        references, rejected = (
            np.array([[names.id(name) for name in pair] for pair in some], np.int64).reshape(-1, 2)
            for some in (true, relation.of_kind("rejected"))
        )
        adapted = self.model.taught(references, relation.name, rejected=rejected)
        adapted.candidate_scores(references[:1, 0])  # so that the first query does not wait for it
        return adapted

    def _keep(self, relation: StoredRelation, adapted: TaughtRelation) -> None:
        with self._ready:
            self._relations[relation.id] = relation
            self._remember(relation, adapted)

    def _remember(self, relation: StoredRelation, adapted: TaughtRelation) -> None:
        self._adapted[relation.id] = relation, adapted
        self._adapted.move_to_end(relation.id)
        while len(self._adapted) > MAX_ADAPTED:
            self._adapted.popitem(last=False)


def _bytes_of(matches: list[dict[str, str]]) -> int:
    return sum(300 + text_bytes(match["entity"]) + text_bytes(match["label"]) for match in matches)
