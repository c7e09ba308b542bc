"""Make the pre-trained path network anew, or one that leaves a graph out, and measure it.

    python tools/pretrained.py --data data -o src/hire/systems/path/pretrained
    python tools/pretrained.py --data data --without nell-one -o without-nell

Learns from the datasets nell-one and fb15k237-one below --data, from umls-one, and from Kinships and Nations, which the
package pykeen carries (it is downloaded, not installed, or found with --pykeen). Writes the weights, path.json with the
settings, the commit, the calibration across graphs and what was measured, and reports each graph's test metrics.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hire import progress
from hire.data.build import BuildSettings, build
from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.data.sources.reading import SourceOptions, read_sources
from hire.evaluation.calibration import Outcomes, fit, report
from hire.evaluation.ranking import evaluate
from hire.inference.calibrate import ask
from hire.inference.model import TrainedModel
from hire.systems.path.many import (
    ManyGraphsTrainer,
    TrainingGraph,
    thinned,
    training_graphs,
    types_by_relation_name,
    with_echoes,
    with_graph,
)
from hire.systems.path.model import PathModel
from hire.systems.path.pretrained import ABOUT, WEIGHTS, on_graph
from hire.systems.path.settings import PathSettings
from hire.training.loop import STATE, Stage, train
from hire.training.run import commit
from hire.util.checksums import read_record, write_record
from hire.util.settings import from_plain, to_plain
from hire.util.tensors import load_tensors, save_tensors

SHARES = {"nell-one": 0.4, "fb15k237-one": 0.3, "umls-one": 0.15, "kinships": 0.1, "nations": 0.05}
DENSE: dict[str, dict[str, Any]] = {  # graphs with so many walks that a step has fewer queries
    "fb15k237-one": {"tasks": 2, "queries": 12},
    "umls-one": {"tasks": 4, "queries": 6},
    "kinships": {"tasks": 3, "queries": 4},
    "nations": {"tasks": 3, "queries": 4},
}
THIN = 0.15  # of FB15k237-One's facts are left in a form of it that is as sparse as graphs often are
SMALL = {"kinships": 50, "nations": 10}  # a task has more triples than this
SHOTS = (1, 3, 5)
HEADS = 50  # of a dev task, to calibrate with


def small_graphs(wheel: Path) -> dict[str, FewShotDataset]:
    """Kinships and Nations as datasets, from the package that carries them."""
    found = {}
    with zipfile.ZipFile(wheel) as archive, TemporaryDirectory() as folder:
        for name, more_than in SMALL.items():
            parts = [archive.read(f"pykeen/datasets/{name}/{part}.txt") for part in ("train", "valid", "test")]
            path = Path(folder) / f"{name}.tsv"
            path.write_bytes(b"".join(parts))
            tables = read_sources([str(path)], SourceOptions(header=False), Path(folder))
            found[name] = build(tables, BuildSettings(name, more_than=more_than, candidates="all"))[0]
    return found


def pykeen(given: Path | None) -> Path:
    """The wheel of pykeen."""
    if given is not None:
        return given
    folder = Path("build") / "pykeen"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "pykeen==1.11.1"]
    subprocess.run(command, check=True)
    return next(folder.glob("pykeen-*.whl"))


def graphs_of(datasets: dict[str, FewShotDataset], settings: PathSettings) -> list[TrainingGraph]:
    """The graphs to learn from; of dense ones a step has fewer queries."""
    found = []
    for name, dataset in datasets.items():
        own = replace(settings, training=replace(settings.training, **DENSE.get(name, {})))
        if name != "fb15k237-one":
            found += training_graphs({name: dataset}, SHARES, own)
            continue
        types = types_by_relation_name(dataset.graph)
        thin, untyped = thinned(dataset, THIN, types), thinned(dataset, THIN, None)
        forms = [
            (dataset, 0.3, own),
            (with_graph(dataset, dataset.graph.triples, types), 0.1, own),
            (thin, 0.15, settings),
            (with_echoes(thin), 0.3, settings),
            (with_echoes(untyped), 0.15, settings),
        ]
        found += [TrainingGraph(form, SHARES[name] * share, used) for form, share, used in forms]
    return found


def metrics_of(system: PathModel, dataset: FewShotDataset, split: str) -> dict[str, Any]:
    """MRR and Hits@10 for each number of references."""
    ranks = {f"{shots}-shot": evaluate(system, dataset, split, shots)["realistic"] for shots in SHOTS}
    return {key: {name: round(found[name], 4) for name in ("mrr", "hits@10")} for key, found in ranks.items()}


def outcomes_of(
    network: PathModel, datasets: dict[str, FewShotDataset], settings: PathSettings, shots: int
) -> Outcomes:
    """The answers to heads of the dev tasks of some graphs, and whether they are right."""
    parts = []
    for number, dataset in enumerate(datasets.values()):
        if min(len(task.pairs) for task in dataset.split("dev")) <= shots:
            continue
        system = on_graph(dataset, settings, network.tensors())
        outcomes, _ = ask(TrainedModel(system, dataset), "dev", shots, 1, limit=HEADS)
        shift = 1_000_000 * number  # a relation of one graph is not one of another
        head_relations, query_relations = outcomes.head_relations + shift, outcomes.query_relations + shift
        parts.append(replace(outcomes, head_relations=head_relations, query_relations=query_relations))
    return Outcomes.joined(parts)


def calibrations(
    network: PathModel,
    datasets: dict[str, FewShotDataset],
    left_out: dict[str, FewShotDataset],
    settings: PathSettings,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What scores mean for each number of references, and how far it is off.

    Fitted to the dev tasks of all graphs; its error is told for the same answers, and for those of a graph left out.
    """
    found, errors = {}, {}
    for shots in SHOTS:
        outcomes = {"seen": outcomes_of(network, datasets, settings, shots)}
        if left_out:
            outcomes["unseen"] = outcomes_of(network, left_out, settings, shots)
        calibration = fit(outcomes["seen"])
        found[str(shots)] = calibration.to_dict()
        reports = {name: report(calibration, of_graphs) for name, of_graphs in outcomes.items()}
        errors[str(shots)] = {
            name: {kind: told[kind]["ece"] for kind in ("answers", "novel_answers")} for name, told in reports.items()
        }
    return found, errors


