"""Whether training and scoring are as they were: the losses of 50 steps of every preset, and the scores of fixed pairs.

    python benchmarks/unchanged.py record FILE.json [DATASET ...]
    python benchmarks/unchanged.py check FILE.json

Records umls-one and whatever other datasets are named. A check demands the same bits, which only
the machine that recorded them can be expected to give.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.systems.base import FewShotSystem, Support
from hire.systems.ensemble import Ensemble
from hire.systems.hire.trainer import HireTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.settings import PRESETS, preset

STEPS, EMBEDDING_STEPS, SHOTS = 50, 200, 3
HEADS, CANDIDATES = 8, 25


def scores_of(system: FewShotSystem, dataset: FewShotDataset) -> list[str]:
    """The scores of some heads and candidates of every dev task."""
    found: list[float] = []
    for task in dataset.split("dev", SHOTS):
        candidates = np.arange(len(dataset.graph.entities)) if task.candidates is None else np.sort(task.candidates)
        state = system.adapt(Support(np.asarray(task.pairs[:SHOTS]), candidates, relation=task.relation))
        some = candidates[:: max(1, len(candidates) // CANDIDATES)][:CANDIDATES]
        found += system.score(state, np.asarray(task.pairs[SHOTS : SHOTS + HEADS, 0]), some).flatten().tolist()
    return [value.hex() for value in found]


def measure(dataset: FewShotDataset, steps: int) -> dict[str, Any]:
    """Everything that must not change by accident."""
    found: dict[str, Any] = {}
    embedding = EmbeddingTrainer(dataset.graph, EmbeddingSettings(steps=EMBEDDING_STEPS))
    losses = [embedding.train_step().hex() for _ in range(embedding.steps)][-STEPS:]
    for name in (name for name in PRESETS if name != "best"):  # the path level alone, which is a part of `levels`
        chosen = preset(name).settings
        of_hire = chosen.members["hire"].settings if name == "levels" else chosen
        of_hire = replace(of_hire, training=replace(of_hire.training, steps=3_000))
        found[f"{name}/embeddings"] = losses
        trainer = HireTrainer(dataset, embedding.embeddings(), of_hire)
        found[f"{name}/hire"] = [trainer.train_step().hex() for _ in range(steps)]
        system: FewShotSystem = trainer.system()
        if name == "levels":
            paths = PathTrainer(dataset, chosen.members["path"].settings)
            found[f"{name}/path"] = [paths.train_step().hex() for _ in range(min(steps, paths.steps))]
            system = Ensemble({"hire": system, "path": paths.system()}, {"hire": 0.3, "path": 1.0})
        found[f"{name}/scores"] = scores_of(system, dataset)
    return found


def main() -> None:
    """Record or check."""
    action, path, *datasets = sys.argv[1:]
    torch.set_num_threads(1)  # several add up in an order that varies
    if action == "record":
        recorded = {source: measure(open_dataset(source), STEPS) for source in ["umls-one", *datasets]}
        Path(path).write_text(json.dumps(recorded, indent=1) + "\n", "utf-8")
        return
    worst = 0.0
    for source, before in json.loads(Path(path).read_text("utf-8")).items():
        now = measure(open_dataset(source), STEPS)
        for key, values in before.items():
            old, new = (np.array([float.fromhex(value) for value in part]) for part in (values, now[key]))
            difference = float(np.abs(old - new).max()) if old.shape == new.shape else float("inf")
            worst = max(worst, difference)
            print(f"{source} {key}: {'the same bits' if values == now[key] else f'differs by {difference:g}'}")
    sys.exit(worst > 0)


if __name__ == "__main__":
    main()
