"""Episodes drawn in a second on one thread: K references, 3 queries, 1 negative each, batches of 1,024.

    python benchmarks/episodes.py [DATASET]

The target: 300,000 episodes/s for K=1 on NELL-One.
"""

from __future__ import annotations

import argparse
import time
from typing import get_args

import torch

from hire.data.open import open_dataset
from hire.sampling.episodes import EpisodeSampler, Regime

BATCHES = 300


def main() -> None:
    """Print the rate of both regimes for several K."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="umls-one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = open_dataset(options.dataset)
    print(f"{dataset.name}\n{'regime':10}{'K':>3}{'episodes/s':>13}")
    for regime in get_args(Regime):
        for shots in (1, 3, 5):
            sampler = EpisodeSampler(dataset, shots=shots, queries=3, negatives=1, batch_size=1024, regime=regime)
            for step in range(20):
                sampler.batch(step)
            start = time.perf_counter()
            for step in range(BATCHES):
                sampler.batch(step)
            rate = BATCHES * sampler.batch_size / (time.perf_counter() - start)
            print(f"{regime:10}{shots:3}{rate:13,.0f}", flush=True)


if __name__ == "__main__":
    main()
