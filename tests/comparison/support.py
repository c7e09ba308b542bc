"""Comparisons without training, for the tests of tables, writers and pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from hire.comparison.plan import Job, Row
from hire.comparison.run import Evaluation, Outcome, Training
from hire.comparison.table import Comparison, compare
from hire.evaluation.ranking import Ranks
from hire.training.settings import RunSettings

ABOUT: dict[str, Any] = {
    "dataset": "made-up",
    "split": "test",
    "candidates": "task",
    "draws": None,
    "budget": None,
    "seeds": 2,
}


def row(name: str, recipe: str = "common") -> Row:
    return Row(name, RunSettings.of("popularity"), recipe)


def outcome(
    of: Row, seed: int = 0, *, share: float = 0.5, shots: tuple[int, ...] = (1,), draws: int | None = None, **how: Any
) -> Outcome:
    """A run that ranks such a share of queries first, and the others tenth or worse."""
    evaluations = []
    for k in shots:
        for draw in [None] if draws is None else range(draws):
            generator = np.random.default_rng([seed, k, 99 if draw is None else draw])
            ranks = {}
            for relation, size in (("r1", 40), ("r2", 60), ("r3", 50), ("r4", 45)):
                queries = np.random.default_rng([k, draw or 0]).permutation(size)[k:]
                first = generator.uniform(size=len(queries)) < share
                own = np.where(first, 1, generator.integers(10, 100, len(queries)))
                ranks[relation] = queries, Ranks(own, own)
            evaluations.append(Evaluation(k, draw, ranks))
    training = Training(**({"seconds": 90.0, "finished": True, "step": 5, "steps": 10} | how.pop("training", {})))
    job = Job(of, of.settings, seed, shots, f"{of.name}-{seed}")
    return Outcome(job, training, [] if training.problem else evaluations, "c0ffee", **how)


def made_up(**about: Any) -> Comparison:
    """A good system, two that are alike, and one whose training was cut."""
    rows = [row("good"), row("a_b"), row("alike"), row("cut", "default")]
    outcomes = [outcome(rows[0], seed, share=0.9) for seed in (0, 1)]
    outcomes += [outcome(of, seed, share=0.4) for of in rows[1:3] for seed in (3, 4)]
    outcomes.append(outcome(rows[3], 9, share=0.1, training={"finished": False, "steps": 1234}))
    return compare(rows, outcomes, (1,), ABOUT | about)
