"""How much faster a training step of each system is than in an earlier version, and whether its losses are the same.

    python benchmarks/steps.py DATASET --before COMMIT [--systems cian,faan,...] [--recipe common] [--steps 20]

The earlier version is taken from the repository's history. Both take the same steps from the same random embeddings,
without dropout, one thread each, in processes of their own; what counts is the median processor time of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from versions import source_of

WORK = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
from hire.data.open import open_dataset
from hire.embeddings.settings import Embeddings
from hire.systems.registry import system_class
from hire.training.settings import RunSettings
from hire.util.settings import paths

source, name, recipe, steps = *sys.argv[1:4], int(sys.argv[4])
dataset = open_dataset(source)
settings = RunSettings.of_recipe(name, recipe)
settings = settings.changed({path: 0.0 for path in paths(settings.settings) if "dropout" in path})


class Resources:
    device, parts = torch.device("cpu"), {}

    def embeddings(self, settings):
        generator = torch.Generator().manual_seed(0)
        rows = len(dataset.graph.entities), 2 * len(dataset.graph.relations)
        return Embeddings(*(torch.empty(count, 100).normal_(generator=generator) for count in rows))


trainer = system_class(name).trainer(dataset, settings.settings, Resources())
losses, times = [], []
for step in range(steps):
    batch = trainer.batch(step)
    start = time.process_time()
    losses.append(trainer.train_step(batch))
    times.append(1000 * (time.process_time() - start))
print(json.dumps({"losses": losses, "milliseconds": float(np.median(times[3:])), "steps": trainer.steps}))
"""


def measure(source: Path, *given: str) -> dict[str, Any]:
    """The losses of some steps, and how long one takes."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORK, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line for each system and recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--before", required=True, help="a commit")
    parser.add_argument("--systems", default="gmatching,fsrl,faan,cian,transh")
    parser.add_argument("--recipe", default="common,published")
    parser.add_argument("--steps", default="20")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = [source_of(options.before, Path(folder)), Path(__file__).parents[1] / "src"]
        for name in options.systems.split(","):
            for recipe in options.recipe.split(","):
                before, now = (measure(each, options.dataset, name, recipe, options.steps) for each in sources)
                old, new = before["milliseconds"], now["milliseconds"]
                apart = max(abs(a - b) / abs(a) for a, b in zip(before["losses"], now["losses"], strict=True))
                minutes = new * now["steps"] / 60_000
                print(
                    f"{name}, {recipe}: {old:.1f} to {new:.1f} ms, {old / new:.2f} times; {minutes:.1f} minutes", end=""
                )
                print(f" for {now['steps']:,} steps; losses differ by {apart:.1e} at most, relatively", flush=True)


if __name__ == "__main__":
    main()
