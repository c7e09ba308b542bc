"""What each of the four levels is worth: runs of the preset `best` with one level left out.

    python benchmarks/levels.py RUN ... [--split test] [--work build/levels]

HiRe is trained again without its context level (lambda 0), its triplet level (the mean of the references in place of
set attention) or its entity level (the plain translation in place of MTransD and MAML), with the preset's other
settings and the seed of the run; the path level does not depend on it and is that of the run. A line of JSON for each
variant of each run, then means. What was trained stays under --work, where a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from hire.evaluation.ranking import evaluate
from hire.inference.model import load
from hire.systems.base import FewShotModel
from hire.systems.ensemble import HirePath
from hire.systems.hire.model import Hire
from hire.training.pipeline import fit
from hire.training.run import CONFIG, read_config
from hire.training.settings import RunSettings, preset

SHOTS = (1, 3, 5)
FIGURES = ("mrr", "hits@10")
WITHOUT: dict[str, dict[str, Any]] = {
    "context": {"context_weight": 0.0},
    "triplet": {"learner": "mean"},
    "entity": {"decoder": "mtranse", "inner_steps": 0},
}


def trained(source: str, run: Path, settings: RunSettings) -> Hire:
    """The model of a run without a path level, trained unless it is there."""
    fit(source, run, settings, resume=(run / CONFIG).exists())
    model = load(run).model
    assert isinstance(model, Hire)
    return model


def variants(run: Path, work: Path) -> dict[str, FewShotModel]:
    """The model of a run, and what is left of it without each level."""
    config, whole = read_config(run), load(run)
    if not isinstance(whole.model, HirePath):
        raise SystemExit(f"{run}: has no path level")
    source, seed = config["dataset"]["source"], config["training"]["seed"]
    settings = preset("fast").changed(training={"seed": seed}, embedding={"seed": seed})
    found: dict[str, FewShotModel] = {"all levels": whole.model}
    for level, changes in WITHOUT.items():
        hire = trained(source, work / f"without-{level}-{seed}", settings.changed(model=changes))
        found[f"without the {level} level"] = HirePath(hire, whole.model.path)
    return found | {"without the path level": whole.model.hire, "the path level alone": whole.model.path}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="dev", choices=["dev", "test"])
    parser.add_argument("--work", type=Path, default=Path("build/levels"))
    options = parser.parse_args()
    everything: dict[str, list[list[float]]] = {}
    for run in options.runs:
        dataset = load(run).dataset
        for name, model in variants(run, options.work).items():
            found = {shots: evaluate(model, dataset, options.split, shots)["realistic"] for shots in SHOTS}
            figures = {f"{shots}-{key}": found[shots][key] for shots in SHOTS for key in FIGURES}
            print(json.dumps({"run": run.name, "variant": name, "split": options.split, **figures}), flush=True)
            everything.setdefault(name, []).append(list(figures.values()))
    for name, rows in everything.items():
        means, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=min(1, len(rows) - 1))
        print(f"{name:28}" + "".join(f"  {mean:.3f} ± {by:.3f}" for mean, by in zip(means, spread, strict=True)))


if __name__ == "__main__":
    main()
