"""From scores to probabilities and answer sets, fitted on queries whose answers are known.

The candidates of a query share one unit of mass, softmax(score / temperature), whether they are known facts or new
ones: hiding some of them changes nothing. The probability that an answer is right is a logistic function of its mass,
fitted to all answers. An answer set holds the best candidates until the remaining mass is small enough; the threshold
is split-conformal, a quantile of the mass that remained for the true answers. Reports say how well both hold in two
settings: if nothing is known about a head, and, as users see it, if all its other tails are known and hidden ("novel").

A new relation is one draw from the relations, not a few hundred draws of queries: within a relation, queries resemble
each other. So in that quantile every relation counts the same, however many queries it has, and the quantile is chosen
so that relations left out of it, one at a time, are covered as often as requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.util.arrays import IntArray
from hire.util.ranges import Range

TEMPERATURES = 2.0 ** np.arange(-7, 7.5, 0.5)  # to try; the slope makes up for those in between
SHOWN = 10  # answers of a query that confidence is fitted to
LEVELS = tuple(round(0.5 + 0.01 * i, 2) for i in range(50))  # confidences for which answer sets are fitted
CHECKED = (0.5, 0.8, 0.9, 0.95)  # confidences whose coverage is reported
BINS = 10  # of the reliability curve
STEPS = 50  # of Newton's method
TRIED = 501  # quantiles from which that of an answer set is chosen
RIDGE = 1e-3  # keeps slope and intercept finite if all answers are right or all are wrong

FloatArray = NDArray[np.float64]

NUMBERS = {"temperature": Range(0, 1e6, low_open=True), "slope": Range(0, 1e6), "intercept": Range(-1e6, 1e6)}
MASSES = Range(-1e6, 1e6)  # logarithms
MAX_DIGITS = 8


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of queries with known answers, of a size that does not depend on the number of candidates."""

    head_relations: IntArray  # [heads]
    shown: FloatArray  # [heads, SHOWN, temperatures]: log mass of the best candidates; minus infinity for padding
    right: NDArray[np.bool_]  # [heads, SHOWN]
    query_relations: IntArray  # [queries]: a query is a head with one of its true tails
    mass: FloatArray  # [queries, temperatures]: log mass of the true tail; minus infinity if it is not a candidate
    rest: FloatArray  # [queries, temperatures]: log mass of the true tail and all below it
    novel: FloatArray  # [queries, SHOWN, temperatures]: as `shown`, without the head's other true tails
    novel_right: NDArray[np.bool_]  # [queries, SHOWN]

    @classmethod
    def of(cls, relation: int, scores: NDArray[np.float32], rows: IntArray, columns: IntArray) -> Outcomes:
        """The outcomes of one relation: scores [heads, candidates], and rows and columns of the true tails.

        A column of -1 is a true tail that is not a candidate; nor is one with a score of minus infinity.
        """
        high = scores.max(axis=1, keepdims=True).astype(np.float64)
        shifted = scores - np.where(np.isfinite(high), high, 0)
        order = np.argsort(-shifted, axis=1, kind="stable")
        best = order[:, :SHOWN]
        rising = np.take_along_axis(shifted, order, axis=1)[:, ::-1]
        true = np.zeros(scores.shape, bool)
        there = np.flatnonzero(columns >= 0)
        true[rows[there], columns[there]] = True
        of_true = shifted[rows[there], columns[there]]
        ends = [
            np.searchsorted(rising[row], score, "right") - 1 for row, score in zip(rows[there], of_true, strict=True)
        ]
        lowest = np.array(ends, np.int64)  # for each true tail, the last position of its score among the rising ones
        shown = np.full((len(scores), SHOWN, len(TEMPERATURES)), -np.inf)
        mass, rest = np.full((2, len(rows), len(TEMPERATURES)), -np.inf)
        for index, temperature in enumerate(TEMPERATURES):
            with np.errstate(divide="ignore"):
                masses = np.log(np.cumsum(np.exp(rising / temperature), axis=1))
            totals = np.where(np.isfinite(high[:, 0]), masses[:, -1], 0)  # a head may have no candidate at all
            shown[:, : best.shape[1], index] = rising[:, ::-1][:, :SHOWN] / temperature - totals[:, None]
            mass[there, index] = of_true / temperature - totals[rows[there]]
            below = masses[rows[there], lowest] - totals[rows[there]]
            rest[there, index] = np.maximum(below, mass[there, index])  # guards against rounding
        right = np.zeros((len(scores), SHOWN), bool)
        right[:, : best.shape[1]] = np.take_along_axis(true, best, axis=1)
        novel, novel_right = _novel(shifted, order, true, rows, columns)
        of_heads, of_queries = (np.full(count, relation) for count in (len(scores), len(rows)))
        return cls(of_heads, shown, right, of_queries, mass, rest, novel, novel_right)

    @classmethod
    def joined(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """All queries of several parts."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def where(self, relation: int, *, same: bool) -> Outcomes:
        """The queries of one relation, or all others."""
        heads, queries = ((of == relation) == same for of in (self.head_relations, self.query_relations))
        return Outcomes(
            self.head_relations[heads],
            self.shown[heads],
            self.right[heads],
            self.query_relations[queries],
            self.mass[queries],
            self.rest[queries],
            self.novel[queries],
            self.novel_right[queries],
        )


def _novel(
    shifted: NDArray[Any], order: IntArray, true: NDArray[np.bool_], rows: IntArray, columns: IntArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The answers shown for each query if its head's other true tails are hidden: log mass, and which is right."""
    novel = np.full((len(rows), SHOWN, len(TEMPERATURES)), -np.inf)
    right = np.zeros((len(rows), SHOWN), bool)
    if not len(rows):
        return novel, right
    width = min(order.shape[1], SHOWN + int(true.sum(axis=1).max()))
    top = order[rows, :width]  # [queries, width]
    other = true[rows[:, None], top] & (top != columns[:, None])
    first = np.argsort(other, axis=1, kind="stable")[:, :SHOWN]  # those that are shown, in order, then the others
    top, other = np.take_along_axis(top, first, axis=1), np.take_along_axis(other, first, axis=1)
    scores = np.where(other, -np.inf, shifted[rows[:, None], top])
    right[:, : top.shape[1]] = (top == columns[:, None]) & ~other
    for index, temperature in enumerate(TEMPERATURES):
        sums = np.exp(shifted / temperature).sum(axis=1)
        totals = np.log(np.where(sums > 0, sums, 1))  # a head may have no candidate at all
        novel[:, : top.shape[1], index] = scores / temperature - totals[rows, None]
    return novel, right


@dataclass(frozen=True)
class Calibration:
    """A calibration of scores, for one number of references."""

    temperature: float
    slope: float
    intercept: float
    thresholds: tuple[float, ...]  # for each of LEVELS: the log mass that may remain below an answer set's last member

    def confidences(self, scores: NDArray[np.float32], positions: IntArray) -> FloatArray:
        """The probabilities that the candidates at some positions are right, from the scores of all [candidates]."""
        log_mass = _log_softmax(scores, self.temperature)[positions]
        return self._confidences(log_mass)

    def _confidences(self, log_mass: FloatArray) -> FloatArray:
        found: FloatArray = 1 / (1 + np.exp(-(self.slope * _logit(log_mass) + self.intercept)))
        return found

    def answer_set(self, scores: NDArray[np.float32], level: float, shown: NDArray[np.bool_] | None = None) -> IntArray:
        """The positions of the candidates, best first, that contain the answer with a given confidence.

        At least one candidate that is shown is in the set; by default, all are shown.
        """
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] > -np.inf]
        if not len(order):
            return order
        log_mass = _log_softmax(scores, self.temperature)[order]
        rest = np.maximum(np.log(np.cumsum(np.exp(log_mass)[::-1])[::-1]), log_mass)
        kept = rest >= self.threshold(level)
        visible = np.ones(len(order), bool) if shown is None else shown[order]
        kept[np.argmax(visible)] = True
        found: IntArray = order[kept & visible]
        return found

    @property
    def temperature_index(self) -> int:
        """The index of the temperature in TEMPERATURES."""
        return int(np.argmin(np.abs(TEMPERATURES - self.temperature)))

    def threshold(self, level: float) -> float:
        """The threshold of the next higher fitted confidence; above all of them there is no limit."""
        position = int(np.searchsorted(LEVELS, level - 1e-9))
        return self.thresholds[position] if position < len(LEVELS) else -np.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        thresholds = [None if np.isinf(value) else value for value in self.thresholds]
        return {**asdict(self), "thresholds": thresholds}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Calibration:
        """The inverse of `to_dict`; a ValueError if a number is missing, not finite or out of its range."""
        thresholds = tuple(-np.inf if value is None else _number(value, MASSES) for value in content["thresholds"])
        if len(thresholds) != len(LEVELS):
            raise ValueError(f"has {len(thresholds)} thresholds, not {len(LEVELS)}")
        temperature, slope, intercept = (_number(content[name], range_) for name, range_ in NUMBERS.items())
        return cls(temperature, slope, intercept, thresholds)


