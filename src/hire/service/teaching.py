"""The model behind the service: what it has learned of each relation, and what it answers."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from hire.errors import HireError
from hire.inference.answers import Answer, HeadAnswer
from hire.inference.model import TrainedModel
from hire.inference.relation import TaughtRelation
from hire.service.relations import Draft, NotFoundError, Pair, StoredRelation
from hire.service.schemas import Ref
from hire.service.store import Store, new_id, now
from hire.util.arrays import IntArray
from hire.util.cache import SizedCache, text_bytes
from hire.util.memory import give_back_memory

MAX_ADAPTED = 64  # relations the model stays adapted to; others are adapted to again when they are queried
MAX_GRAPHS = 4  # graphs with new entities that are kept ready
MAX_LEARNED = 20  # accepted pairs beside the references, and as many rejected ones: more hardly help, but take time
MAX_SEARCH_BYTES = 32 << 20  # of cached searches
MAX_REFS = 20_000  # cached entities with their labels
ANSWERS_AT_ONCE = 2  # explanations one at a time
SECONDS_BETWEEN_TIDYING, LEAST_WORK = 5.0, 0.02  # seconds; of processor time, more than it takes to be idle
HEADS_AT_ONCE = 32  # between two chances for others to ask


@dataclass(frozen=True)
class Learned:
    """A relation as the model has learned it."""

    version: int  # of its references
    accepted: tuple[Pair, ...]
    rejected: tuple[Pair, ...]
    entry: int  # the last entry of the log that was considered
    taught: TaughtRelation

    def is_about(self, relation: StoredRelation, accepted: Sequence[Pair], rejected: Sequence[Pair]) -> bool:
        """Whether this is all there is to learn."""
        return (self.version, self.accepted, self.rejected) == (relation.version, tuple(accepted), tuple(rejected))


class Teaching:
    """Relations that a model has learned; safe to call from several threads."""

    def __init__(self, model: TrainedModel, store: Store, weights: str = "") -> None:
        self.model = model
        self.store = store
        self.weights = weights
        self._learned: OrderedDict[str, Learned] = OrderedDict()
        self._graphs: OrderedDict[str, TrainedModel] = OrderedDict()
        self._ready = threading.Lock()  # guards the dictionaries; never held while the model adapts
        # More threads that compute at once would only wait for one another: answers are half compiled loops.
        self._answering = threading.BoundedSemaphore(ANSWERS_AT_ONCE)
        self._explaining, self._learning = threading.Lock(), threading.Lock()
        self._tidied = self._worked = 0.0  # when memory was given back, and the processor time then
        self.search = SizedCache(self._search, MAX_SEARCH_BYTES, _bytes_of)  # typing repeats the same beginnings
        self._refs = lru_cache(MAX_REFS)(self._ref)  # an entity is often the answer for several heads
        self.model.search("a", 1)  # builds the search index now, not at the first request

    @property
    def model_name(self) -> str:
        """Which model gives the answers, for the log."""
        return f"{self.model.system.name} {self.weights[:12]}".strip()

    def of_graph(self, graph: str | None) -> TrainedModel:
        """The model on the served graph, or on one with new entities."""
        if graph is None:
            return self.model
        with self._ready:
            found = self._graphs.get(graph)
            if found is not None:
                self._graphs.move_to_end(graph)
                return found
        with self.store.reading() as connection:
            row = connection.execute("SELECT entities FROM graphs WHERE id = ?", (graph,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no graph {graph!r}", remedy="create it with POST /v1/graphs")
        extended = self.model.with_entities(json.loads(row["entities"]))
        with self._ready:
            extended = self._graphs.setdefault(graph, extended)  # another thread may have been faster
            while len(self._graphs) > MAX_GRAPHS:
                self._give_up(self._graphs.popitem(last=False)[1])
        return extended

    def _give_up(self, model: TrainedModel) -> None:
        """Let go of a graph that is not kept ready any more: a relation that was taught on it would hold all of it."""
        model.forget()
        for relation in [each for each, learned in self._learned.items() if learned.taught.owner is model]:
            del self._learned[relation]

    def check_entities(self, entities: dict[str, Any]) -> None:
        """Raise unless the graph can take new entities."""
        self.model.with_entities(entities)

    def add_graph(self, entities: dict[str, Any]) -> str:
        """Save a graph with new entities; returns its id."""
        graph = new_id()
        with self.store.changing() as connection:
            connection.execute(
                "INSERT INTO graphs (id, entities, created) VALUES (?, ?, ?)", (graph, json.dumps(entities), now())
            )
        return graph

    def ref(self, name: str, graph: str | None = None) -> Ref:
        """An entity with its label; the name itself if it is not in the graph."""
        return self._refs(name, graph)

    def _ref(self, name: str, graph: str | None) -> Ref:
        known = self.of_graph(graph).dataset.graph
        entity = known.entities.find(name)
        return Ref(id=name, label=name if entity is None else known.label(entity))

    def resolved(self, name: str, graph: str | None = None) -> str:
        """The id of an entity by id or label; an error with suggestions if it is unknown."""
        model = self.of_graph(graph)
        found: str = model.dataset.graph.entities[model.names.id(name)]
        return found

    def pair(self, head: str, tail: str, graph: str | None = None) -> Pair:
        """A pair of ids from ids or labels."""
        return self.resolved(head, graph), self.resolved(tail, graph)

    def _search(self, text: str, k: int, graph: str | None = None) -> list[Ref]:
        return [Ref(id=match.entity, label=match.label) for match in self.of_graph(graph).search(text, k)]

    def check(self, draft: Draft) -> None:
        """Raise unless the model can learn a relation; what it learned serves the first question."""
        self._adapted(draft.graph, draft.name, draft.references, (), draft.candidates)

    def taught(self, relation: StoredRelation) -> TaughtRelation:
        """The relation as it was learned last: all its references count, new verdicts after `learn`."""
        with self._ready:
            found = self._learned.get(relation.id)
            if found is not None and found.version == relation.version:
                self._learned.move_to_end(relation.id)
                return found.taught
        return self.learn(relation).taught

    def learn(self, relation: StoredRelation) -> Learned:
        """Learn what is new in references and verdicts."""
        accepted, rejected, entry = self._verdicts(relation)
        with self._learning:
            with self._ready:
                found = self._learned.get(relation.id)
            if found is None or not found.is_about(relation, accepted, rejected):
                true = list(dict.fromkeys([*relation.references, *accepted]))
                false = [pair for pair in rejected if pair not in relation.references]
                taught = self._adapted(relation.graph, relation.name, true, false, relation.candidates)
                found = Learned(relation.version, tuple(accepted), tuple(rejected), entry, taught)
            with self._ready:
                if self._is_there(relation, found.taught.owner):
                    self._learned[relation.id] = found
                    self._learned.move_to_end(relation.id)
                while len(self._learned) > MAX_ADAPTED:
                    self._learned.popitem(last=False)
        return found

    def _is_there(self, relation: StoredRelation, model: TrainedModel) -> bool:
        """Whether a relation and its graph were not given up while the model learned."""
        if relation.graph is not None and self._graphs.get(relation.graph) is not model:
            return False
        with self.store.reading() as connection:
            found = connection.execute("SELECT 1 FROM relations WHERE id = ? AND deleted IS NULL", (relation.id,))
            return found.fetchone() is not None

    def forget(self, relation: str) -> None:
        """Give up what was learned of a relation, which may be tens of megabytes."""
        with self._ready:
            self._learned.pop(relation, None)

    def tidy(self) -> None:
        """Give free memory back now and then, if there was work: relations of ever other sizes leave gaps."""
        now, worked = time.monotonic(), time.process_time()
        if now - self._tidied > SECONDS_BETWEEN_TIDYING and worked - self._worked > LEAST_WORK:
            give_back_memory()
            self._tidied, self._worked = now, time.process_time()

    def is_behind(self, relation: StoredRelation) -> bool:
        """Whether there is something new to learn; not if nobody has asked since the start."""
        with self._ready:
            found = self._learned.get(relation.id)
        accepted, rejected, _ = self._verdicts(relation)
        return found is not None and not found.is_about(relation, accepted, rejected)

    def learned_entry(self, relation: StoredRelation) -> int:
        """The last entry of the log that the answers consider."""
        with self._ready:
            found = self._learned.get(relation.id)
        return found.entry if found is not None else self._verdicts(relation)[2]

    def _verdicts(self, relation: StoredRelation) -> tuple[list[Pair], list[Pair], int]:
        """The accepted and rejected pairs to learn from, which a person has judged, and the last entry among them."""
        with self.store.reading() as connection:
            rows = [
                connection.execute(
                    "SELECT head, tail, entry FROM judged WHERE relation = ? AND verdict = ? AND checked "
                    "ORDER BY entry LIMIT ?",
                    (relation.id, verdict, MAX_LEARNED),
                ).fetchall()
                for verdict in ("accept", "reject")
            ]
        accepted, rejected = ([(row["head"], row["tail"]) for row in some] for some in rows)
        return accepted, rejected, max((row["entry"] for some in rows for row in some), default=0)

    def _adapted(
        self,
        graph: str | None,
        name: str,
        references: Iterable[Pair],
        rejected: Iterable[Pair],
        candidates: Sequence[str] | None,
    ) -> TaughtRelation:
        model = self.of_graph(graph)
        chosen = None if candidates is None else np.unique(model.names.ids(list(candidates)))
        pairs = model.pairs(references)
        taught = model.taught(pairs, name, chosen, model.pairs(rejected))
        with self._answering:
            taught.candidate_scores(pairs[:1, 0])  # so that the first query does not wait for it
        return taught

    def answers(
        self, relation: StoredRelation, head: str, k: int, *, known: bool = False, threshold: float | None = None
    ) -> list[Answer]:
        """The predicted tails of a head, best first, without those that were rejected meanwhile."""
        hidden = self.decided(relation, head, hide_accepted=not known)
        taught = self.taught(relation)
        with self._answering:
            found = taught.predict(head, k + len(hidden), known=known, threshold=threshold)
        return [answer for answer in found if answer.tail not in hidden][:k]

    def decided(self, relation: StoredRelation, head: str, *, hide_accepted: bool = True) -> set[str]:
        """The tails of a head that are not shown again, because of the verdicts on them."""
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT tail, verdict FROM judged WHERE relation = ? AND head = ? AND verdict IN ('accept', 'reject')",
                (relation.id, head),
            ).fetchall()
        return {row["tail"] for row in rows if hide_accepted or row["verdict"] == "reject"}

    def answers_to_many(
        self,
        relation: StoredRelation,
        heads: Iterable[str],
        k: int,
        *,
        known: bool = False,
        threshold: float | None = None,
        taught: TaughtRelation | None = None,
    ) -> Iterator[tuple[str, list[Answer]]]:
        """Each head with its answers as the model gives them; others can ask in between."""
        taught = taught or self.taught(relation)
        remaining = iter(heads)
        while some := list(islice(remaining, HEADS_AT_ONCE)):
            with self._answering:
                found = list(taught.predict_many(some, k, known=known, threshold=threshold))
            yield from found

    def answer_set(self, relation: StoredRelation, head: str, confidence: float) -> list[Answer]:
        """The tails that contain the answer with a given confidence."""
        hidden = self.decided(relation, head)
        taught = self.taught(relation)
        with self._answering:
            return [answer for answer in taught.answer_set(head, confidence) if answer.tail not in hidden]

    def heads(self, relation: StoredRelation, tail: str, k: int, known: bool) -> list[HeadAnswer]:
        """The predicted heads of a tail, best first."""
        taught = self.taught(relation)
        with self._answering:
            return taught.predict_heads(tail, k, known=known)

    def scores(self, relation: StoredRelation, pairs: Sequence[Pair]) -> list[Answer]:
        """How well each pair fits."""
        taught = self.taught(relation)
        with self._answering:
            return taught.score(pairs)

    def explanation(self, relation: StoredRelation, head: str, tail: str, most: int) -> dict[str, Any]:
        """Why a tail is predicted for a head, as plain data."""
        taught = self.taught(relation)
        with self._explaining:
            return taught.explain(head, tail, most=most).to_dict()

    def known_tails(self, relation: StoredRelation, head: str) -> list[str]:
        """The tails of a head that are known: those of references, and those that the dataset has."""
        dataset = self.of_graph(relation.graph).dataset
        entities, same = dataset.graph.entities, dataset.graph.relations.find(relation.name)
        entity = entities.find(head)
        facts = np.zeros(0, int) if same is None or entity is None else dataset.facts.tails(entity, same)
        given = [tail for of_head, tail in relation.references if of_head == head]
        return list(dict.fromkeys([*given, *(entities[int(tail)] for tail in facts)]))

    def heads_of_scope(
        self, scope: dict[str, Any], references: Sequence[Pair], graph: str | None, name: str | None = None
    ) -> IntArray:
        """The ids of the heads that a relation is for."""
        model = self.of_graph(graph)
        known = model.dataset.graph
        if scope["kind"] == "all":
            return np.arange(len(known.entities))
        if scope["kind"] == "list":
            ids: IntArray = model.names.ids(list(dict.fromkeys(scope["heads"])))
            return np.array(list(dict.fromkeys(ids.tolist())), np.int64)
        if scope["kind"] == "types":
            if known.types is None:
                raise HireError("the graph has no types", remedy="choose all heads, or a list of them")
            return known.types.entities_with(np.array([known.types.names.id(each) for each in scope["types"]], int))
        hidden = None if name is None else known.relations.find(name)
        return model.similar_entities(model.pairs(references)[:, 0], hidden)


def _bytes_of(matches: list[Ref]) -> int:
    return sum(300 + text_bytes(match.id) + text_bytes(match.label) for match in matches)
