"""What a whole `hire train` takes, calibration included: seconds, processor time and peak memory.

    python benchmarks/training.py [DATASET] [--steps N]

Without a dataset, a dense graph is made up, as large as a graph of events: 7,000 entities of 20 types and 50,000 facts
of 80 relations. The targets are 15 minutes on two cores and 3 GB, there and on FB15k237-One.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ENTITIES, FACTS, TYPES, RELATIONS = 7_000, 50_000, 20, 80
CLUSTERS = 8  # of a type: facts mostly lead from one cluster to the same one, so that there is something to learn
SKEW = 3.0  # of degrees


def write_graph(path: Path, seed: int = 0) -> Path:
    """Write `head TAB relation TAB tail` lines, without repetitions; an entity's name begins with its type."""
    generator = np.random.default_rng(seed)
    types = generator.integers(0, TYPES, (RELATIONS, 2))  # of the heads and tails of each relation
    shares = generator.dirichlet(np.full(RELATIONS, 0.7))
    of_a_type = ENTITIES // TYPES
    facts: dict[tuple[str, str, str], None] = {}
    while len(facts) < FACTS:
        relation = int(generator.choice(RELATIONS, p=shares))
        head, tail = (of_a_type * generator.random(2) ** SKEW).astype(int)
        if generator.random() < 0.8:
            tail = min(of_a_type - 1, tail - tail % CLUSTERS + head % CLUSTERS)
        ends = [f"type{types[relation, side]}:e{number}" for side, number in enumerate((head, tail))]
        facts[ends[0], f"r{relation}", ends[1]] = None
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts), "utf-8")
    return path


def hire(*arguments: str | Path) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "hire", *map(str, arguments)], check=True)


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="?")
    parser.add_argument("--steps", type=int, help="fewer steps than the default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = options.dataset
        if dataset is None:
            dataset = folder / "events"
            hire("data", "build", write_graph(folder / "graph.tsv"), "-o", dataset)
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        steps = [] if options.steps is None else ["--set", f"training.steps={options.steps}"]
        hire("train", dataset, "-o", folder / "run", *steps)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"{time.perf_counter() - start:.0f} s, {processor:.0f} s of processor time, "
            f"at most {used.ru_maxrss / 1024:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