def calibrations_in(content: Any) -> dict[int, Calibration]:
    """Calibrations by the number of references, from plain data; a ValueError or TypeError if it is none."""
    if not isinstance(content, dict):
        raise TypeError("has no calibrations")
    found = {}
    for shots, of_shots in content.items():
        if not (isinstance(shots, str) and shots.isdecimal() and len(shots) < MAX_DIGITS and int(shots)):
            raise ValueError(f"{str(shots)[:20]!r} is not a number of references")
        found[int(shots)] = Calibration.from_dict(of_shots)
    return found


def _number(value: Any, range_: Range) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in range_:
        raise ValueError(f"{str(value)[:20]!r} is not a number {range_}")
    return float(value)


def for_shots(calibrations: Mapping[int, Calibration], shots: int) -> Calibration | None:
    """The calibration for a number of references, or for the next smaller one; None if there is none."""
    return (
        calibrations[max((k for k in calibrations if k <= shots), default=min(calibrations))] if calibrations else None
    )


def _log_softmax(scores: NDArray[np.float32], temperature: float) -> FloatArray:
    shifted = (scores - scores.max()).astype(np.float64) / temperature
    found: FloatArray = shifted - np.log(np.exp(shifted).sum())
    return found


def _logit(log_mass: FloatArray) -> FloatArray:
    clipped = np.clip(log_mass, -30, -1e-13)
    found: FloatArray = clipped - np.log(-np.expm1(clipped))
    return found


