"""The contract of every few-shot system: learn a relation from a few references, then score pairs with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.systems.evidence import Evidence
from hire.util.arrays import IntArray

T = TypeVar("T")

REMEMBERED = range(100, 20_001)  # tails: fewer are soon done again, and more are not worth their memory


class LastTails(Generic[T]):
    """What a model made of the tails that it was last asked about, which are often asked about again.

    Several threads may share one: whose is kept does not matter.
    """

    def __init__(self) -> None:
        self._kept: tuple[IntArray, T] | None = None

    def get(self, tails: IntArray, make: Callable[[IntArray], T]) -> T:
        """What was made of the same tails, or is made of them now."""
        kept = self._kept
        if kept is not None and np.array_equal(kept[0], tails):
            return kept[1]
        made = make(tails)
        if len(tails) in REMEMBERED:
            self._kept = np.array(tails), made
        return made


def as_tensor(numbers: IntArray) -> Tensor:
    """Numbers of entities as a tensor of its own: what is mapped from a file cannot be shared."""
    return torch.from_numpy(np.array(numbers, np.int64))


class FewShotModel(ABC):
    """What satisfies this can be trained, evaluated, explained, served and compared by the same code.

    `adapt` is given references and returns whatever the model needs to know of the relation; `score` uses it for
    any number of heads and tails. Neither changes the model. What else a model can do is not asked of every model.
    """

    name: str

    @abstractmethod
    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> Any:
        """The relation of some references [shots, 2], in any order; candidates are its possible tails, None for all."""

    @abstractmethod
    def score(self, relation: Any, heads: IntArray, tails: IntArray) -> Tensor:
        """How well each tail fits each head, [heads, tails] float32; more is better."""

    def hiding(self, relation: int) -> FewShotModel:
        """The same model, which looks at no fact of a relation: the one that is asked for, if its facts are known."""
        return self

    def adapt_against(self, references: IntArray, candidates: IntArray | None, rejected: IntArray) -> Any:
        """As `adapt`, where some pairs [n, 2] are known to be false; not every model can learn from those."""
        return self.adapt(references, candidates)

    def explain(self, relation: Any, head: int, tail: int, *, most: int = 10) -> Evidence | None:
        """The model's own evidence for a tail, at most so much of each sort; None if all it has is its score."""
        return None

    def vectors(self, entities: IntArray) -> Tensor | None:
        """The embeddings of some entities [n, dim], or None if the model has none."""
        return None

    def extended(self, graph: KnowledgeGraph) -> FewShotModel:
        """The same model for a graph to which entities, with facts of their own, were added behind the others."""
        raise HireError(f"the model {self.name!r} knows only the entities it was trained with")
