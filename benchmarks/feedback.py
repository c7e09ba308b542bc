"""What accepting and rejecting answers is worth, with a judge who knows the truth.

    python benchmarks/feedback.py RUN [--split dev] [--shots 3] [--judged 10]

Of each task, the first K triples are the references. For the heads of the next few queries the judge looks at the ten
best answers, accepts the true ones and rejects the false ones above them. The metrics are those of all other queries:
with the references alone, with what was accepted, with what was rejected, and with both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np

from hire.data.dataset import FewShotDataset, Task
from hire.evaluation.ranking import Ranks, metrics, rank_queries
from hire.inference.model import load
from hire.systems.base import FewShotSystem, Support
from hire.util.arrays import IntArray

SEEN = 10  # answers that the judge looks at
Pairs = list[tuple[int, int]]


def judge(
    system: FewShotSystem, dataset: FewShotDataset, task: Task, candidates: IntArray, shots: int, judged: int
) -> tuple[Pairs, Pairs]:
    """The pairs that are accepted, and those that are rejected."""
    state = system.adapt(Support(np.asarray(task.pairs[:shots]), candidates, relation=task.relation))
    accepted: Pairs = []
    rejected: Pairs = []
    given = {tuple(pair) for pair in task.pairs[:shots].tolist()}
    for head in dict.fromkeys(task.pairs[shots : shots + judged, 0].tolist()):
        scores = system.score(state, np.array([head]), candidates).numpy()[0]
        true = set(dataset.facts.tails(head, task.relation).tolist())
        best = candidates[np.argsort(-scores, kind="stable")[:SEEN]].tolist()
        last = max((place for place, tail in enumerate(best) if tail in true), default=-1)
        accepted += [(head, tail) for tail in best if tail in true and (head, tail) not in given]
        rejected += [(head, tail) for tail in best[: last + 1] if tail not in true]
    return accepted, rejected


def pairs_of(*parts: Iterable[tuple[int, int]]) -> IntArray:
    """Pairs as an array, [n, 2]."""
    return np.array([pair for part in parts for pair in part], np.int64).reshape(-1, 2)


def main() -> None:
    """Print the metrics with and without what was accepted and rejected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--split", default="dev", choices=["dev", "test"])
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--judged", type=int, default=10)
    options = parser.parse_args()
    trained = load(options.run)
    system, dataset = trained.system, trained.dataset
    found: dict[str, list[Ranks]] = {}
    said = np.zeros(2, int)
    for task in dataset.split(options.split, options.shots + options.judged):
        everything = np.arange(len(dataset.graph.entities))
        candidates = everything if task.candidates is None else np.sort(task.candidates).astype(np.int64)
        accepted, rejected = judge(system, dataset, task, candidates, options.shots, options.judged)
        said += [len(accepted), len(rejected)]
        references = [(head, tail) for head, tail in task.pairs[: options.shots].tolist()]
        judged_heads = {head for head, _ in (*accepted, *rejected)}
        rest = [pair for pair in task.pairs[options.shots + options.judged :].tolist() if pair[0] not in judged_heads]
        for name, more, less in (
            ("references alone", [], []),
            ("and accepted", accepted, []),
            ("and rejected", [], rejected),
            ("and both", accepted, rejected),
        ):
            support = Support(pairs_of(references, more), candidates, pairs_of(less), task.relation)
            ranks = rank_queries(system, dataset, task.relation, system.adapt(support), np.array(rest), candidates)
            found.setdefault(name, []).append(ranks)
    print(f"{said[0]} pairs accepted and {said[1]} rejected in {len(found['and both'])} relations")
    for name, parts in found.items():
        values = metrics(Ranks.joined(parts).realistic)
        print(f"{name:18}" + "".join(f"  {key} {value:.3f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
