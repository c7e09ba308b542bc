"""How training slows down when another process keeps one of the cores busy.

    python benchmarks/sharing.py [DATASET] [--preset levels] [--threads 1]

Times the steps of every stage on the idle machine, then with a process that never rests, in one run, and prints the
ratio of both. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from hire.data.open import open_dataset
from hire.embeddings.trainer import EmbeddingTrainer
from hire.optim.trainer import Trainer
from hire.sampling.ahead import drawn_ahead
from hire.systems.hire.trainer import HireTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.loop import one_or_more_threads
from hire.training.settings import preset

SECONDS = 8.0  # of each measurement
WARM_UP = 3  # steps


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def seconds_of_a_step(trainer: Trainer[Any, Any]) -> float:
    """The mean time of a step, batches drawn ahead as in training."""
    with closing(drawn_ahead(trainer.batch, trainer.step)) as batches:
        for _ in range(WARM_UP):
            trainer.train_step(next(batches))
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            trainer.train_step(next(batches))
            steps += 1
    return (time.perf_counter() - start) / steps


def main() -> None:
    """Measure all stages of two presets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="umls-one")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    members = preset("levels").settings.members
    embedding = EmbeddingTrainer(dataset.graph, members["hire"].settings.embedding)
    start = embedding.embeddings()
    stages: dict[str, Trainer[Any, Any]] = {
        "embeddings": embedding,
        "hire, preset fast": HireTrainer(dataset, start, members["hire"].settings),
        "hire, preset paper": HireTrainer(dataset, start, preset("paper").settings),
        "path": PathTrainer(dataset, members["path"].settings),
    }
    with one_or_more_threads(options.threads):
        for name, trainer in stages.items():
            alone = seconds_of_a_step(trainer)
            with busy_core():
                shared = seconds_of_a_step(trainer)
            found = {"stage": name, "threads": options.threads, "ms": alone * 1e3, "ms_shared": shared * 1e3}
            print(json.dumps({**found, "ratio": shared / alone}), flush=True)


if __name__ == "__main__":
    main()
