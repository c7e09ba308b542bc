"""A taught relation: predict tails with confidence, explain them, add and reject pairs.

The pairs of a head itself decide which of its answers are shown, never how confident the others are: the answers of a
head come from the references of other heads, as long as there are any. So a confidence is the same whether known facts
are shown or not, and neither accepting nor rejecting one answer of a head changes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError
from hire.evaluation.calibration import Calibration, for_shots
from hire.inference.answers import UNNAMED, Answer, HeadAnswer
from hire.inference.explain import Explanation, find_evidence
from hire.systems.base import TAILS_AT_ONCE, no_pairs
from hire.util.arrays import IntArray, positions_in

if TYPE_CHECKING:
    from hire.inference.model import TrainedModel

SCORES_AT_ONCE = 1 << 22  # bounds the memory for many heads
HEADS_AT_ONCE = 256
KEPT_HEADS, KEPT_CANDIDATES = 8, 50_000  # heads whose scores are kept, unless there are more candidates

Scores = NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class TaughtRelation:
    """A relation that a model was taught."""

    owner: TrainedModel
    references: IntArray  # [shots, 2]: head, tail
    candidates: IntArray  # [candidates], sorted
    state: Any  # of the system, adapted to the references
    name: str | None = None
    chosen: IntArray | None = None  # the candidates, if they were given
    rejected: IntArray = field(default_factory=no_pairs)  # [n, 2]: pairs that are false

    def __repr__(self) -> str:
        shots, rejected = len(self.references), len(self.rejected)
        parts = [f"{shots} reference{'' if shots == 1 else 's'}", f"{len(self.candidates):,} candidates"]
        parts += [f"{rejected} rejected"] if rejected else []
        return f"<TaughtRelation {self.name or UNNAMED}: {', '.join(parts)}>"

    def add(self, head: str, tail: str) -> TaughtRelation:
        """The relation with one more example; the system is adapted to it at once."""
        pair = self.owner.pairs([(head, tail)])
        false = self.rejected[(self.rejected != pair).any(axis=1)]
        known = (self.references == pair).all(axis=1).any()
        references = self.references if known else np.concatenate([self.references, pair])
        return self.owner.taught(references, self.name, self.chosen, false)

    def reject(self, head: str, tail: str) -> TaughtRelation:
        """The relation with a pair marked as false: it is never predicted again."""
        pair = self.owner.pairs([(head, tail)])
        references = self.references[(self.references != pair).any(axis=1)]
        if not len(references):
            raise HireError("the only example was rejected", remedy="add another one first")
        false = self.rejected[(self.rejected != pair).any(axis=1)]
        return self.owner.taught(references, self.name, self.chosen, np.concatenate([false, pair]))

    def predict(self, head: str, k: int = 10, *, known: bool = False, threshold: float | None = None) -> list[Answer]:
        """The k best tails of a head, best first.

        Tails that are already known, from the examples or the dataset, are included only if asked for, and the head
        itself only if an example relates an entity to itself. Tails with a confidence below the threshold are left out.
        """
        return self._answers(np.array([self.owner.names.id(head)]), k, known, threshold)[0]

    def predict_many(
        self, heads: Iterable[str], k: int = 10, *, known: bool = False, threshold: float | None = None
    ) -> Iterator[tuple[str, list[Answer]]]:
        """Each head with its answers, as from `predict`, in order; memory does not depend on the number of heads."""
        remaining = iter(heads)
        while some := list(islice(remaining, self._heads_at_once)):
            yield from zip(some, self._answers(self.owner.names.ids(some), k, known, threshold), strict=True)

    def predict_heads(self, tail: str, k: int = 10, *, known: bool = False) -> list[HeadAnswer]:
        """The k best heads of a tail among the entities similar to the examples' heads, best first."""
        graph = self.owner.dataset.graph
        wanted = self.owner.names.id(tail)
        heads = self.owner.similar_entities(self.references[:, 0], self.relation)
        blocks = [heads[start : start + TAILS_AT_ONCE] for start in range(0, len(heads), TAILS_AT_ONCE)]
        scores = np.concatenate([self._score(block, np.array([wanted]))[:, 0] for block in blocks])
        if not self._reflexive:
            scores[heads == wanted] = -np.inf
        for pairs in [self.rejected] if known else [self.rejected, self.references]:
            scores[np.isin(heads, pairs[pairs[:, 1] == wanted, 0])] = -np.inf
        if not known and self.relation is not None:
            scores[self.owner.dataset.facts.contain(heads, self.relation, wanted)] = -np.inf
        return [HeadAnswer(graph.entities[int(heads[i])], float(scores[i])) for i in best(scores, k)]

    def answer_set(self, head: str, confidence: float = 0.9) -> list[Answer]:
        """The new tails, best first, that contain the answer with a given confidence; few if the model is confident.

        That share of the true answers is in such sets, for relations like the dev tasks.
        """
        if not 0 < confidence < 1:
            raise HireError(f"{confidence} is not a confidence", remedy="give a number between 0 and 1")
        _ = self._needed_calibration
        ids = np.array([self.owner.names.id(head)])
        ((relation, _),) = self.by_head(ids)
        scores = relation.candidate_scores(ids)[0]
        kept = relation._needed_calibration.answer_set(scores, confidence, self._shown(relation, ids, known=False)[0])
        return relation._named(scores, kept)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        """How well each (head, tail) fits, with the score and the confidence that `predict` gives it.

        A tail that is not a candidate has a score, but no confidence.
        """
        ids = self.owner.pairs(pairs)
        found: list[Answer] = []
        for start in range(0, len(ids), self._heads_at_once):
            some = ids[start : start + self._heads_at_once]
            heads, rows = np.unique(some[:, 0], return_inverse=True)
            scored = self._scored(heads)
            found += [
                scored[row][0]._answer(scored[row][1], head, tail) for row, (head, tail) in zip(rows, some, strict=True)
            ]
        return found

    def _answer(self, scores: Scores, head: int, tail: int) -> Answer:
        """A pair with its score and confidence, given the scores of all candidates of its head."""
        position = positions_in(self.candidates, np.array([tail]))
        if position[0] >= 0 and scores[position[0]] > -np.inf:
            return self._named(scores, position)[0]
        score = float(self._score(np.array([head]), np.array([tail]))[0, 0])
        return Answer(self.owner.dataset.graph.entities[int(tail)], score)

    def explain(self, head: str, tail: str, *, most: int = 10) -> Explanation:
        """Why a tail is suggested for a head: at most `most` rules, and as many shared tuples."""
        owner = self.owner
        pair = owner.names.id(head), owner.names.id(tail)
        ((relation, scores),) = self._scored(np.array(pair[:1]))
        evidence = find_evidence(
            owner.system,
            owner.dataset.graph,
            relation.state,
            relation.references,
            pair,
            hidden=self.relation,
            most=most,
        )
        confidence = relation._answer(scores, *pair).confidence
        return Explanation(owner.dataset.graph, self.name or UNNAMED, *pair, evidence, confidence)

    @cached_property
    def relation(self) -> int | None:
        """The id of the dataset's relation of the same name."""
        return None if self.name is None else self.owner.dataset.graph.relations.find(self.name)

    @property
    def _heads_at_once(self) -> int:
        return min(HEADS_AT_ONCE, max(1, SCORES_AT_ONCE // len(self.candidates)))

    @property
    def calibration(self) -> Calibration | None:
        """The calibration for this number of references; None if the run is not calibrated."""
        return for_shots(self.owner.calibrations, len(self.references))

    @property
    def _needed_calibration(self) -> Calibration:
        if self.calibration is None:
            raise HireError("the run is not calibrated, so answers have no confidence", remedy="hire calibrate RUN")
        return self.calibration

    @property
    def _reflexive(self) -> bool:
        """Whether an entity can be related to itself: whether an example is."""
        return bool((self.references[:, 0] == self.references[:, 1]).any())

    def by_head(self, heads: IntArray) -> list[tuple[TaughtRelation, IntArray]]:
        """Some distinct heads in groups, each with the relation that answers it, which lacks the heads' own pairs."""
        own = np.isin(heads, self.references[:, 0]) | np.isin(heads, self.rejected[:, 0])
        groups = [(self, heads[~own])] if not own.all() else []
        return groups + [(self._without(int(head)), np.array([head])) for head in heads[own]]

    def _without(self, head: int) -> TaughtRelation:
        """The relation without the pairs of a head, if that leaves an example."""
        others, false = (pairs[pairs[:, 0] != head] for pairs in (self.references, self.rejected))
        return self.owner.taught(others if len(others) else self.references, self.name, self.chosen, false)

    def _scored(self, heads: IntArray) -> list[tuple[TaughtRelation, Scores]]:
        """Each head with the relation that answers it and the scores of its candidates."""
        found = {head: (relation or self, row) for head, (relation, row) in self._kept.items()}
        for relation, some in self.by_head(np.unique([head for head in heads if int(head) not in found])):
            for head, row in zip(some, relation.candidate_scores(some), strict=True):
                found[int(head)] = relation, row
        if len(heads) == 1 and len(self.candidates) <= KEPT_CANDIDATES:
            self._keep(int(heads[0]), *found[int(heads[0])])
        return [found[int(head)] for head in heads]

    def _keep(self, head: int, relation: TaughtRelation, scores: Scores) -> None:
        """Keep the scores of a head that was asked about by itself, the oldest no longer."""
        # A relation with a reference to itself would stay in memory until the garbage collector looks for cycles.
        other = None if relation is self else relation
        kept = {known: of for known, of in self._kept.items() if known != head and not (other and of[0])}
        # In one assignment, because other threads may read it: whose heads are kept does not matter.
        self.__dict__["_kept"] = dict([*kept.items(), (head, (other, scores))][-KEPT_HEADS:])

    @cached_property
    def _kept(self) -> dict[int, tuple[TaughtRelation | None, Scores]]:
        """The latest heads that were asked about one by one: whoever has seen answers will ask for the reasons.

        Each has its scores and the relation that answers it: None for this one, and only once another, which may be
        megabytes.
        """
        return {}

    def _answers(self, heads: IntArray, k: int, known: bool, threshold: float | None) -> list[list[Answer]]:
        if threshold is not None:
            _ = self._needed_calibration
        found = []
        for head, (relation, scores) in zip(heads, self._scored(heads), strict=True):
            shown = np.where(self._shown(relation, head[None], known=known)[0], scores, -np.inf)
            answers = relation._named(scores, best(shown, k))
            if threshold is not None:
                answers = [answer for answer in answers if (answer.confidence or 0.0) >= threshold]
            found.append(answers)
        return found

    def _named(self, scores: Scores, positions: IntArray) -> list[Answer]:
        """The candidates at some positions as answers, given the scores of all candidates."""
        entities = self.owner.dataset.graph.entities
        confidences: list[float] | list[None] = [None] * len(positions)
        if self.calibration is not None and len(positions):
            confidences = self.calibration.confidences(scores, positions).tolist()
        tails = (entities[int(entity)] for entity in self.candidates[positions])
        return [Answer(*parts) for parts in zip(tails, scores[positions].tolist(), confidences, strict=True)]

    def candidate_scores(self, heads: IntArray) -> Scores:
        """The scores [heads, candidates], including known tails; minus infinity for a head as its own tail."""
        scores = self._score(heads, self.candidates)
        if not self._reflexive:
            columns = positions_in(self.candidates, heads)
            rows = np.flatnonzero(columns >= 0)
            scores[rows, columns[rows]] = -np.inf
        return scores

    def _shown(self, relation: TaughtRelation, heads: IntArray, *, known: bool) -> NDArray[np.bool_]:
        """Which candidates of the relation that answers some heads are shown, [heads, candidates]."""
        pairs = self.rejected if known else np.concatenate([self.rejected, self.references])
        rows, positions = np.nonzero(heads[:, None] == pairs[:, 0])
        tails = pairs[positions, 1]
        if not known and self.relation is not None:
            more_rows, more_tails = self.owner.dataset.facts.all_tails(heads, self.relation)
            rows, tails = np.concatenate([rows, more_rows]), np.concatenate([tails, more_tails])
        columns = positions_in(relation.candidates, tails)
        shown = np.ones((len(heads), len(relation.candidates)), bool)
        shown[rows[columns >= 0], columns[columns >= 0]] = False
        return shown

    def _score(self, heads: IntArray, tails: IntArray) -> Scores:
        scores: Scores = self.owner.system.score_many(self.state, heads, tails).numpy()
        if not (scores < np.inf).all():
            raise HireError("the model gives scores that are not numbers", remedy="train again")
        return scores


def best(scores: Scores, k: int) -> IntArray:
    """The positions of the k highest scores above minus infinity, best first; among equals the first."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k] if k > 0 else np.inf
        positions = np.flatnonzero(scores >= least)
    else:
        positions = np.arange(len(scores))
    ordered = positions[np.argsort(-scores[positions], kind="stable")][: max(k, 0)]
    return ordered[scores[ordered] > -np.inf]
