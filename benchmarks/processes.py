"""How much faster two processes train than one: the time of a step on NELL-One, and from which size of a step it pays.

    python benchmarks/processes.py data/nell-one [PART ...]

A process has one core and one thread for everything: computing, and drawing batches ahead. `one, two cores` is a single
process as it runs by default on two cores, where its batches are drawn on the other one; `two, sharded` are two of
which each has a share of the rows of entity tables. Parts: embeddings, fast, paper, path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.optim.storage import StorageSettings
from hire.optim.trainer import Trainer
from hire.sampling.ahead import drawn_ahead
from hire.systems.episodic.drawing import random_embeddings
from hire.systems.hire.trainer import HireTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.settings import preset
from hire.util.processes import joined, told

SECONDS, LEAST_STEPS, WARM_UP = 1.5, 3, 2
PARTS = ("embeddings", "fast", "paper", "path")
VARIANTS = {  # processes, a core for each, and whether they share the rows of tables
    "one": (1, True, False),
    "one, two cores": (1, False, False),
    "two": (2, True, False),
    "two, sharded": (2, True, True),
}


def trainers(dataset: FewShotDataset, parts: list[str], sharded: bool) -> Iterator[tuple[str, Trainer[Any, Any]]]:
    """What is trained, by its name and the size of its batch."""
    graph, storage = dataset.graph, StorageSettings(sharded=sharded)
    start = random_embeddings(len(graph.entities), len(graph.relations), 100, seed=0)
    if "embeddings" in parts:
        for size in (256, 1024, 4096):
            chosen = EmbeddingSettings(batch_size=size, storage=storage)
            yield f"embeddings, {size} triples", EmbeddingTrainer(graph, chosen)
    for name, sizes in (("fast", (8, 32, 128, 512)), ("paper", (1024,))):
        if name in parts:
            for size in sizes:
                settings = preset(name).settings
                optimizer = replace(settings.optimizer, storage=storage)
                settings = replace(settings, training=replace(settings.training, tasks=size), optimizer=optimizer)
                yield f"{name}, {size} tasks", HireTrainer(dataset, start, settings)
    if "path" in parts and not sharded:  # it has no tables
        for size in (4, 16):
            settings = preset("best").settings
            settings = replace(settings, training=replace(settings.training, tasks=size))
            yield f"path, {size} tasks", PathTrainer(dataset, settings)


def seconds_of_a_step(trainer: Trainer[Any, Any]) -> float:
    """The mean time of a step, with batches drawn ahead as in training."""
    with closing(drawn_ahead(trainer.batch, 0)) as batches:

        def timed(steps: int) -> float:
            start = time.perf_counter()
            for _ in range(steps):
                trainer.train_step(next(batches))
            return time.perf_counter() - start

        timed(WARM_UP)
        first = timed(1)
        steps = told(lambda: max(LEAST_STEPS, int(SECONDS / first)))  # every process must take as many
        return timed(steps) / steps


def measure(source: str, target: Path, pinned: bool, sharded: bool, parts: list[str]) -> None:
    """Measure in this process, together with the others."""
    torch.set_num_threads(1)
    with joined() as share:
        if pinned:
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[share.rank]})
        dataset = open_dataset(source)
        found = {name: seconds_of_a_step(trainer) for name, trainer in trainers(dataset, parts, sharded)}
        if share.first:
            target.write_text(json.dumps(found))
    if share.processes > 1:
        os._exit(0)  # as hire does: threads of the connections may abort an interpreter that takes itself apart


def main() -> None:
    """Start each variant, and print a table."""
    source, *parts = sys.argv[1:]
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for variant, (processes, pinned, sharded) in VARIANTS.items():
            target = Path(folder) / "found.json"
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(processes),
            ]
            flags = [str(int(pinned)), str(int(sharded))]
            own = [__file__, "--measure", source, str(target), *flags, *(parts or PARTS)]
            subprocess.run([*command, *own], check=True)
            found[variant] = json.loads(target.read_text())
    names = ["one process", "one, two cores", "two processes", "two, sharded"]
    print("| " + " | ".join(["a step of", *names, "faster by", "sharded", "than one on two cores"]) + " |")
    print("|---" * 8 + "|")
    for name, one in found["one"].items():
        both, two = found["one, two cores"][name], found["two"][name]
        rows_shared = found["two, sharded"].get(name)
        times = [f"{1000 * seconds:.1f} ms" if seconds else "" for seconds in (one, both, two, rows_shared)]
        faster = [
            f"{one / two:.2f}",
            f"{one / rows_shared:.2f}" if rows_shared else "",
            f"{both / min(two, rows_shared or two):.2f}",
        ]
        print("| " + " | ".join([name, *times, *faster]) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        pinned, sharded = (bool(int(flag)) for flag in sys.argv[4:6])
        measure(sys.argv[2], Path(sys.argv[3]), pinned, sharded, sys.argv[6:])
    else:
        main()
