"""A made-up graph of any size in text form, with Zipf-like degrees; by default as large as Wiki-One."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WIKI_ENTITIES = 4_838_244
WIKI_RELATIONS = 822
WIKI_TRIPLES = 5_859_240
ROWS_AT_ONCE = 1 << 18


def write_graph(path: Path, scale: float = 1.0, seed: int = 0) -> Path:
    """Write `head TAB relation TAB tail` lines; a file of the same size and seed is written once."""
    if path.exists():
        return path
    entities, triples = round(WIKI_ENTITIES * scale), round(WIKI_TRIPLES * scale)
    generator = np.random.default_rng(seed)
    # Every entity once, the other ends by Zipf's law.
    ends = np.concatenate([np.arange(entities), _zipf(generator, entities, 2 * triples - entities, 0.9)])
    ends = generator.permutation(entities)[generator.permutation(ends)]
    kinds = _zipf(generator, WIKI_RELATIONS, triples, 1.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w") as stream:
        for start in range(0, triples, ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            columns = (ends[:triples][rows].tolist(), kinds[rows].tolist(), ends[triples:][rows].tolist())
            stream.writelines(f"Q{h}\tP{r}\tQ{t}\n" for h, r, t in zip(*columns, strict=True))
    return partial.rename(path)


def _zipf(generator: np.random.Generator, values: int, count: int, exponent: float) -> NDArray[np.int64]:
    cumulated = np.cumsum(np.arange(1, values + 1) ** -exponent)
    return np.asarray(np.searchsorted(cumulated, generator.random(count) * cumulated[-1]))
