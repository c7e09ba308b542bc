"""A graph of Wiki-One's size: text to ready graph, opening it again, and contexts against a graph 100 times smaller.

    python benchmarks/wiki_size.py

The targets: at most 60 s and 4 GiB to build, 2 s and 200 MiB of private memory to open, contexts of 1,024 triplets
within 25% of the small graph's speed. The same graph is also written in the published layout and read from it.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from measuring import measure
from synthetic import write_graph

BUILD = """
import time
from hire.cli import hire
start = time.perf_counter()
options = ["--candidates", "range", "--json"]
hire.main(["data", "build", {path!r}, "-o", {output!r}, *options], standalone_mode=False)
seconds, result = time.perf_counter() - start, None
"""
OPEN = """
import time
start = time.perf_counter()
from hire.data.open import open_dataset
dataset = open_dataset({output!r})
name = dataset.graph.entities[len(dataset.graph.entities) // 2]
assert dataset.graph.entities[dataset.graph.entities.id(name)] == name
tasks = len(dataset.tasks)
seconds, result = time.perf_counter() - start, dict(entities=len(dataset.graph.entities), tasks=tasks)
"""
PUBLISHED = """
import time
from pathlib import Path
from hire.data.open import open_dataset
from hire.data.published.write import write_published
from hire.data.published.read import read_published
write_published(open_dataset({output!r}), Path({published!r}), overwrite=True)
start = time.perf_counter()
dataset = read_published(Path({published!r}))
seconds, result = time.perf_counter() - start, len(dataset.graph.triples)
"""
# Both graphs in turn within one process, so that whatever else the machine does hits both alike.
CONTEXTS = """
import time
import numpy as np
from hire.data.open import open_dataset
from hire.sampling.contexts import ContextSampler
generator = np.random.default_rng(0)
kinds = []
for directory in {directories!r}:
    graph = open_dataset(directory).graph
    batches = [graph.triples[generator.integers(0, len(graph.triples), 1024)][:, [0, 2]] for _ in range(200)]
    kinds.append((ContextSampler(graph), batches))
times = [[], []]
for round in range(8):
    for which, (sampler, batches) in enumerate(kinds):
        start = time.perf_counter()
        for pairs in batches:
            sampler.true(pairs, None)
        times[which].append((time.perf_counter() - start) / len(batches))
seconds = sum(map(sum, times))
result = [min(part[1:]) for part in times]
"""


def main() -> None:
    """Print the three measurements beside their targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    work = parser.parse_args().work
    directories = []
    for scale in (1.0, 0.01):
        path = write_graph(work / f"graph-{scale:g}.tsv", scale)
        output = work / f"dataset-{scale:g}"
        shutil.rmtree(output, ignore_errors=True)
        built = measure(BUILD.format(path=str(path), output=str(output)))
        opened = measure(OPEN.format(output=str(output)))
        print(f"{path.name}: {opened['result']['entities']:,} entities, {opened['result']['tasks']} tasks")
        print(f"  build    {built['seconds']:7.2f} s   peak    {built['peak_mib']:7,.0f} MiB")
        print(f"  open     {opened['seconds']:7.2f} s   private {opened['private_mib']:7,.0f} MiB", flush=True)
        published = measure(PUBLISHED.format(output=str(output), published=str(work / f"published-{scale:g}")))
        print(
            f"  read published layout {published['seconds']:.2f} s   peak {published['peak_mib']:,.0f} MiB", flush=True
        )
        directories.append(str(output))
    large, small = measure(CONTEXTS.format(directories=directories))["result"]
    print(
        f"contexts of 1,024 triplets: {large * 1e3:.2f} ms, small graph {small * 1e3:.2f} ms, ratio {large / small:.2f}"
    )


if __name__ == "__main__":
    main()