def fit(outcomes: Outcomes) -> Calibration:
    """The calibration that fits some queries best."""
    best = _best_temperature(outcomes)
    slope, intercept = _fit_logistic(outcomes, best)
    thresholds = _thresholds(outcomes.rest[:, best], outcomes.query_relations)
    return Calibration(float(TEMPERATURES[best]), slope, intercept, thresholds)


def _best_temperature(outcomes: Outcomes) -> int:
    """The temperature that gives the true tails the most mass."""
    reached = np.isfinite(outcomes.mass[:, 0])
    return int(np.argmax(outcomes.mass[reached].sum(axis=0))) if reached.any() else len(TEMPERATURES) // 2


def _even_weights(relations: IntArray) -> FloatArray:
    """Weights of queries that give every relation the same total, and sum to 1."""
    _, positions, counts = np.unique(relations, return_inverse=True, return_counts=True)
    found: FloatArray = 1 / (len(counts) * counts[positions])
    return found


def _fit_logistic(outcomes: Outcomes, temperature: int) -> tuple[float, float]:
    """Slope and intercept from log mass to the log odds of being right, by Newton's method."""
    log_mass = outcomes.shown[:, :, temperature]
    there = np.isfinite(log_mass)
    features = np.stack([_logit(log_mass[there]), np.ones(there.sum())], axis=1)  # [answers, 2]
    target = outcomes.right[there]
    weight = 1 / max(1, len(target))
    prior = np.array([1.0, 0.0])
    found = prior.copy()
    for _ in range(STEPS):
        predicted = 1 / (1 + np.exp(-np.clip(features @ found, -500, 500)))
        gradient = features.T @ (weight * (predicted - target)) + RIDGE * (found - prior)
        curvature = (features.T * (weight * predicted * (1 - predicted))) @ features + RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        found = found - step * min(1.0, 2 / max(1e-12, float(np.abs(step).max())))  # does not leap over the minimum
    return max(0.01, float(found[0])), float(found[1])  # more mass never means less confidence


def _thresholds(rest: FloatArray, relations: IntArray) -> tuple[float, ...]:
    """For each of LEVELS, the log mass that may remain.

    It is a quantile of the mass that remained for the true tails, chosen by leaving out each relation in turn: the
    quantile that covers the relation left out as often as the level says.
    """
    tried = np.linspace(min(LEVELS), 1, TRIED)
    ids = np.unique(relations)
    chosen = np.searchsorted(tried, LEVELS)  # a single relation cannot be left out
    if len(ids) > 1:
        covered = np.mean(
            [
                _covered(rest[own][:, None], _quantiles(rest[~own], relations[~own], tried)).mean(axis=0)
                for own in (relations == relation for relation in ids)
            ],
            axis=0,
        )  # [tried]
        chosen = np.searchsorted(covered, LEVELS)
    quantiles = np.append(_quantiles(rest, relations, tried), -np.inf)
    quantiles[quantiles < MASSES.low] = -np.inf  # scores of a diverged model: a mass that small is no limit
    return tuple(quantiles[chosen].tolist())


