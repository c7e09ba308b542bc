"""How time and memory grow with the graph, from 10 thousand to 50 million entities: one table and one chart.

    python benchmarks/scale.py                        # all sizes: half an hour, 12 GiB of memory, 20 GB of disk
    python benchmarks/scale.py --entities 10000       # one of them; the others stay as they were measured before
    python benchmarks/scale.py --nell-one DATASET     # steps of training, each in turn with one on NELL-One
    python benchmarks/scale.py --chart                # the chart of what has been measured

The graphs are those of benchmarks/planted.py. Each stage is a process of its own; every stage but the building of the
dataset reads what it needs from the page cache. A step of training is told in seconds of the processor, on one thread,
and as a multiple of one on NELL-One, if that is given, in the same process: a busy machine hits both alike. Memory is
that of the process itself, without pages of mapped files, which are told apart.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hire.comparison.charts import COLORS
from hire.util.svg import WIDTH, line, picture, text
from measuring import measure
from planted import WIKI_ENTITIES, Planted, judge

SIZES = (10_000, 100_000, 1_000_000, WIKI_ENTITIES, 50_000_000)
MOST_TRAINED = 10_000_000  # entities: of more, the tables of a training do not fit into 24 GiB
MOST_RANKED = 10_000_000  # entities that are all ranked in a query
MEASURED, CHART = Path("results/scale/measured.json"), Path("docs/images/scale.svg")

BUILD = """
import time
from hire.cli import hire
start = time.perf_counter()
command = ["data", "build", {folder!r} + "/graph.tsv", "--types", {folder!r} + "/types.tsv", "--split", "133:16:34"]
hire.main([*command, "-o", {dataset!r}, "--overwrite", "--json"], standalone_mode=False)
seconds, result = time.perf_counter() - start, None
"""
INDEX = """
import time
from hire.cli import hire
start = time.perf_counter()
hire.main(["data", "index", {dataset!r}, "--overwrite"], standalone_mode=False)
seconds, result = time.perf_counter() - start, None
"""
OPEN = """
import time, torch
from hire.inference.open import open_model
from hire.systems.path.graph import EvidenceGraph
from hire.data.open import open_dataset
torch.set_num_threads(1)
start = time.perf_counter()
open_dataset({dataset!r})
of_dataset = time.perf_counter() - start
model = open_model({dataset!r})
seconds, result = time.perf_counter() - start - of_dataset, dict(dataset=of_dataset)
"""
ANSWERS = """
import statistics, time, torch
import numpy as np
from hire.inference.open import open_model
torch.set_num_threads(1)
model = open_model({dataset!r})
everything = np.arange(len(model.dataset.graph.entities))
firsts, answers = [], []
for task in model.dataset.split("test", 5)[:8]:
    pairs = np.asarray(task.pairs)
    finder = model._candidate_finder
    chosen = finder.most_similar(everything, pairs[:5, 1], 20_000)  # of all entities, whatever their types
    start = time.perf_counter()
    relation = model.taught(pairs[:5], None, chosen)
    relation._answers(pairs[5:6, 0], 10, False, None)
    firsts.append(time.perf_counter() - start)
    for head in pairs[6:16, 0]:
        start = time.perf_counter()
        relation._answers(head[None], 10, False, None)
        answers.append(time.perf_counter() - start)
taught = []
for task in model.dataset.split("test", 5)[:8]:
    pairs = np.asarray(task.pairs)
    start = time.perf_counter()
    model.taught(pairs[:4])._answers(pairs[5:6, 0], 10, False, None)  # candidates by type, as for anyone who teaches
    taught.append(time.perf_counter() - start)
result = dict(first=statistics.median(firsts[1:]), taught=statistics.median(taught), among=len(chosen))
result |= dict(first_most=max(firsts[1:]), compiled=firsts[0])
if {everything}:
    alls = []
    for task in model.dataset.split("test", 5)[:4]:
        pairs = np.asarray(task.pairs)
        relation, times = model.taught(pairs[:5], None, everything), []
        for head in pairs[6:11, 0]:
            start = time.perf_counter()
            relation._answers(head[None], 10, False, None)
            times.append(time.perf_counter() - start)
        alls.append(times)
    result |= dict(all=statistics.median(time for times in alls for time in times[1:]))
    result |= dict(all_first=statistics.median(times[0] for times in alls[1:]), all_once=alls[0][0])
