"""What each part of HiRe is worth: the preset `fast` with one thing changed, on relations that no training has seen.

    python benchmarks/ablations.py DATASET [--steps 1500] [--seeds 0 1] [--folds 0 1 2 3] [--draws 5]
                                   [--set NAME=VALUE ...] [--only NAME ...]

Dev has few relations. So every fourth train relation is held out of training as well, and the MRR for 1, 3 and 5
references is given for dev and for those; with all folds, each train relation is held out once. The first pairs of a
relation are its references, or they are drawn several times. Test is not touched.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import product
from typing import Any

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import Embeddings
from hire.evaluation.ranking import evaluate, evaluate_draws
from hire.systems.base import FewShotSystem
from hire.systems.hire.trainer import HireTrainer
from hire.systems.mean_translation import MeanTranslation
from hire.training.embedding import embeddings_of
from hire.training.settings import RunSettings, preset
from hire.util.settings import parse_assignment
from path_level import without_fold

SHOTS = (1, 3, 5)
EVERY = 4  # of the train relations, one is held out
VARIANTS: dict[str, dict[str, Any]] = {
    "fast": {},
    "without context": {"model.context_weight": 0.0},
    "all contexts, lambda 0.5": {"model.context_weight": 0.5, "training.context_references": 160},
    "AVG": {"model.learner": "mean"},
    "LSTM": {"model.learner": "lstm"},
    "without MAML": {"model.inner_steps": 0},
    "MAML, first order": {"model.second_order": False},
    "MTransE": {"model.decoder": "mtranse"},
    "MTransH": {"model.decoder": "mtransh"},
    "the inner step alone shifts projections": {"model.learned_shifts": False},
    "loss on the references": {"model.reference_weight": 1.0},
    "without t - h": {"model.residual": False},
    "a single t - h counts fully": {"model.residual_shots": 1},
    "learner from a tenth": {"model.learner_start": 0.1},
    "margin loss": {"model.loss": "margin", "training.embedding_norm": 1.0},
    "tables learn at a third": {"optimizer.table_learning_rate": 2e-3},
    "tables learn at three times": {"optimizer.table_learning_rate": 2e-2},
    "without inverse tasks": {"training.shares.inverse": False},
    "regime tasks": {"training.regime": "tasks"},
}


def mrr(system: FewShotSystem, dataset: FewShotDataset, draws: int | None) -> dict[str, float]:
    """MRR on dev and on the held-out train relations."""

    def of(split: str, shots: int) -> float:
        if draws is None:
            return float(evaluate(system, dataset, split, shots)["realistic"]["mrr"])
        return float(evaluate_draws(system, dataset, split, shots, draws)["mean"]["mrr"])

    return {
        f"{name}-{shots}": of(split, shots) for name, split in (("dev", "dev"), ("held", "test")) for shots in SHOTS
    }


def trained(dataset: FewShotDataset, embeddings: Embeddings, settings: RunSettings) -> FewShotSystem:
    """The system after all steps, as it is then."""
    trainer = HireTrainer(dataset, embeddings, settings.settings)
    while trainer.step < trainer.steps:
        trainer.train_step()
    return trainer.system()


def main() -> None:
    """Print a line of JSON for each run, and the mean of each variant at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folds", type=int, nargs="+", choices=range(EVERY), default=[0])
    parser.add_argument("--draws", type=int, help="of the references; their first pairs if left out")
    parser.add_argument("--set", nargs="+", type=parse_assignment, default=[], help="settings that all variants have")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    original = open_dataset(options.dataset)
    found: dict[str, list[dict[str, float]]] = {}
    for seed, fold in product(options.seeds, options.folds):
        dataset = without_fold(original, fold, EVERY)
        base = preset("fast").changed({"training.steps": options.steps, **dict(options.set)}).seeded(seed)
        embeddings = embeddings_of(original, base.settings.embedding)
        for name in ["TransE", *options.only]:
            start = time.monotonic()
            if name == "TransE":
                system: FewShotSystem = MeanTranslation(embeddings.entities)
            else:
                system = trained(dataset, embeddings, base.changed(VARIANTS[name]))
            of_run = mrr(system, dataset, options.draws)
            found.setdefault(name, []).append(of_run)
            about = {"variant": name, "seed": seed, "fold": fold, "seconds": round(time.monotonic() - start)}
            print(json.dumps({**about, **of_run}), flush=True)
    for name, runs in found.items():
        means = (statistics.mean(run[key] for run in runs) for key in runs[0])
        print(f"{name:28}" + "".join(f"{mean:8.3f}" for mean in means))


if __name__ == "__main__":
    main()
