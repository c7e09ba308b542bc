"""Whether evidence is what it is said to be: explanations against graphs from which it was really removed.

    python benchmarks/explanations.py RUN|GRAPH [--heads 4] [--removals 200] [--shots 1 3 5]

RUN must have a path level; a dataset is explained by the pre-trained model. For heads of the dev and test tasks the
first and the third answer are explained. It prints the milliseconds an explanation takes, what the evidence is made of,
and, for so many pieces drawn at random, how the stated weight agrees with what the score of the path level loses when a
graph without the facts is built and the references are read anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hire.data.dataset import FewShotDataset
from hire.inference.open import open_model
from hire.systems.base import FewShotSystem, Support
from hire.systems.ensemble import Ensemble
from hire.systems.evidence import Evidence, Rule, SharedTuple
from hire.systems.path.explain import explain_path
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.util.arrays import IntArray

PLAIN = 0.02  # weights below this are too small for their sign to matter


class Explained(NamedTuple):
    """An answer, and the evidence for and against it."""

    support: Support
    head: int
    tail: int
    evidence: Evidence
    seconds: float  # of processor time, so that other work on the machine does not count


def path_level(system: FewShotSystem) -> PathModel:
    """The path level of a system, or the system itself if it is one."""
    members = system.members.values() if isinstance(system, Ensemble) else [system]
    found = [member for member in members if isinstance(member, PathModel)]
    if not found:
        raise SystemExit("the run has no path level")
    return found[0]


def explanations(model: PathModel, dataset: FewShotDataset, shots: int, heads: int) -> Iterator[Explained]:
    """The first and the third answer to some heads of each dev and test task."""
    everything = np.arange(model.graph.entity_count)
    for task in (*dataset.split("dev", shots), *dataset.split("test", shots)):
        pairs = np.asarray(task.pairs)
        candidates = everything if task.candidates is None else np.asarray(task.candidates)
        support = Support(pairs[:shots])
        state = model.adapt(support)
        for head in pairs[shots : shots + heads, 0].tolist():
            best = model.score(state, np.array([head]), candidates)[0].topk(3).indices
            for tail in candidates[best[::2]].tolist():
                start = time.thread_time()
                evidence = explain_path(model, state, head, tail)
                yield Explained(support, head, tail, evidence, time.thread_time() - start)


def facts_of(graph: EvidenceGraph, piece: Rule | SharedTuple, tail: int) -> IntArray:
    """The known facts [n, 3] on the paths of a rule, or the tail's one of a shared tuple; none if it is about names."""
    if isinstance(piece, SharedTuple):
        edges = [(tail, piece.edge_type, piece.entity)]
    else:
        edges = [edge for path in piece.paths for edge in zip(path, piece.edge_types, path[1:], strict=False)]
    facts = set()
    for one, edge_type, two in edges:
        sort, relation = divmod(edge_type, graph.known_relations)
        relation += sort // 2 * graph.known_relations
        facts.add((two, relation, one) if sort % 2 else (one, relation, two))
    found = np.array(sorted(facts))
    if graph.same_names is not None:
        found = graph.same_names.gone_with(found)
        if (found[:, 1] == 2 * graph.known_relations).any():
            return found[:0]
    return found[found[:, 1] < graph.known_relations]


def really_lost(model: PathModel, dataset: FewShotDataset, found: Explained, gone: IntArray) -> float:
    """What the score loses in a graph that is built without some facts."""
    graph = model.graph
    triples = np.concatenate([dataset.graph.triples, graph.task_facts]).astype(np.int64)
    keys, of_gone = (
        (facts[:, 0] * graph.known_relations + facts[:, 1]) * graph.entity_count + facts[:, 2]
        for facts in (triples, gone)
    )
    groups = None if graph.same_names is None else graph.same_names.groups
    counts = graph.entity_count, graph.known_relations
    rest = EvidenceGraph(triples[~np.isin(keys, of_gone)], *counts, graph.types, graph.settings, groups)
    blind = PathModel(model.network, rest)
    score = blind.score(blind.adapt(found.support), np.array([found.head]), np.array([found.tail])).item()
    return found.evidence.score - score


def main() -> None:
    """Print the time, what the evidence is, and how it agrees with real removals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--removals", type=int, default=200)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 3, 5])
    options = parser.parse_args()
    trained = open_model(options.run)
    model, dataset = path_level(trained.system), trained.dataset
    found = [each for shots in options.shots for each in explanations(model, dataset, shots, options.heads)]
    times = np.array([each.seconds for each in found]) * 1_000
    print(f"{len(found)} explanations, ms of processor time: median {np.median(times):.0f}", end=", ")
    print(f"90th percentile {np.percentile(times, 90):.0f}, at most {times.max():.0f}")
    pieces: list[tuple[Explained, Rule | SharedTuple]] = []
    pieces += [(each, rule) for each in found for rule in each.evidence.rules]
    pieces += [(each, shared) for each in found for shared in each.evidence.shared]
    for name, piece_type in (("rules", Rule), ("shared tuples", SharedTuple)):
        some = [piece for _, piece in pieces if isinstance(piece, piece_type)]
        against, alone = sum(piece.weight < 0 for piece in some), sum(not piece.support for piece in some)
        print(f"{name}: {len(some)}, of which {against} speak against the answer, and {alone} no reference has")
    removals = [(each, piece, facts_of(model.graph, piece, each.tail)) for each, piece in pieces]
    removals = [removal for removal in removals if len(removal[2])]
    drawn = np.random.default_rng(0).permutation(len(removals))[: options.removals]
    stated = np.array([removals[i][1].weight for i in drawn])
    lost = np.array([really_lost(model, dataset, removals[i][0], removals[i][2]) for i in drawn])
    errors, plain = np.abs(stated - lost), np.abs(stated) >= PLAIN
    print(f"{len(drawn)} removals: correlation {np.corrcoef(stated, lost)[0, 1]:.4f}", end=", ")
    print(f"median |weight| {np.median(np.abs(stated)):.3f}, error median {np.median(errors):.4f}", end=", ")
    print(f"90th percentile {np.percentile(errors, 90):.4f}, at most {errors.max():.4f}")
    right = (np.sign(stated) == np.sign(lost))[plain]
    print(f"the sign is right in {right.sum()} of {plain.sum()} with a weight of {PLAIN} or more")


if __name__ == "__main__":
    main()