seconds = statistics.median(answers)
"""
EVALUATE = """
import time
from hire.evaluation.ranking import evaluate
from hire.inference.open import open_model
model = open_model({dataset!r})
start = time.perf_counter()
result = evaluate(model.system, model.dataset, "test", 5)["realistic"]["mrr"]
seconds = time.perf_counter() - start
"""
STEPS = """
import sys, statistics, time, torch
sys.path.insert(0, {benchmarks!r})
from training_step import trainer_of
from hire.data.open import open_dataset
from hire.embeddings.settings import EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.settings import preset
torch.set_num_threads(1)
paper = preset("paper").changed({{"model.dimension": 50, "training.regime": "tasks", "training.tasks": 256}})
make, together = dict(
    pretrain=(lambda dataset: EmbeddingTrainer(dataset.graph, EmbeddingSettings(dimension=50)), 40),
    hire=(lambda dataset: trainer_of(dataset, paper), 1),
    path=(PathTrainer, 2),
)[{kind!r}]
trainers = [make(open_dataset(dataset)) for dataset in {datasets!r}]
times = [[] for _ in trainers]
for trainer in trainers:
    trainer.train_step()
for _ in range({rounds}):
    for found, trainer in zip(times, trainers):
        start = time.process_time()
        for _ in range(together):
            trainer.train_step()
        found.append((time.process_time() - start) / together)
