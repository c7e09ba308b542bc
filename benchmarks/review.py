"""Batch acceptance with a judge who knows the truth, and how long it takes to complete a relation.

    python benchmarks/review.py GRAPH [--split dev] [--shots 5] [--draws 3] [--threshold 0.9] [--checked 30]
    python benchmarks/review.py GRAPH --time 5000 [--candidates 3000]

Each relation of a split is taught with a few of its pairs and completed over the heads of the others; nothing of it is
in the graph. The judge checks some random cards at or above the threshold (`audit`), then accepts the rest at once.
What the estimate said is compared with the share of the batch that is true. A pair that the dataset does not list
counts as false, though it may be true in the world.

With --time, the relation with the most candidates is completed over so many heads: seconds, and the peak of memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from hire.data.dataset import Task
from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.service.cards import Filter
from hire.service.log import NewEntry
from hire.service.relations import Draft, StoredRelation
from hire.service.review_schemas import Estimate
from hire.service.service import Service
from hire.util.arrays import IntArray

SECONDS = 36_000.0  # no job takes longer


class Outcome(NamedTuple):
    """What was estimated of a batch, and what was true of it."""

    estimate: Estimate
    accepted: int
    true: int

    @property
    def precision(self) -> float:
        """The share of the batch that is true."""
        return self.true / max(1, self.accepted)


def completed(
    service: Service, name: str, references: IntArray, heads: list[str], candidates: list[str] | None = None
) -> StoredRelation:
    """A relation that is taught and completed over some heads."""
    entities = service.teaching.model.dataset.graph.entities
    pairs = [(entities[head], entities[tail]) for head, tail in references.tolist()]
    relation = service.relations.add(Draft(name, pairs, scope={"kind": "list", "heads": heads}, candidates=candidates))
    job = service.jobs.create(relation, 10, "judge")()
    service.jobs.wake()
    end = time.monotonic() + SECONDS
    while service.jobs.get(job)["state"] in ("queued", "running") and time.monotonic() < end:
        time.sleep(0.1)
    found = service.jobs.get(job)
    if found["state"] != "done":
        raise RuntimeError(found["problem"])
    return relation


def judged(service: Service, task: Task, references: IntArray, threshold: float, checked: int) -> Outcome:
    """Check some cards of a relation, accept the rest, and count what is true."""
    dataset = service.teaching.model.dataset
    entities = dataset.graph.entities

    def is_true(head: str, tail: str) -> bool:
        return bool(dataset.facts.contain(entities.id(head), task.relation, entities.id(tail)))

    given = set(references[:, 0].tolist())
    heads = [entities[head] for head in dict.fromkeys(task.pairs[:, 0].tolist()) if head not in given]
    # Under another name, since the dataset's facts of the relation would be known and not suggested.
    relation = completed(service, f"{task.name} under review", references, heads)
    review, author = service.review, service.review.author("judge")
    above = service.estimate(relation, threshold).facts
    sample = Filter(min_confidence=threshold)
    for card in service.cards.page(relation, sample, "audit", min(checked, above // 2) or 1, None).cards:
        if card.tail is not None:
            verdict = "accept" if is_true(card.head.id, card.tail.id) else "reject"
            review.judge(relation, NewEntry(card.head.id, card.tail.id, verdict, card.confidence), author)
    estimate = service.estimate(relation, threshold)
    batch = review.accept(relation, threshold, author)
    rows, _ = review.log.page(relation.id, {"batch": batch}, estimate.facts + 1)
    return Outcome(estimate, len(rows), sum(is_true(row["head"], row["tail"]) for row in rows))


def compare(model: TrainedModel, service: Service, options: argparse.Namespace) -> None:
    """Print the precision of each batch beside its estimate."""
    found = []
    columns = ("relation", "draw", "facts", "checked", "estimated", "interval", "true", "covered")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for task in model.dataset.split(options.split, options.shots):
        for draw in range(options.draws):
            order = np.random.default_rng((task.relation, draw)).permutation(len(task.pairs))
            outcome = judged(
                service, task, np.asarray(task.pairs[order[: options.shots]]), options.threshold, options.checked
            )
            told, right = outcome.estimate, outcome.precision
            if told.share is None or not outcome.accepted:
                print(f"| {task.name} | {draw + 1} | 0 | {told.checked} | | | | |", flush=True)
                continue
            covered = told.low <= right <= told.high
            print(
                f"| {task.name} | {draw + 1} | {outcome.accepted} | {told.checked} | {told.share:.2f} "
                f"| {told.low:.2f} to {told.high:.2f} | {right:.2f} | {'yes' if covered else 'no'} |",
                flush=True,
            )
            found.append((outcome.accepted, told.share, right, covered))
    accepted, shares, truths, covers = (np.array(column, float) for column in zip(*found, strict=True))
    print(
        f"\n{len(found)} batches, {accepted.sum():,.0f} facts: {accepted @ truths / accepted.sum():.3f} true, "
        f"{accepted @ shares / accepted.sum():.3f} estimated; mean difference of a batch "
        f"{np.abs(shares - truths).mean():.3f}; {covers.sum():.0f} of {len(found)} intervals cover the truth"
    )


def timed(model: TrainedModel, service: Service, options: argparse.Namespace) -> None:
    """Print how long it takes to complete a relation over many heads, and the peak of memory."""
    entities = model.dataset.graph.entities
    tasks = [task for split in ("dev", "test") for task in model.dataset.tasks if task.split == split]
    if tasks:
        references = max(
            (np.asarray(task.pairs[: options.shots], np.int64) for task in tasks),
            key=lambda pairs: len(model.similar_entities(pairs[:, 1])),
        )
    else:
        references = model.dataset.graph.triples[: options.shots, [0, 2]].astype(np.int64)
    heads = model.similar_entities(references[:, 0])
    others = np.setdiff1d(np.arange(len(entities)), heads)
    chosen = np.concatenate([heads, others])[: options.time].tolist()
    candidates = model.similar_entities(references[:, 1])[: options.candidates]
    start, busy = time.perf_counter(), time.process_time()
    names, tails = ([entities[entity] for entity in some] for some in (chosen, candidates.tolist()))
    completed(service, "timed", references, names, None if options.candidates is None else tails)
    seconds, of_processor = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(chosen):,} heads, {len(candidates):,} candidates: {seconds:.0f} s, "
        f"{of_processor:.0f} s of processor time, peak {peak:,.0f} MiB, "
        f"state file {service.store.path.stat().st_size / 2**20:,.0f} MiB"
    )


def main() -> None:
    """Compare estimates with the truth, or measure the time of a job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--split", default="dev", choices=["dev", "test"])
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--checked", type=int, default=30)
    parser.add_argument("--time", type=int, help="number of heads of a timed job")
    parser.add_argument("--candidates", type=int, help="at most so many candidates in a timed job")
    options = parser.parse_args()
    random.seed(0)  # the order of audits
    torch.set_num_threads(1)  # as hire serve does
    model = open_model(options.graph)
    with TemporaryDirectory() as folder:
        service = Service.over(model, Path(folder) / "state.sqlite")
        service.start()
        try:
            (compare if options.time is None else timed)(model, service, options)
        finally:
            service.stop()
            service.store.close()


if __name__ == "__main__":
    main()