def main() -> None:
    """Train, calibrate, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pykeen", type=Path)
    parser.add_argument("--without", choices=["nell-one", "fb15k237-one", "umls-one"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="dev", help="of the graph that is left out, or of all")
    parser.add_argument("--measure", action="store_true", help="only measure a network that was made before")
    parser.add_argument("--calibrate", action="store_true", help="only calibrate such a network again, and measure it")
    parser.add_argument("--as-it-is", action="store_true", help="measure it without fitting it to the graph")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    progress.show()
    torch.set_num_threads(1)
    large = {name: open_dataset(options.data / name) for name in ("nell-one", "fb15k237-one")}
    datasets = {**large, "umls-one": open_dataset("umls-one"), **small_graphs(pykeen(options.pykeen))}
    left_out = {options.without: datasets.pop(options.without)} if options.without else {}
    measured_graphs = left_out or {name: datasets[name] for name in ("nell-one", "fb15k237-one", "umls-one")}
    if not (options.measure or options.calibrate):
        settings = PathSettings()
        training = replace(settings.training, start="random", steps=options.steps, seed=options.seed)
        make(replace(settings, training=training), datasets, left_out, options.output)
    content = read_record(options.output / ABOUT, "make it anew")
    settings, tensors = from_plain(PathSettings, content["settings"]), load_tensors(options.output / WEIGHTS)
    if options.calibrate:
        network = PathModel.restore(next(iter(datasets.values())), settings, tensors)
        fitted, errors = calibrations(network, datasets, left_out, settings)
        content |= {"calibration": fitted, "calibration_error": errors}
    measured = {
        name: metrics_of(on_graph(dataset, settings, tensors, refit=not options.as_it_is), dataset, options.split)
        for name, dataset in measured_graphs.items()
    }
    key = f"{options.split}, {'unseen' if left_out else 'seen'}"
    content[f"{key}, as it is" if options.as_it_is else key] = measured
    write_record(options.output / ABOUT, content)
    print(json.dumps(measured, indent=1))


def make(
    settings: PathSettings, datasets: dict[str, FewShotDataset], left_out: dict[str, FewShotDataset], output: Path
) -> None:
    """Train and calibrate a network, and write it with what is to be known about it."""
    trainer = ManyGraphsTrainer(graphs_of(datasets, settings), settings)
    output.mkdir(parents=True, exist_ok=True)
    begun_at, start = commit(), time.monotonic()
    finished, _ = train(trainer, Stage("Pre-training", output / STATE))
    seconds = time.monotonic() - start
    network = trainer.system()
    save_tensors(output / WEIGHTS, network.tensors())
    fitted, errors = calibrations(network, datasets, left_out, settings)
    content = {
        "settings": to_plain(settings),
        "graphs": {name: SHARES[name] for name in datasets},
        "commit": begun_at,
        "seconds": round(seconds),
        "finished": finished,
        "calibration": fitted,
        "calibration_error": errors,
    }
    write_record(output / ABOUT, content)
    (output / STATE).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
