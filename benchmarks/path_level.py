"""The path level: how well it ranks relations that no training has seen, and how long it takes.

    python benchmarks/path_level.py DATASET [--folds 3] [--only 0 1] [--seeds 0 1] [--steps N] [--members N]
    python benchmarks/path_level.py DATASET --answers

Dev has few relations. So the train relations are dealt into folds, and each fold is held out once: its facts are
neither tasks nor evidence. The metrics are MRR and Hits@10 for 1, 3 and 5 references, of all held-out queries together
and of dev. Test is not touched. With --answers, only the time of an answer among 10,000 candidates is measured.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import numpy as np

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.evaluation.ranking import Ranks, metrics, rank_task
from hire.systems.base import Support
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import EvidenceSettings, PathModelSettings, PathSettings, PathTrainingSettings
from hire.systems.path.trainer import PathTrainer
from hire.training.loop import Stage, train

SHOTS = (1, 3, 5)
CANDIDATES = 10_000
ANSWERS = 20


def without_fold(dataset: FewShotDataset, fold: int, folds: int) -> FewShotDataset:
    """The same dataset without its test tasks, in whose place a fold of the train tasks stands."""
    train = dataset.split("train")
    kept = [task for number, task in enumerate(train) if number % folds != fold]
    splits = {"train": kept, "dev": dataset.split("dev"), "test": train[fold::folds]}
    tasks = {split: {task.relation: task.pairs for task in of_split} for split, of_split in splits.items()}
    candidates = {task.relation: task.candidates for task in dataset.tasks}
    return replace(FewShotDataset.of(dataset.name, dataset.graph, tasks, candidates), facts=dataset.facts)


def ranks_of(model: PathModel, dataset: FewShotDataset, split: str, shots: int) -> Ranks:
    """The ranks of all queries of a split."""
    return Ranks.joined(rank_task(model, dataset, task, shots) for task in dataset.split(split, shots))


def text(ranks: Ranks) -> str:
    """MRR and Hits@10."""
    found = metrics(ranks.realistic)
    return f"{found['mrr']:.3f}/{found['hits@10']:.3f}"


def trained(dataset: FewShotDataset, settings: PathSettings) -> PathModel:
    """The path level after all steps."""
    trainer = PathTrainer(dataset, settings)
    train(trainer, Stage("Training the path level"))
    return trainer.system()


def held_out(dataset: FewShotDataset, settings: PathSettings, folds: int, only: list[int]) -> None:
    """Train without each fold in turn, and print the metrics of what was held out."""
    seed = settings.training.seed
    found: dict[int, list[Ranks]] = {shots: [] for shots in SHOTS}
    for fold in only:
        part = without_fold(dataset, fold, folds)
        start = time.perf_counter()
        model = trained(part, settings)
        end = time.perf_counter()
        for shots in SHOTS:
            found[shots].append(ranks_of(model, part, "test", shots))
        seconds = f"trained {end - start:.0f} s, ranked {time.perf_counter() - end:.0f} s"
        here = "  ".join(f"{shots}-shot {text(ranks[-1])}" for shots, ranks in found.items())
        print(f"seed {seed} fold {fold}: {here}  {seconds}", flush=True)
    together = "  ".join(f"{shots}-shot {text(Ranks.joined(ranks))}" for shots, ranks in found.items())
    print(f"seed {seed} held out: {together}", flush=True)


def on_dev(dataset: FewShotDataset, settings: PathSettings) -> None:
    """Train on all train relations, and print the metrics of dev."""
    start = time.perf_counter()
    model = trained(dataset, settings)
    end = time.perf_counter()
    here = "  ".join(f"{shots}-shot {text(ranks_of(model, dataset, 'dev', shots))}" for shots in SHOTS)
    seconds = f"trained {end - start:.0f} s, ranked {time.perf_counter() - end:.0f} s"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"seed {settings.training.seed} dev: {here}  {seconds}, peak {peak:,.0f} MiB", flush=True)


def answers(dataset: FewShotDataset, settings: PathModelSettings) -> None:
    """Print the time of adapting, of a first answer and of further ones, for a few relations and a hub."""
    start = time.perf_counter()
    graph = EvidenceGraph.of(dataset)
    model = PathModel(PathNetwork(settings), graph)
    model.adapt(Support(np.asarray(dataset.split("dev")[0].pairs[:5])))
    print(f"graph and what is counted of it {time.perf_counter() - start:.2f} s")
    generator = np.random.default_rng(0)
    hub = int(np.argmax(np.diff(graph.offsets)))
    for task in dataset.split("dev")[:5]:
        size = min(CANDIDATES, graph.entity_count)
        candidates = np.sort(generator.choice(graph.entity_count, size, replace=False))
        if task.candidates is not None and len(task.candidates) >= size:
            candidates = np.sort(generator.choice(task.candidates, size, replace=False))
        times = [time.perf_counter()]
        state = model.adapt(Support(np.asarray(task.pairs[:5]), candidates))
        times.append(time.perf_counter())
        for head in [*task.pairs[5 : 5 + ANSWERS, 0], hub]:
            model.score(state, np.array([head]), candidates)
            times.append(time.perf_counter())
        spent = np.diff(times) * 1e3
        print(
            f"{task.name}: adapt {spent[0]:.0f} ms, first answer {spent[1]:.0f} ms, "
            f"then {np.median(spent[2:-1]):.1f} ms in the median, {spent[2:-1].max():.1f} at most, "
            f"a hub as head {spent[-1]:.0f} ms"
        )
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def main() -> None:
    """Train and rank, or only answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--only", type=int, nargs="*", help="folds to hold out; none for dev alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=PathTrainingSettings.steps)
    parser.add_argument("--members", type=int, default=PathModelSettings.members)
    parser.add_argument("--background", action="store_true", help="the background graph alone is evidence")
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    model = PathModelSettings(members=options.members)
    if options.answers:
        answers(dataset, model)
        return
    for seed in options.seeds:
        settings = PathSettings(
            model,
            EvidenceSettings(train_facts=not options.background),
            PathTrainingSettings(steps=options.steps, seed=seed),
        )
        only = list(range(options.folds)) if options.only is None else options.only
        if only:
            held_out(dataset, settings, options.folds, only)
        on_dev(dataset, settings)


if __name__ == "__main__":
    main()
