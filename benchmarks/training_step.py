"""One training step of the preset `paper`, one evaluation, and how a step grows with the graph, on one thread.

    python benchmarks/training_step.py [DATASET]

Every time is also given as GFLOP-equivalents: seconds times the speed of a 4096 x 4096 float32 matrix product, measured
around it in the same run. The targets, on NELL-One: a step of 1,024 episodes with 5 references, all 5,120 true and
5,120 false contexts, at most 180 GFLOP-equivalents and 3 GB; an evaluation of the test tasks at most 0.5 s and 43; a
step among 5 million entities at most 1.25 times one among 10,000.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.open import open_dataset
from hire.data.vocabulary import Vocabulary
from hire.embeddings.settings import Embeddings
from hire.evaluation.ranking import evaluate
from hire.systems.hire.trainer import HireTrainer
from hire.training.settings import RunSettings, preset

SIZE = 4096
REPEATS = 5
GIGA = 1e9
LINKS, RELATIONS = 20, 50  # of each entity that is linked at all, and in the made-up graphs


def product_speed() -> float:
    """GFLOP/s of a matrix product."""
    left, right, out = torch.randn(3, SIZE, SIZE)
    torch.mm(left[:256], right, out=out[:256])  # warm
    start = time.perf_counter()
    torch.mm(left, right, out=out)
    return float(2 * SIZE**3 / (time.perf_counter() - start) / GIGA)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """The median seconds of some work, and the same as GFLOP-equivalents."""
    work()
    seconds, equivalents = [], []
    before = product_speed()
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
        after = product_speed()
        equivalents.append(seconds[-1] * (before + after) / 2)
        before = after
    return statistics.median(seconds), statistics.median(equivalents)


def trainer_of(dataset: FewShotDataset, settings: RunSettings) -> HireTrainer:
    """A trainer with random embeddings: how long a step takes does not depend on them."""
    generator = torch.Generator().manual_seed(0)
    dimension = settings.settings.model.dimension
    rows = len(dataset.graph.entities), 2 * len(dataset.graph.relations)
    tables = (torch.empty(count, dimension).normal_(generator=generator) for count in rows)
    return HireTrainer(dataset, Embeddings(*tables), settings.settings)


def made_up(entities: int) -> FewShotDataset:
    """A graph of so many entities, of which the same 5,000 have links and facts: only its size differs."""
    generator = np.random.default_rng(0)
    linked = np.sort(generator.choice(entities, 5_000, replace=False)).astype(np.int32)
    shape = (len(linked) * LINKS // 2,)
    ends = linked[generator.integers(0, len(linked), (2, *shape))]
    triples = np.stack([ends[0], generator.integers(1, RELATIONS, shape, dtype=np.int32), ends[1]], axis=1)
    names = Vocabulary.of((f"e{number:08}" for number in range(entities)), "entity")
    graph = KnowledgeGraph.of(names, Vocabulary.of([f"r{i:02}" for i in range(RELATIONS)], "relation"), triples)
    pairs = linked[generator.integers(0, len(linked), (500, 2))]
    tasks: dict[str, dict[int, Any]] = {"train": {0: pairs}, "dev": {}, "test": {}}
    return FewShotDataset.of(f"{entities:,} entities", graph, tasks, {0: linked})


def step_times(trainers: list[HireTrainer]) -> list[float]:
    """The median seconds of a step of each, measured in turn."""
    times: list[list[float]] = [[] for _ in trainers]
    for _ in range(4 * REPEATS):
        for found, trainer in zip(times, trainers, strict=True):
            start = time.perf_counter()
            trainer.train_step()
            found.append(time.perf_counter() - start)
    return [statistics.median(found[REPEATS:]) for found in times]


def speed(dataset: FewShotDataset) -> None:
    """A step of both presets, and an evaluation."""
    trainer = trainer_of(dataset, preset("paper").changed({"training.context_references": None}))  # all contexts
    with FlopCounterMode(display=False) as counter:
        trainer.train_step()
    seconds, equivalents = timed(trainer.train_step)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    arithmetic = counter.get_total_flops() / GIGA
    print(f"{dataset.name}: a step of preset paper, K = 5: {seconds:.2f} s, {equivalents:.0f} GFLOP-equivalents,")
    print(f"    of which {arithmetic:.0f} GFLOP of products ({arithmetic / equivalents:.0%}); peak {memory:.2f} GB")
    seconds, equivalents = timed(lambda: evaluate(trainer.system(), dataset, "test", 5))
    print(f"{dataset.name}: an evaluation of test, K = 5: {seconds:.2f} s, {equivalents:.0f} GFLOP-equivalents")
    trainer = trainer_of(dataset, preset("fast"))
    seconds, equivalents = timed(trainer.train_step)
    print(f"{dataset.name}: a step of preset fast: {seconds:.3f} s, {equivalents:.1f} GFLOP-equivalents")


def growth() -> None:
    """A step of both presets on a small graph and on a large one."""
    datasets = [made_up(entities) for entities in (10_000, 5_000_000)]
    for name in ("fast", "paper"):
        settings = preset(name).changed({"model.dimension": 50, "training.regime": "tasks"})
        if name == "paper":
            settings = settings.changed({"training.tasks": 256})
        few, many = step_times([trainer_of(dataset, settings) for dataset in datasets])
        print(f"{name}: a step among 10,000 entities {few:.3f} s, among 5,000,000 {many:.3f} s: {many / few:.2f} times")


def main() -> None:
    """Print a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="umls-one")
    parser.add_argument("--small", action="store_true", help="leave out the graph of 5 million entities")
    parser.add_argument("--growth", action="store_true", help="nothing but it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.growth:
        speed(open_dataset(options.dataset))
    if not options.small:
        growth()


if __name__ == "__main__":
    main()
