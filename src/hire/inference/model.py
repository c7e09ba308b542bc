"""Use a trained model: teach it a relation with a few examples, by name, and ask for answers and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.evaluation.calibration import Calibration, for_shots
from hire.inference.candidates import Likeness
from hire.inference.explain import Explanation, find_evidence
from hire.inference.search import EntityNames
from hire.systems.base import FewShotModel
from hire.training.run import load_model, read_calibration, read_config
from hire.util.arrays import IntArray

UNNAMED = "taught"  # what a relation is called that was given no name
SCORES_AT_ONCE = 1 << 22  # bounds the memory of many heads
ENTITIES_AT_ONCE = 1 << 17  # bounds the memory of many candidates
HEADS_AT_ONCE = 256
MOST_CANDIDATES = 20_000  # of a relation, unless more are given


Direction = Literal["out", "in"]


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


@dataclass(frozen=True)
class TrainedModel:
    """A model together with the dataset whose entities it knows."""

    model: FewShotModel
    dataset: FewShotDataset
    calibrations: Mapping[int, Calibration] = field(default_factory=dict)  # by the number of references
    newcomers: int = 0  # the last entities, which were not there at training

    @cached_property
    def names(self) -> EntityNames:
        """The entities by id or label."""
        return EntityNames(self.dataset.graph)

    @cached_property
    def _likeness(self) -> Likeness:
        return Likeness(self.dataset.graph)

    def search(self, text: str, k: int = 10) -> list[Match]:
        """At most k entities whose id or label is a text, begins with it, holds it or resembles it, the best first."""
        graph = self.dataset.graph
        return [Match(graph.entities[number], graph.label(number)) for number in self.names.search(text, k)]

    def with_entities(self, entities: Mapping[str, Iterable[tuple[str, str, Direction]]]) -> TrainedModel:
        """The model with entities that were not there at training, each given with a few facts of its own.

        A fact is (relation, other entity, "out") if the new entity is its head, and "in" if it is its tail. The new
        entities can be heads, and are candidates of whatever is taught afterwards.
        """
        triples = [
            (name, relation, other) if direction == "out" else (other, relation, name)
            for name, facts in entities.items()
            for relation, other, direction in facts
        ]
        return self.with_facts(triples, list(entities))

    def with_facts(self, triples: Sequence[tuple[str, str, str]], new: Sequence[str] = ()) -> TrainedModel:
        """The model with more facts (head, relation, tail); the new entities in them, if not given, are the unknown."""
        graph = self.dataset.graph
        if not new:
            new = list(dict.fromkeys(name for h, _, t in triples for name in (h, t) if name not in graph.entities))
        known = [name for name in new if name in graph.entities]
        if known:
            raise HireError(f"the entity {known[0]!r} is there already", remedy="give only new ones")
        numbers = {name: number for number, name in enumerate(new, len(graph.entities))}

        def number(name: str) -> int:
            return numbers[name] if name in numbers else self.names.id(name)

        rows = [(number(h), graph.relations.id(r), number(t)) for h, r, t in triples]
        dataset = self.dataset.extended(new, np.array(rows, np.int32).reshape(-1, 3))
        model = self.model.extended(dataset.graph)
        return TrainedModel(model, dataset, self.calibrations, self.newcomers + len(new))

    def teach(
        self,
        references: Iterable[tuple[str, str]],
        name: str | None = None,
        *,
        candidates: Iterable[str] | None = None,
    ) -> TaughtRelation:
        """Learn a relation from (head, tail) examples, entities by id or label, at once, without training.

        If the dataset has a relation of that name, its facts are taken for known. Unless candidates are given, answers
        are entities that have a type like that of an example's tail, where the graph knows types, or any entities; of
        more than 20,000 those whose kinds of edges are most like those of the examples' tails.
        """
        pairs = self._pairs(references)
        if not len(pairs):
            raise HireError("a relation needs at least one example", remedy="give (head, tail) pairs")
        chosen = None if candidates is None else np.unique(self.names.ids(list(candidates)))
        return self.taught(pairs, name, chosen)

    def taught(
        self,
        references: IntArray,
        name: str | None = None,
        chosen: IntArray | None = None,
        rejected: IntArray | None = None,
    ) -> TaughtRelation:
        """As `teach`, in numbers: references [shots, 2], chosen candidates if any, and pairs [n, 2] that are false."""
        false = np.zeros((0, 2), np.int64) if rejected is None else rejected
        known = None if name is None else self.dataset.graph.relations.find(name)
        members = self._alike(references[:, 1], known) if chosen is None else chosen
        among = None if len(members) == len(self.dataset.graph.entities) else members
        model = self.model if known is None else self.model.hiding(known)
        learned = model.adapt_against(references, among, false) if len(false) else model.adapt(references, among)
        return TaughtRelation(self, references, members, learned, name, chosen, false)

    def _alike(self, entities: IntArray, hidden: int | None = None) -> IntArray:
        """The entities, sorted, that may stand where some do, and all new ones."""
        count = len(self.dataset.graph.entities)
        return np.union1d(
            self._likeness.entities(entities, MOST_CANDIDATES, hidden), np.arange(count - self.newcomers, count)
        )

    def _pairs(self, names: Iterable[tuple[str, str]]) -> IntArray:
        flat = [self.names.id(name) for pair in names for name in pair]
        return np.array(flat, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class TaughtRelation:
    """A relation that a model was taught."""

    owner: TrainedModel
    references: IntArray  # [shots, 2]: head, tail
    candidates: IntArray  # [candidates], sorted
    learned: Any  # what the model made of the references
    name: str | None = None
    chosen: IntArray | None = None  # the candidates, if they were given
    rejected: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # [n, 2]: pairs that are false

    def add(self, head: str, tail: str) -> TaughtRelation:
        """The relation with one more example, learned at once."""
        pair = self.owner._pairs([(head, tail)])
        false = self.rejected[(self.rejected != pair).any(axis=1)]
        known = (self.references == pair).all(axis=1).any()
        references = self.references if known else np.concatenate([self.references, pair])
        return self.owner.taught(references, self.name, self.chosen, false)

    def reject(self, head: str, tail: str) -> TaughtRelation:
        """The relation without a pair that is false: it is never answered again."""
        pair = self.owner._pairs([(head, tail)])
        references = self.references[(self.references != pair).any(axis=1)]
        if not len(references):
            raise HireError("the only example was rejected", remedy="add another one first")
        false = self.rejected[(self.rejected != pair).any(axis=1)]
        return self.owner.taught(references, self.name, self.chosen, np.concatenate([false, pair]))

    def predict(self, head: str, k: int = 10, *, known: bool = False, threshold: float | None = None) -> list[Answer]:
        """The k best tails of a head, best first.

        Tails that are known already, from the examples or the dataset, are among them only if asked for, and the head
        itself only if an example has it so; tails whose confidence is below a threshold are not.
        """
        numbers = np.array([self.owner.names.id(head)])
        return self._answers(numbers, k, known, threshold)[0]

    def predict_many(
        self, heads: Iterable[str], k: int = 10, *, known: bool = False, threshold: float | None = None
    ) -> Iterator[tuple[str, list[Answer]]]:
        """Each head with its answers, as `predict` has them, in order; any number of heads in the same memory."""
        at_once = min(HEADS_AT_ONCE, max(1, SCORES_AT_ONCE // len(self.candidates)))
        remaining = iter(heads)
        while some := list(islice(remaining, at_once)):
            numbers = self.owner.names.ids(some)
            yield from zip(some, self._answers(numbers, k, known, threshold), strict=True)

    def predict_heads(self, tail: str, k: int = 10, *, known: bool = False) -> list[HeadAnswer]:
        """The k best heads of a tail among those that may stand where the examples' heads do, best first."""
        graph = self.owner.dataset.graph
        number = self.owner.names.id(tail)
        heads = self.owner._alike(self.references[:, 0], self._relation)
        blocks = [heads[start : start + ENTITIES_AT_ONCE] for start in range(0, len(heads), ENTITIES_AT_ONCE)]
        scores = np.concatenate([self._score(block, np.array([number]))[:, 0] for block in blocks])
        false = [self.rejected] if known else [self.rejected, self.references]
        if not self._reflexive:
            scores[heads == number] = -np.inf
        for pairs in false:
            scores[np.isin(heads, pairs[pairs[:, 1] == number, 0])] = -np.inf
        if not known and self._relation is not None:
            scores[self.owner.dataset.facts.contain(heads, self._relation, number)] = -np.inf
        return [HeadAnswer(graph.entities[int(heads[place])], float(scores[place])) for place in _best(scores, k)]

    def answer_set(self, head: str, confidence: float = 0.9) -> list[Answer]:
        """The tails, best first, among which the answer is with a confidence; few where the model is sure.

        Of the true answers to questions about relations like the dev tasks, that share is in such sets.
        """
        if not 0 < confidence < 1:
            raise HireError(f"{confidence} is no confidence", remedy="give a number between 0 and 1")
        calibration = self._needed_calibration
        scores = self.candidate_scores(np.array([self.owner.names.id(head)]))[0]
        return self._named(scores, calibration.answer_set(scores, confidence))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """How well each (head, tail) fits, as `predict` scores it."""
        numbers = self.owner._pairs(pairs)
        return [float(self._score(head[None], tail[None])[0, 0]) for head, tail in numbers]

    def explain(self, head: str, tail: str, *, most: int = 10) -> Explanation:
        """Why a tail is suggested for a head: at most so many rules, and so many shared tuples."""
        owner = self.owner
        pair = owner.names.id(head), owner.names.id(tail)
        graph = owner.dataset.graph
        evidence = find_evidence(
            owner.model, graph, self.learned, self.references, pair, hidden=self._relation, most=most
        )
        return Explanation(graph, self.name or UNNAMED, *pair, evidence, self._confidence(*pair))

    def _confidence(self, head: int, tail: int) -> float | None:
        place = int(np.searchsorted(self.candidates, tail))
        if self._calibration is None or place == len(self.candidates) or self.candidates[place] != tail:
            return None
        for known in (False, True):  # beside the same candidates as `predict` has it, unless it is known
            scores = self.candidate_scores(np.array([head]), known=known)[0]
            if scores[place] > -np.inf:
                return float(self._calibration.confidences(scores, np.array([place]))[0])
        return None

    @property
    def _calibration(self) -> Calibration | None:
        return for_shots(self.owner.calibrations, len(self.references))

    @property
    def _needed_calibration(self) -> Calibration:
        if self._calibration is None:
            raise HireError("the run is not calibrated, so answers have no confidence", remedy="hire calibrate RUN")
        return self._calibration

    @cached_property
    def _relation(self) -> int | None:
        """The number of the dataset's relation of the same name."""
        return None if self.name is None else self.owner.dataset.graph.relations.find(self.name)

    @property
    def _reflexive(self) -> bool:
        """Whether an entity can be related to itself: whether an example is."""
        return bool((self.references[:, 0] == self.references[:, 1]).any())

    def _answers(self, heads: IntArray, k: int, known: bool, threshold: float | None) -> list[list[Answer]]:
        if threshold is not None:
            _ = self._needed_calibration
        found = []
        for scores in self.candidate_scores(heads, known=known):
            answers = self._named(scores, _best(scores, k))
            if threshold is not None:
                answers = [answer for answer in answers if (answer.confidence or 0.0) >= threshold]
            found.append(answers)
        return found

    def _named(self, scores: NDArray[np.float32], places: IntArray) -> list[Answer]:
        """Some of the candidates as answers, from the scores of all."""
        entities = self.owner.dataset.graph.entities
        tails = (entities[int(number)] for number in self.candidates[places])
        values: list[float] = scores[places].tolist()
        confidences: Iterable[float | None] = repeat(None)
        if self._calibration is not None and len(places):
            confidences = self._calibration.confidences(scores, places).tolist()
        return [Answer(*parts) for parts in zip(tails, values, confidences, strict=False)]

    def candidate_scores(self, heads: IntArray, *, known: bool = False) -> NDArray[np.float32]:
        """The scores [heads, candidates], minus infinity for what is not to be answered."""
        starts = range(0, len(self.candidates), ENTITIES_AT_ONCE)
        blocks = [self._score(heads, self.candidates[start : start + ENTITIES_AT_ONCE]) for start in starts]
        scores = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        rows, tails = self._excluded(heads, known)
        columns = np.minimum(np.searchsorted(self.candidates, tails), len(self.candidates) - 1)
        present = self.candidates[columns] == tails
        scores[rows[present], columns[present]] = -np.inf
        return scores

    def _excluded(self, heads: IntArray, known: bool) -> tuple[IntArray, IntArray]:
        """What is not to be answered: the index of a head, and a tail, of each."""
        pairs = self.rejected if known else np.concatenate([self.rejected, self.references])
        rows, places = np.nonzero(heads[:, None] == pairs[:, 0])
        tails = pairs[places, 1]
        if not self._reflexive:
            rows, tails = np.concatenate([rows, np.arange(len(heads))]), np.concatenate([tails, heads])
        if not known and self._relation is not None:
            more_rows, more_tails = self.owner.dataset.facts.all_tails(heads, self._relation)
            rows, tails = np.concatenate([rows, more_rows]), np.concatenate([tails, more_tails])
        return rows, tails

    def _score(self, heads: IntArray, tails: IntArray) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = self.owner.model.score(self.learned, heads, tails).numpy()
        return scores


def _best(scores: NDArray[np.float32], k: int) -> IntArray:
    """The places of the k highest scores above minus infinity, best first; among equals the first."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k] if k > 0 else np.inf
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    ordered = places[np.argsort(-scores[places], kind="stable")][: max(k, 0)]
    return ordered[scores[ordered] > -np.inf]


def load(run: str | Path, dataset: str | Path | None = None) -> TrainedModel:
    """The model of a run with its dataset, which is looked for where it was unless another place is given."""
    run = Path(run)
    opened = open_dataset(dataset if dataset is not None else read_config(run)["dataset"]["source"])
    return TrainedModel(load_model(run, opened), opened, read_calibration(run))
