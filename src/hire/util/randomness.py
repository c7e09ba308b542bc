"""One seed, many independent streams of random numbers: one for each purpose and step."""

from __future__ import annotations

import numpy as np

PURPOSES = ("episodes", "contexts", "embeddings", "training", "adaptation", "paths", "references")


def random_stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The stream of a purpose at a step; no two of them have anything in common."""
    key = (PURPOSES.index(purpose), step)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
