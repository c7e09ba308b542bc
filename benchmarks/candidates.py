"""How many true tails are among the candidates that teaching chooses, and how many candidates there are.

    python benchmarks/candidates.py DATASET [--splits train dev]

For 1, 3 and 5 references, the first of each task: the share of the other true tails that are candidates, in the mean of
the tasks, and the median and the largest number of candidates. Beside them, entities of the very types of the tails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from hire.data.dataset import candidates_by_type
from hire.data.open import open_dataset
from hire.inference.candidates import CandidateFinder
from hire.training.settings import TeachingSettings
from hire.util.arrays import IntArray

SHOTS = (1, 3, 5)


def main() -> None:
    """Print a line for each choice and number of references."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--splits", nargs="+", default=["train", "dev"], choices=["train", "dev", "test"])
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    teaching = TeachingSettings()
    finder = CandidateFinder(dataset.graph, teaching.type_similarity)
    tasks = [task for split in options.splits for task in dataset.split(split, max(SHOTS))]
    choices: dict[str, Callable[[IntArray], IntArray]] = {
        "as teaching chooses": lambda tails: finder.entities(tails, teaching.max_candidates)
    }
    if dataset.graph.types is not None:
        choices["of the very types"] = lambda tails: candidates_by_type(dataset.graph, tails)
    for name, choose in choices.items():
        for shots in SHOTS:
            chosen = [choose(np.asarray(task.pairs[:shots, 1], np.int64)) for task in tasks]
            shares = [np.isin(t.pairs[shots:, 1], some).mean() for t, some in zip(tasks, chosen, strict=True)]
            sizes = [len(some) for some in chosen]
            print(f"{name}, {shots}: {np.mean(shares):.3f}, {np.median(sizes):,.0f} at most {max(sizes):,}", flush=True)


if __name__ == "__main__":
    main()
