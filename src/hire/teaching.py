"""Use a trained model: teach it a relation with a few examples, by name, and ask for answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire.catalog import open_dataset
from hire.checkpoint import load_model, read_config
from hire.datasets import FewShotDataset, candidates_by_type
from hire.errors import HireError
from hire.models.base import FewShotModel
from hire.vocabulary import IntArray


class Answer(NamedTuple):
    """One suggested tail."""

    tail: str
    score: float  # more is better; comparable between answers of one relation


@dataclass(frozen=True)
class TrainedModel:
    """A model together with the dataset whose entities it knows."""

    model: FewShotModel
    dataset: FewShotDataset

    def teach(self, references: Iterable[tuple[str, str]], candidates: Iterable[str] | None = None) -> TaughtRelation:
        """Learn a relation from (head, tail) examples, at once, without training.

        Unless candidates are given, answers are entities that share a type with an example's tail, where the graph
        knows types, or any entities.
        """
        pairs = self._pairs(references)
        if not len(pairs):
            raise HireError("a relation needs at least one example", remedy="give (head, tail) pairs")
        graph = self.dataset.graph
        if candidates is not None:
            members = np.unique(graph.entities.numbers(list(candidates)))
        elif graph.types is not None:
            members = candidates_by_type(graph, pairs[:, 1]).astype(np.int64)
        else:
            members = np.arange(len(graph.entities))
        everything = len(members) == len(graph.entities)
        return TaughtRelation(self, pairs, members, self.model.adapt(pairs, None if everything else members))

    def _pairs(self, names: Iterable[tuple[str, str]]) -> IntArray:
        flat = [self.dataset.graph.entities.number(name) for pair in names for name in pair]
        return np.array(flat, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class TaughtRelation:
    """A relation that a model was taught."""

    owner: TrainedModel
    references: IntArray  # [shots, 2]: head, tail
    candidates: IntArray  # [candidates], sorted
    learned: Any  # what the model made of the references

    def predict(self, head: str, k: int = 10, *, known: bool = False) -> list[Answer]:
        """The k best tails of a head, best first; tails that the examples give it already only if asked for."""
        entities = self.owner.dataset.graph.entities
        number = entities.number(head)
        scores = self._scores(np.array([number]), self.candidates)[0]
        if not known:
            given = self.references[self.references[:, 0] == number, 1]
            scores[np.isin(self.candidates, given)] = -np.inf
        best = np.argsort(-scores, kind="stable")[:k]
        return [Answer(entities[int(self.candidates[i])], float(scores[i])) for i in best if scores[i] > -np.inf]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """How well each (head, tail) fits, as `predict` scores it."""
        numbers = self.owner._pairs(pairs)
        if not len(numbers):
            return []
        return [float(self._scores(head[None], tail[None])[0, 0]) for head, tail in numbers]

    def _scores(self, heads: IntArray, tails: IntArray) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = self.owner.model.score(self.learned, heads, tails).numpy()
        return scores


def load(run: str | Path, dataset: str | Path | None = None) -> TrainedModel:
    """The model of a run with its dataset, which is looked for where it was unless another place is given."""
    run = Path(run)
    opened = open_dataset(dataset if dataset is not None else read_config(run)["dataset"]["source"])
    return TrainedModel(load_model(run, opened), opened)