def _covered(rest: FloatArray, threshold: FloatArray | float) -> NDArray[np.bool_]:
    """Which true tails are in the answer set; one that is not a candidate never is."""
    return (rest >= threshold) & (rest > -np.inf)


def _quantiles(rest: FloatArray, relations: IntArray, shares: FloatArray) -> FloatArray:
    """The values that given shares of the queries reach, each relation counting the same; corrected for a new query."""
    if not len(rest):
        return np.full(len(shares), -np.inf)
    order = np.argsort(-rest, kind="stable")
    reached = np.cumsum(_even_weights(relations)[order])
    positions = np.searchsorted(reached, np.minimum(1, shares * (len(rest) + 1) / len(rest)) - 1e-9)
    return rest[order[np.minimum(positions, len(rest) - 1)]]


def left_out(outcomes: Outcomes) -> dict[str, Any]:
    """How well a calibration holds for relations it was not fitted to: each is left out in turn."""
    ids = np.unique(outcomes.head_relations)
    if len(ids) < 2:
        return {}
    parts = [
        (fit(outcomes.where(int(relation), same=False)), outcomes.where(int(relation), same=True)) for relation in ids
    ]
    return _report(parts)


def report(calibration: Calibration, outcomes: Outcomes) -> dict[str, Any]:
    """How well a calibration holds for some queries: reliability, its error, and coverage."""
    parts = [(calibration, outcomes.where(int(relation), same=True)) for relation in np.unique(outcomes.head_relations)]
    return _report(parts)


def _report(parts: list[tuple[Calibration, Outcomes]]) -> dict[str, Any]:
    covered: dict[float, list[NDArray[np.bool_]]] = {level: [] for level in CHECKED}
    for calibration, outcomes in parts:
        rest = outcomes.rest[:, calibration.temperature_index]
        for level, found in covered.items():
            found.append(_covered(rest, calibration.threshold(level)))
    answers, firsts = _reliabilities([(c, outcomes.shown, outcomes.right) for c, outcomes in parts])
    novel, novel_firsts = _reliabilities([(c, outcomes.novel, outcomes.novel_right) for c, outcomes in parts])
    return {
        "relations": len(parts),
        "queries": sum(len(outcomes.rest) for _, outcomes in parts),
        "reachable": float(np.concatenate([outcomes.rest[:, 0] > -np.inf for _, outcomes in parts]).mean()),
        "answers": answers,
        "first_answers": firsts,
        "novel_answers": novel,
        "novel_first_answers": novel_firsts,
        "coverage": [
            {
                "confidence": level,
                "covered": float(np.concatenate(found).mean()),
                "mean_of_relations": float(np.mean([of_one.mean() for of_one in found if len(of_one)])),
                "worst_relation": float(min(of_one.mean() for of_one in found if len(of_one))),
            }
            for level, found in covered.items()
        ],
    }


def _reliabilities(
    parts: list[tuple[Calibration, FloatArray, NDArray[np.bool_]]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reliability of all answers that were shown [..., SHOWN, temperatures], and of the first alone."""
    confidences, right, first = [], [], []
    for calibration, shown, of_shown in parts:
        log_mass = shown[:, :, calibration.temperature_index]
        there = np.isfinite(log_mass)
        confidences.append(calibration._confidences(log_mass[there]))
        right.append(of_shown[there])
        first.append(np.broadcast_to(np.arange(SHOWN) == 0, there.shape)[there])
    everything = np.concatenate(confidences), np.concatenate(right)
    firsts = np.concatenate(first)
    return _reliability(*everything), _reliability(*(part[firsts] for part in everything))


def _reliability(confidences: FloatArray, right: NDArray[np.bool_]) -> dict[str, Any]:
    """The reliability curve, and the expected calibration error: the mean distance of its bins from the diagonal."""
    positions = np.minimum((confidences * BINS).astype(int), BINS - 1)
    bins = []
    error = 0.0
    for index in range(BINS):
        inside = positions == index
        count = int(inside.sum())
        if count:
            stated, accurate = float(confidences[inside].mean()), float(right[inside].mean())
            error += count / len(right) * abs(stated - accurate)
            low, high = index / BINS, (index + 1) / BINS
            bins.append({"low": low, "high": high, "confidence": stated, "right": accurate, "count": count})
    return {"count": len(right), "ece": error, "brier": float(np.mean((confidences - right) ** 2)), "bins": bins}
