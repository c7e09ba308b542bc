"""What each of the four levels is worth: runs of the preset `levels` with one level left out.

    python benchmarks/levels.py RUN ... [--split test] [--work build/levels]

HiRe is trained again without its context level (lambda 0), its triplet level (the mean of the references in place of
set attention) or its entity level (the plain translation in place of MTransD and MAML), with the preset's other
settings and the seed of the run; the path level does not depend on it and is that of the run. A line of JSON for each
variant of each run, then means. What was trained stays under --work, where an interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from hire.evaluation.ranking import evaluate
from hire.inference.fit import fit
from hire.inference.model import load
from hire.systems.base import FewShotSystem
from hire.systems.ensemble import Ensemble
from hire.training.run import CONFIG, read_config, read_run_settings
from hire.training.settings import RunSettings, preset

SHOTS = (1, 3, 5)
METRICS = ("mrr", "hits@10")
WITHOUT: dict[str, dict[str, Any]] = {
    "context": {"model.context_weight": 0.0},
    "triplet": {"model.learner": "mean"},
    "entity": {"model.decoder": "mtranse", "model.inner_steps": 0},
}


def trained(source: str, run: Path, settings: RunSettings) -> FewShotSystem:
    """The system of a run without a path level, trained unless it is there."""
    fit(source, run, settings, resume=(run / CONFIG).exists(), calibrate=False)
    return load(run).system


def variants(run: Path, work: Path) -> dict[str, FewShotSystem]:
    """The system of a run, and what is left of it without each level."""
    whole = load(run).system
    if not isinstance(whole, Ensemble) or whole.members.keys() != {"hire", "path"}:
        raise SystemExit(f"{run}: is not a run of the preset levels")
    hire, path = whole.members["hire"], whole.members["path"]
    source = read_config(run)["dataset"]["source"]
    seed = read_run_settings(run).settings.members["hire"].settings.training.seed
    settings = preset("fast").seeded(seed)
    found: dict[str, FewShotSystem] = {"all levels": whole}
    for level, changes in WITHOUT.items():
        without = trained(source, work / f"without-{level}-{seed}", settings.changed(changes))
        found[f"without the {level} level"] = Ensemble({"hire": without, "path": path}, whole.weights)
    return found | {"without the path level": hire, "the path level alone": path}


def main() -> None:
    """Print the metrics of each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="dev", choices=["dev", "test"])
    parser.add_argument("--work", type=Path, default=Path("build/levels"))
    options = parser.parse_args()
    everything: dict[str, list[list[float]]] = {}
    for run in options.runs:
        dataset = load(run).dataset
        for name, system in variants(run, options.work).items():
            found = {shots: evaluate(system, dataset, options.split, shots)["realistic"] for shots in SHOTS}
            values = {f"{shots}-{key}": found[shots][key] for shots in SHOTS for key in METRICS}
            print(json.dumps({"run": run.name, "variant": name, "split": options.split, **values}), flush=True)
            everything.setdefault(name, []).append(list(values.values()))
    for name, rows in everything.items():
        means, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=min(1, len(rows) - 1))
        print(f"{name:28}" + "".join(f"  {mean:.3f} ± {by:.3f}" for mean, by in zip(means, spread, strict=True)))


if __name__ == "__main__":
    main()
