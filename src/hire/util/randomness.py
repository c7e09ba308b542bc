"""Independent random streams from one seed: one for each purpose and step."""

from __future__ import annotations

import numpy as np

PURPOSES = ("episodes", "contexts", "embeddings", "training", "adaptation", "paths", "references", "graphs", "thinned")


def random_stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The random stream of a purpose at a step; all streams are independent."""
    key = (PURPOSES.index(purpose), step)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