result = [statistics.median(found[1:]) for found in times]
seconds = result[0]
"""
CURVES = {  # in the chart: panel, name of the measurement, what it is called
    "seconds": {
        "build": "build and index",
        "index": "index alone",
        "open": "open",
        "start": "hire predict, whole command",
        "first": "first answer of a relation",
        "answer": "answer among 20,000",
    },
    "milliseconds of a step": {
        "pretrain": "pre-training, 1,024 facts",
        "hire": "HiRe, 256 episodes",
        "path": "path level, 64 queries",
    },
    "MiB": {
        "build_mib": "build and index, peak",
        "index_mib": "index, peak",
        "open_mib": "open model, private",
        "answer_mib": "answers, private",
        "answer_mapped_mib": "answers, mapped",
    },
}
OTHERS = {  # in the table only
    "open_dataset": "open the dataset alone, seconds",
    "taught": "teach with candidates by type, and answer, seconds",
    "all": "answer among all entities, seconds",
    "all_first": "the first of a relation, seconds",
    "all_once": "the first of all, seconds",
    "pretrain_ratio": "pre-training step, times that on NELL-One",
    "hire_ratio": "HiRe step, times that on NELL-One",
    "path_ratio": "path-level step, times that on NELL-One",
    "pretrain_mib": "pre-training, peak MiB",
    "hire_mib": "HiRe training, peak MiB",
    "path_mib": "path-level training, peak MiB",
    "bytes": "dataset and index on disk, bytes",
    "evaluate": "evaluation of the test tasks, 5 references, seconds",
    "evaluate_mib": "evaluation, peak MiB",
    "mrr": "MRR of the pre-trained model on test",
    "perfect": "MRR of a perfect reasoner on test",
}


def measured_at(entities: int, work: Path, nell_one: str | None) -> Iterator[dict[str, Any]]:
    """Measurements of a graph of some size, by name: seconds, milliseconds of steps, MiB; one part after the other."""
    folder, dataset = work / f"planted-{entities}", str(work / f"planted-{entities}" / "dataset")
    Planted(entities).write(folder)
    built = measure(BUILD.format(folder=str(folder), dataset=dataset))
    indexed = measure(INDEX.format(dataset=dataset))
    opened = measure(OPEN.format(dataset=dataset))
    yield {
        "build": built["seconds"],
        "build_mib": built["peak_mib"],
        "index": indexed["seconds"],
        "index_mib": indexed["peak_mib"],
        "open": opened["seconds"],
        "open_dataset": opened["result"]["dataset"],
        "open_mib": opened["private_mib"],
        "start": started(dataset),
        "perfect": judge(folder, dataset, "test"),
        "bytes": sum(path.stat().st_size for path in Path(dataset).rglob("*.npy")),
    }
    yield answered(entities, dataset)
    ranked = measure(EVALUATE.format(dataset=dataset))
    yield {"mrr": ranked["result"], "evaluate": ranked["seconds"], "evaluate_mib": ranked["peak_mib"]}
    if entities <= MOST_TRAINED:
        yield stepped(dataset, nell_one)


def started(dataset: str) -> float:
    """Seconds of a whole `hire predict`: process, model, a relation, an answer; the second of two."""
    from hire.data.open import open_dataset

    opened = open_dataset(dataset)
    names, task = opened.graph.entities, opened.split("test", 5)[0]
    references = Path(dataset).parent / "references.tsv"
    references.write_text("".join(f"{names[int(h)]}\t{names[int(t)]}\n" for h, t in task.pairs[:5]))
    command = [sys.executable, "-m", "hire", "predict", dataset, "--references", str(references)]
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run([*command, "--head", names[int(task.pairs[5, 0])]], check=True, capture_output=True)
    return time.perf_counter() - start


def answered(entities: int, dataset: str) -> dict[str, Any]:
    """Answers of the pre-trained model."""
    answers = measure(ANSWERS.format(dataset=dataset, everything=entities <= MOST_RANKED))
    memory = {"answer_mib": answers["private_mib"], "answer_mapped_mib": answers["mapped_mib"]}
    return {"answer": answers["seconds"], **memory, **answers["result"]}


def stepped(dataset: str, nell_one: str | None) -> dict[str, Any]:
    """Steps of training, in milliseconds, each kind in a process of its own; then in turn with steps on NELL-One."""
    found: dict[str, Any] = {}
    here = str(Path(__file__).resolve().parent)
    for kind in ("pretrain", "hire", "path"):
        alone = measure(STEPS.format(datasets=[dataset], benchmarks=here, kind=kind, rounds=6))
        found |= {kind: 1e3 * alone["seconds"], f"{kind}_mib": alone["peak_mib"]}
        if nell_one is not None:
            both = measure(STEPS.format(datasets=[dataset, nell_one], benchmarks=here, kind=kind, rounds=10))
            found[f"{kind}_ratio"] = both["result"][0] / both["result"][1]
    return found


def slope(sizes: list[int], values: list[float]) -> float:
    """The power of the number of entities that a measurement grows with, from a hundred thousand entities on."""
    large = np.log([pair for pair in zip(sizes, values, strict=True) if pair[0] >= 100_000]).reshape(-1, 2)
    return float(np.polyfit(large[:, 0], large[:, 1], 1)[0]) if len(large) > 1 else math.nan


def chart(measured: dict[int, dict[str, Any]]) -> str:
    """Three panels below one another, both axes logarithmic."""
    sizes, parts, top = sorted(measured), [], 70.0
    title = "Time and memory by the number of entities (the number behind each name is its slope)"
    parts.append(text(20, 28, title, "end", "start", 140))
    left, right, height = 90.0, WIDTH - 330.0, 260.0
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])

    def x_of(size: float) -> float:
        return left + (right - left) * (math.log10(size) - low) / max(high - low, 1e-9)

    for panel, names in CURVES.items():
        values = [measured[size][name] for name in names for size in sizes if name in measured[size]] or [1.0]
        least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        parts.append(text(left, top - 12, panel, "end", "start"))

        def y_of(value: float, top: float = top, least: int = least, most: int = most) -> float:
            return top + height * (most - math.log10(value)) / max(most - least, 1)

        for power in range(least, most + 1):
            y = y_of(10**power)
            parts += [line("edge", left, y, right, y), text(left - 8, y + 4, f"{10.0**power:,g}", "relation", "end")]
        parts += [text(x_of(size), top + height + 18, f"{size:,}", "relation") for size in sizes]
        for number, (name, called) in enumerate(names.items()):
            known = [size for size in sizes if name in measured[size]]
            points = [(x_of(size), y_of(measured[size][name])) for size in known]
            color = COLORS[number % len(COLORS)]
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{joined}" style="fill:none;stroke:{color};stroke-width:2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in points]
            grows = slope(known, [measured[size][name] for size in known])
            steepness = "" if math.isnan(grows) else f"{grows:.2f}"
            at = top + 14 + 24 * number
            parts.append(f'<circle cx="{right + 30:g}" cy="{at - 4:g}" r="4" fill="{color}"/>')
            parts.append(text(right + 42, at, f"{called}  {steepness}", "", "start", 60))
        top += height + 74
    return picture(top, parts, title)


def table(measured: dict[int, dict[str, Any]]) -> str:
    """All measurements as Markdown, with the power of the number of entities that each grows with."""
    sizes = sorted(measured)
    rows = [["entities", *(f"{size:,}" for size in sizes), "slope"], ["---"] * (len(sizes) + 2)]
    names = {name: f"{called}, {panel}" for panel, of in CURVES.items() for name, called in of.items()} | OTHERS
    for name, called in names.items():
        known = [size for size in sizes if name in measured[size]]
        values = [f"{measured[size][name]:,.3g}" if name in measured[size] else "" for size in sizes]
        grows = slope(known, [measured[size][name] for size in known])
        rows.append([called, *values, "" if math.isnan(grows) else f"{grows:.2f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure some sizes, and draw the chart of all that have been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, nargs="*", default=SIZES)
    parser.add_argument("--work", type=Path, default=Path("build/scale"))
    parser.add_argument("--nell-one", help="the dataset, to compare steps of training with")
    parser.add_argument("--chart", action="store_true", help="measure nothing")
    options = parser.parse_args()
    for entities in () if options.chart else options.entities:
        for found in measured_at(entities, options.work, options.nell_one):
            print(entities, {name: round(value, 3) for name, value in found.items()}, flush=True)
            everything = stored()
            everything[entities] = everything.get(entities, {}) | found
            MEASURED.parent.mkdir(parents=True, exist_ok=True)
            MEASURED.write_text(json.dumps({size: everything[size] for size in sorted(everything)}, indent=1) + "\n")
    CHART.write_text(chart(stored()))
    print(table(stored()))


def stored() -> dict[int, dict[str, Any]]:
    """What has been measured so far, by the number of entities."""
    found = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    return {int(size): about for size, about in found.items()}


if __name__ == "__main__":
    main()
