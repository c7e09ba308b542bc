"""Calibrate a trained model on held-out tasks, and report how well the calibration holds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import Task
from hire.errors import HireError
from hire.evaluation.calibration import CHECKED, Calibration, Outcomes, fit, for_shots, left_out, report
from hire.inference.model import TrainedModel, load
from hire.inference.relation import TaughtRelation
from hire.progress import track
from hire.training.run import CONFIG, exclusive_run, write_calibration
from hire.util.arrays import IntArray, positions_in
from hire.util.memory import Tidying
from hire.util.processes import any_of, each_alone, share, spread
from hire.util.randomness import random_stream

SCORES_AT_ONCE = 1 << 21  # bounds the memory: each score is weighed at several temperatures
SHOTS = (1, 3, 5)
Among = Literal["taught", "task"]  # candidates as teaching chooses them, or as the dataset lists them for a task
DRAWS = 3  # sets of references of each task: the choice of references matters as much as that of queries


def calibrate(
    trained: TrainedModel, run: Path, shots: Iterable[int] = SHOTS, draws: int = DRAWS, among: Among = "taught"
) -> dict[str, Any]:
    """Fit the calibration on the dev tasks, save it in the run, and report how well it holds.

    The report covers all dev relations, and each dev relation when it is left out of the fit.
    """
    found: dict[int, Calibration] = {}
    reports: dict[str, Any] = {}
    for k in possible_shots(trained, "dev", shots):
        outcomes, _ = ask(trained, "dev", k, draws, among)
        found[k] = fit(outcomes)
        reports[str(k)] = {"fitted": report(found[k], outcomes), "left_out": left_out(outcomes)}
    about = {"split": "dev", "draws": draws, "candidates": among, "reports": reports}
    write_calibration(run, found, about)
    return about | {"shots": {str(k): calibration.to_dict() for k, calibration in found.items()}}


def calibrate_new(run: Path, dataset: str | Path | None = None, *, device: str = "auto") -> bool:
    """Calibrate a new run quickly, unless it is already calibrated; returns whether it is calibrated now."""
    here = (run / CONFIG).exists()
    with exclusive_run(run), ExitStack() as stack:
        if any_of(not here)[0]:  # on a machine that does not see the folder: then whoever wrote it calibrates
            first = share().first
            stack.enter_context(each_alone())
            if not first:
                return False
        trained = load(run, dataset, device=device)
        if trained.calibrations:
            return True
        try:
            shots = possible_shots(trained, "dev", SHOTS)
        except HireError:  # no dev task is large enough: training and prediction can do without
            return False
        calibrate(trained, run, shots, draws=1)
        return True


def check(
    trained: TrainedModel, split: str, shots: Iterable[int] = SHOTS, draws: int = DRAWS, among: Among = "taught"
) -> dict[str, Any]:
    """How well the calibration of a model holds for the tasks of a split."""
    reports = {}
    for k in possible_shots(trained, split, shots):
        calibration = for_shots(trained.calibrations, k)
        if calibration is None:
            raise HireError("the run is not calibrated", remedy="hire calibrate RUN does it")
        outcomes, sizes = ask(trained, split, k, draws, among, levels=True)
        found = report(calibration, outcomes)
        for entry, of_level in zip(found["coverage"], sizes.T, strict=True):
            entry |= {"mean_size": float(of_level.mean()), "median_size": float(np.median(of_level))}
        reports[str(k)] = found
    return {"split": split, "draws": draws, "candidates": among, "reports": reports}


def possible_shots(trained: TrainedModel, split: str, shots: Iterable[int]) -> list[int]:
    """The numbers of references that leave at least one query in every task of a split."""
    tasks = trained.dataset.split(split)
    if not tasks:
        raise HireError(f"has no {split} tasks", file=trained.dataset.name, remedy="build it with some")
    fewest = min(len(task.pairs) for task in tasks)
    shots = list(shots)
    possible = [k for k in shots if k < fewest]
    if not possible:
        trained.dataset.split(split, min(shots))  # raises an error that names the task
    return possible


def ask(
    trained: TrainedModel,
    split: str,
    shots: int,
    draws: int,
    among: Among = "taught",
    levels: bool = False,
    limit: int | None = None,
) -> tuple[Outcomes, IntArray]:
    """Query the heads of a split's tasks as a user would; with levels, also return the sizes of answer sets.

    A limit bounds the number of heads of each task, spread evenly over all of them. The references of the first draw
    are those of evaluation, the first pairs of the task.
    """
    asked = [(task, draw) for task in trained.dataset.split(split, shots) for draw in range(draws)]
    tidying = Tidying()
    with track(f"Asking about {split}, {shots} references", len(asked) / share().processes) as advance:

        def outcomes(number: int) -> list[NDArray[Any]]:
            task, draw = asked[number]
            pairs = np.asarray(task.pairs, np.int64)
            if draw:
                pairs = random_stream(0, "adaptation", draw).permutation(pairs)
            listed = np.sort(task.candidates) if among == "task" and task.candidates is not None else None
            relation = trained.taught(pairs[:shots], None, listed)
            heads = np.unique(pairs[shots:, 0])
            heads = heads if limit is None else heads[:: max(1, len(heads) // limit)][:limit]
            parts, sizes = zip(*_ask(relation, task, heads, levels, tidying), strict=True)
            trained.forget()  # some are tens of megabytes, and none of them is asked about again
            advance(1)
            return [*vars(Outcomes.joined(parts)).values(), np.concatenate(sizes)]

        found = spread(outcomes, [float(len(task.pairs)) for task, _ in asked])
    return Outcomes.joined(Outcomes(*arrays) for *arrays, _ in found), np.concatenate([sizes for *_, sizes in found])


def _ask(
    taught: TaughtRelation, task: Task, heads: IntArray, levels: bool, tidying: Tidying
) -> Iterable[tuple[Outcomes, IntArray]]:
    """The outcomes of some heads, and with levels the sizes of their answer sets."""
    for relation, some in _blocks(taught, heads):
        candidates = relation.candidates
        scores = relation.candidate_scores(some)
        rows, tails = taught.owner.dataset.facts.all_tails(some, task.relation)
        asked = np.stack([some[rows], tails], axis=1)
        new = ~(asked[:, None] == taught.references).all(axis=2).any(axis=1)
        rows, columns = rows[new], positions_in(candidates, tails[new])
        sizes = np.zeros((0, len(CHECKED)), np.int64)
        calibration = relation.calibration
        if levels and calibration is not None:
            sizes = np.array([[len(calibration.answer_set(row, level)) for level in CHECKED] for row in scores])
        yield Outcomes.of(task.relation, scores, rows, columns), sizes
        tidying.tidy()


def _blocks(taught: TaughtRelation, heads: IntArray) -> Iterable[tuple[TaughtRelation, IntArray]]:
    """The heads with the relation that answers them, in blocks that fit into memory."""
    for relation, some in taught.by_head(heads):
        at_once = max(1, SCORES_AT_ONCE // len(relation.candidates))
        for start in range(0, len(some), at_once):
            yield relation, some[start : start + at_once]
