"""The contract of every few-shot system: a support goes in, and pairs of the relation can be scored.

Whatever satisfies it can be trained, evaluated, explained, taught, served and compared by the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.errors import HireError
from hire.optim.settings import SelectionSettings
from hire.optim.trainer import Batch, Network, Trainer
from hire.systems.evidence import Evidence
from hire.util.arrays import IntArray

T = TypeVar("T")

Capability = Literal["explain", "vectors", "new-entities"]
CAPABILITIES: dict[Capability, str] = {
    "explain": "gives its own evidence for an answer",
    "vectors": "has a vector for each entity",
    "new-entities": "takes entities that were added after training",
}
Recipe = Literal["published", "common"]
RECIPES: dict[Recipe, str] = {
    "published": "loss, negatives, regime, batch and model selection as in the system's own paper",
    "common": "the same tasks, embeddings, loss and budget for every system, those of the preset `fast`",
}
TAILS_AT_ONCE = 1 << 17  # bounds the memory for many candidates
NUMBERS_AT_ONCE = 1 << 23  # of the vectors of tails
REMEMBERED = range(100, 20_001)  # tails: fewer are soon done again, and more are not worth their memory


def no_pairs() -> IntArray:
    """Pairs [0, 2]."""
    return np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Support:
    """What is known of a relation that a system is to adapt to."""

    pairs: IntArray  # [shots, 2]: the references, head and tail, in any order
    candidates: IntArray | None = None  # its possible tails; None for all entities
    rejected: IntArray = field(default_factory=no_pairs)  # [n, 2]: pairs that are known to be false
    relation: int | None = None  # its id in the graph, if it is there: none of its facts may be looked at


class FewShotSystem(ABC):
    """Learns a relation from its support without training, then scores any heads and tails.

    `adapt` returns a state that holds all there is to know of the relation, what is hidden included; `score` needs
    nothing else. Neither changes the system, and several threads may call both at once. What a system can do besides
    is declared in `capabilities`.
    """

    name: ClassVar[str]  # by which it is registered
    summary: ClassVar[str] = ""  # one line
    paper: ClassVar[str] = ""  # authors, title, venue
    settings_type: ClassVar[type[Any]]  # a frozen dataclass; its fields may be frozen dataclasses, as sections
    capabilities: frozenset[Capability] = frozenset()
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {}  # changes of the defaults by path, or a preset
    scale: float = 1.0  # what its scores are multiplied with to be the logits of a softmax over candidates

    @abstractmethod
    def adapt(self, support: Support) -> Any:
        """The state of a relation."""

    @abstractmethod
    def score(self, state: Any, heads: IntArray, tails: IntArray) -> Tensor:
        """How well each tail fits each head, [heads, tails] float32 on the CPU; more is better."""

    def score_many(self, state: Any, heads: IntArray, tails: IntArray) -> Tensor:
        """As `score`, for any number of tails: some at a time, to bound the memory, unless a system knows better."""
        starts = range(0, max(1, len(tails)), TAILS_AT_ONCE)
        blocks = [self.score(state, heads, tails[start : start + TAILS_AT_ONCE]) for start in starts]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The weights, as named tensors: what `restore` needs besides the settings and the dataset."""

    @classmethod
    @abstractmethod
    def restore(
        cls, dataset: FewShotDataset, settings: Any, tensors: dict[str, Tensor], device: torch.device | str = "cpu"
    ) -> FewShotSystem:
        """The system that has these weights; it scores bit for bit as the one that was saved."""

    @classmethod
    def parts(cls, settings: Any) -> dict[str, tuple[str, Any]]:
        """Other systems that this one is made of, by name: each one's system and settings. They are trained first."""
        return {}

    @classmethod
    def learns(cls) -> bool:
        """Whether there may be a trainer, its parts aside."""
        return cls.trainer.__qualname__ != FewShotSystem.trainer.__qualname__

    @classmethod
    def trainer(cls, dataset: FewShotDataset, settings: Any, resources: Resources) -> SystemTrainer[Any, Any] | None:
        """What trains the system, or None if `without_training` makes it."""
        return None

    @classmethod
    def without_training(cls, dataset: FewShotDataset, settings: Any, resources: Resources) -> FewShotSystem:
        """The system, where there is no trainer."""
        return cls.restore(dataset, settings, {}, resources.device)

    def explain(self, state: Any, head: int, tail: int, *, most: int = 10) -> Evidence:
        """The system's own evidence for and against a tail, at most so much of each sort ("explain")."""
        raise self._cannot("explain")

    def vectors(self, entities: IntArray) -> Tensor:
        """The vectors of some entities, [n, dim] ("vectors")."""
        raise self._cannot("vectors")

    def extended(self, graph: KnowledgeGraph) -> FewShotSystem:
        """The same system for a graph to which entities, with facts of their own, were added ("new-entities")."""
        raise self._cannot("new-entities")

    def _cannot(self, capability: Capability) -> HireError:
        return HireError(
            f"the system {self.name!r} lacks the capability {capability!r}: it {CAPABILITIES[capability]}",
            remedy="hire systems lists which systems have it",
        )


class Resources(Protocol):
    """What a system may ask for when it is to be trained."""

    @property
    def device(self) -> torch.device:
        """Where to compute."""

    @property
    def parts(self) -> Mapping[str, FewShotSystem]:
        """The systems that it is made of, trained."""

    def embeddings(self, settings: EmbeddingSettings) -> Embeddings:
        """Embeddings of the background graph, from a file or the cache, or learned first."""

    def evaluate(self, system: FewShotSystem) -> float:
        """The mean MRR of a system on the dev tasks."""


class SystemTrainer(Trainer[Batch, Network]):
    """Trains a system; see `Trainer` for what a subclass brings besides."""

    selection: SelectionSettings = SelectionSettings()
    shots: tuple[int, ...] = (1, 3, 5)  # for which the dev tasks are ranked

    @abstractmethod
    def system(self) -> FewShotSystem:
        """The system as it is now, with averaged weights if there are any."""


class LastTails(Generic[T]):
    """What a system made of the tails that it was last asked about, which are often asked about again.

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


def in_blocks(score: Callable[[IntArray], Tensor], tails: IntArray, dimension: int) -> Tensor:
    """Scores [heads, tails] of many tails, some at a time: the vectors of all may not fit into memory."""
    at_once = max(1, NUMBERS_AT_ONCE // dimension)
    if len(tails) <= at_once:
        return score(tails)
    return torch.cat([score(tails[start : start + at_once]) for start in range(0, len(tails), at_once)], dim=1)


def as_tensor(ids: IntArray) -> Tensor:
    """Ids of entities as a tensor of its own: what is mapped from a file cannot be shared."""
    return torch.from_numpy(np.array(ids, np.int64))
