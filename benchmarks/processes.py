"""How much faster two processes train than one: the time of a step on NELL-One, and from which size of a step it pays.

    python benchmarks/processes.py data/nell-one [PART ...]

A process has one core and one thread for everything: computing, and drawing batches ahead. `one, two cores` is a single
process as it runs by default on two cores, where its batches are drawn on the other one. Parts: embeddings, fast,
paper, path.
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
from hire.optim.trainer import Trainer
from hire.sampling.ahead import drawn_ahead
from hire.systems.episodic.drawing import random_embeddings
from hire.systems.hire.trainer import HireTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.settings import preset
from hire.util.processes import joined, told

SECONDS, LEAST_STEPS, WARM_UP = 1.5, 3, 2
PARTS = ("embeddings", "fast", "paper", "path")
VARIANTS = {"one": (1, True), "one, two cores": (1, False), "two": (2, True)}  # processes, and a core for each


def trainers(dataset: FewShotDataset, parts: list[str]) -> Iterator[tuple[str, Trainer[Any, Any]]]:
    """What is trained, by its name and the size of its batch."""
    graph = dataset.graph
    start = random_embeddings(len(graph.entities), len(graph.relations), 100, seed=0)
    if "embeddings" in parts:
        for size in (256, 1024, 4096):
            yield f"embeddings, {size} triples", EmbeddingTrainer(graph, EmbeddingSettings(batch_size=size))
    for name, sizes in (("fast", (8, 32, 128)), ("paper", (1024,))):
        if name in parts:
            for size in sizes:
                settings = preset(name).settings
                settings = replace(settings, training=replace(settings.training, tasks=size))
                yield f"{name}, {size} tasks", HireTrainer(dataset, start, settings)
    if "path" in parts:
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


def measure(source: str, target: Path, pinned: bool, parts: list[str]) -> None:
    """Measure in this process, together with the others."""
    torch.set_num_threads(1)
    with joined() as share:
        if pinned:
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[share.rank]})
        found = {name: seconds_of_a_step(trainer) for name, trainer in trainers(open_dataset(source), parts)}
        if share.first:
            target.write_text(json.dumps(found))
    if share.processes > 1:
        os._exit(0)  # as hire does: threads of the connections may abort an interpreter that takes itself apart


def main() -> None:
    """Start each variant, and print a table."""
    source, *parts = sys.argv[1:]
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for variant, (processes, pinned) in VARIANTS.items():
            target = Path(folder) / "found.json"
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(processes),
            ]
            own = [__file__, "--measure", source, str(target), str(int(pinned)), *(parts or PARTS)]
            subprocess.run([*command, *own], check=True)
            found[variant] = json.loads(target.read_text())
    print("| a step of | one process | one, two cores | two processes | two are faster by | than one on two cores |")
    print("|---|---|---|---|---|---|")
    for name, one in found["one"].items():
        both, two = found["one, two cores"][name], found["two"][name]
        times = " | ".join(f"{1000 * seconds:.1f} ms" for seconds in (one, both, two))
        print(f"| {name} | {times} | {one / two:.2f} | {both / two:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]), bool(int(sys.argv[4])), sys.argv[5:])
    else:
        main()
