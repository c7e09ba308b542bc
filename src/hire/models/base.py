"""The contract of every few-shot system: learn a relation from a few references, then score pairs with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hire.vocabulary import IntArray


def as_tensor(numbers: IntArray) -> Tensor:
    """Numbers of entities as a tensor of its own: what is mapped from a file cannot be shared."""
    return torch.from_numpy(np.array(numbers, np.int64))


class FewShotModel(ABC):
    """What satisfies this can be trained, evaluated, explained, served and compared by the same code.

    `adapt` is given references and returns whatever the model needs to know of the relation; `score` uses it for
    any number of heads and tails. Neither changes the model.
    """

    name: str

    @abstractmethod
    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> Any:
        """The relation of some references [shots, 2], in any order; candidates are its possible tails, None for all."""

    @abstractmethod
    def score(self, relation: Any, heads: IntArray, tails: IntArray) -> Tensor:
        """How well each tail fits each head, [heads, tails] float32; more is better."""
