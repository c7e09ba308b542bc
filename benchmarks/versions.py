"""How much faster answers, explanations and training steps are than in an earlier version, measured in turn in one run.

    python benchmarks/versions.py DATASET --before COMMIT [--rounds 3] [--all-entities] [--json]

The earlier version is taken from the repository's history. Both answer the same questions of the same relations with
the pre-trained model, one thread each, in processes of their own that take turns; what counts is processor time, and
its ratio. A relation has 3 references; candidates are the dataset's own, or with --all-entities every entity.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

WORK = """
import json, resource, sys, time
import numpy as np, torch
torch.set_num_threads(1)
import hire
from hire.systems.path.settings import PathSettings
from hire.systems.path.trainer import PathTrainer
from dataclasses import replace

dataset, every = sys.argv[1], sys.argv[2] == "True"
model = hire.open(dataset)
entities = model.dataset.graph.entities
found = {"first answer": [], "answer": [], "explanation": [], "training step": []}


def timed(kind, work):
    start = time.process_time()
    result = work()
    found[kind].append(1000 * (time.process_time() - start))
    return result


warm = True
for task in model.dataset.split("dev"):
    named = [(entities[int(head)], entities[int(tail)]) for head, tail in task.pairs[:3]]
    chosen = np.arange(len(entities)) if every or task.candidates is None else np.sort(task.candidates)
    relation = model.taught(np.asarray(task.pairs[:3], np.int64), task.name, chosen)
    heads = [entities[int(head)] for head in dict.fromkeys(task.pairs[3:, 0].tolist())][:13]
    if warm:  # compiled on first use
        relation.explain(heads[0], relation.predict(heads[0], 1)[0].tail)
        warm = False
        relation = model.taught(np.asarray(task.pairs[:3], np.int64), task.name, chosen)
    timed("first answer", lambda: relation.predict(heads[0], 10))
    for head in heads[1:]:
        best = timed("answer", lambda: relation.predict(head, 10))
        if best and len(found["explanation"]) < 20:
            timed("explanation", lambda: relation.explain(head, best[0].tail))
trainer = PathTrainer(model.dataset, PathSettings())
trainer.network.train()
for step in range(9):
    if step < 3:
        trainer.loss(trainer.batch(step))[0].backward()
    else:
        timed("training step", lambda: trainer.loss(trainer.batch(step))[0].backward())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({**{kind: float(np.median(times)) for kind, times in found.items()}, "peak MiB": peak}))
"""


def source_of(commit: str, folder: Path) -> Path:
    """The package as it was at a commit."""
    archive = subprocess.run(["git", "archive", commit, "src"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")
    return folder / "src"


def measure(source: Path, dataset: str, every: bool) -> dict[str, float]:
    """Median milliseconds of processor time of each kind of work."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORK, dataset, str(every)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure both versions in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--before", required=True, help="a commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all-entities", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = {"before": source_of(options.before, Path(folder)), "now": Path(__file__).parents[1] / "src"}
        rounds = [
            {name: measure(source, options.dataset, options.all_entities) for name, source in sources.items()}
            for _ in range(options.rounds)
        ]
    table: dict[str, Any] = {}
    for kind in rounds[0]["now"]:
        before, now = (median(each[name][kind] for each in rounds) for name in ("before", "now"))
        ratios = [each["before"][kind] / each["now"][kind] for each in rounds]
        table[kind] = {"before": before, "now": now, "ratio": median(ratios), "ratios": ratios}
    if options.json:
        print(json.dumps(table, indent=1))
        return
    for kind, row in table.items():
        spread = ", ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        print(f"{kind:15} before {row['before']:8.1f}, now {row['now']:8.1f}, {row['ratio']:.2f} times ({spread})")


if __name__ == "__main__":
    main()
