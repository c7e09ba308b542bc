"""What half precision and tables in a file cost: MRR on dev, memory of an entity, and processor time.

    python benchmarks/storage.py data/nell-one [--embedding-steps 1500] [--steps 300] [--seeds 1]

Embeddings are learned in each kind of storage and ranked by `mean-translation`; then HiRe learns with the preset `fast`
from those embeddings in the same kind of storage. The cache is not used.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.trainer import EmbeddingTrainer
from hire.optim.storage import StorageSettings
from hire.optim.tables import RowTable
from hire.optim.trainer import Trainer
from hire.systems.base import FewShotSystem
from hire.systems.hire.trainer import HireTrainer
from hire.systems.mean_translation import MeanTranslation
from hire.training.pipeline import dev_metrics
from hire.training.settings import preset

KINDS = {
    "float32, memory": StorageSettings(),
    "bfloat16, memory": StorageSettings(precision="bfloat16"),
    "float16, memory": StorageSettings(precision="float16"),
    "float32, file": StorageSettings(place="file"),
}


def trained(trainer: Trainer[Any, Any]) -> tuple[float, int]:
    """Train to the end: processor seconds, and the bytes of an entity in all tables."""
    start = time.process_time()
    while trainer.step < trainer.steps:
        trainer.train_step()
    tables = [table for name, table in trainer.tables.items() if name != "relations" and isinstance(table, RowTable)]
    return time.process_time() - start, sum(table.row_bytes for table in tables)


def measured(dataset: FewShotDataset, storage: StorageSettings, steps: tuple[int, int], seed: int) -> list[float]:
    """MRR, bytes and seconds of embeddings, then of HiRe."""
    settings = preset("fast").seeded(seed).settings
    embedding = replace(settings.embedding, steps=steps[0], storage=storage)
    embeddings = EmbeddingTrainer(dataset.graph, embedding)
    seconds, size = trained(embeddings)
    learned = embeddings.embeddings()
    found = [mrr(MeanTranslation(learned.entities), dataset), size, seconds]
    training, optimizer = replace(settings.training, steps=steps[1]), replace(settings.optimizer, storage=storage)
    hire = HireTrainer(dataset, learned, replace(settings, training=training, optimizer=optimizer))
    seconds, size = trained(hire)
    return [*found, mrr(hire.system(), dataset), size, seconds]


def mrr(system: FewShotSystem, dataset: FewShotDataset) -> float:
    """The mean over 1, 3 and 5 references, on dev."""
    return dev_metrics(system, dataset)["mean"]


def main() -> None:
    """Measure every kind of storage, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("--embedding-steps", type=int, default=1_500)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = open_dataset(options.dataset)
    steps = (options.embedding_steps, options.steps)
    print("| entity tables | mean-translation | bytes an entity | seconds | fast | bytes an entity | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, storage in KINDS.items():
        of_seeds = [measured(dataset, storage, steps, seed) for seed in range(options.seeds)]
        means = [statistics.mean(values) for values in zip(*of_seeds, strict=True)]
        cells = [f"{value:.{digits}f}" for value, digits in zip(means, (4, 0, 0, 4, 0, 0), strict=True)]
        print(f"| {' | '.join([name, *cells])} |", flush=True)


if __name__ == "__main__":
    main()
