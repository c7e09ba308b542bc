from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hire.evaluation.calibration import (
    LEVELS,
    SHOWN,
    TEMPERATURES,
    Calibration,
    Outcomes,
    calibrations_in,
    fit,
    for_shots,
    left_out,
    report,
)


def drawn(seed: int, relations: int = 12, heads: int = 150, candidates: int = 40, noise: float = 0.0) -> Outcomes:
    """Queries whose true tail is drawn from softmax(2 * score): the scores are honest, up to a factor."""
    generator = np.random.default_rng(seed)
    parts = []
    for relation in range(relations):
        scores = (generator.normal(size=(heads, candidates)) * (1 + noise * generator.random())).astype(np.float32)
        chances = np.exp(2 * scores) / np.exp(2 * scores).sum(axis=1, keepdims=True)
        true = np.array([generator.choice(candidates, p=row / row.sum()) for row in chances.astype(np.float64)])
        parts.append(Outcomes.of(relation, scores, np.arange(heads), true))
    return Outcomes.joined(parts)


def test_honest_scores_are_found_out() -> None:
    found = fit(drawn(0))
    assert found.temperature == pytest.approx(0.5)
    assert found.slope == pytest.approx(1, abs=0.1) and found.intercept == pytest.approx(0, abs=0.2)
    told = report(found, drawn(1))
    assert told["answers"]["ece"] < 0.02 and told["first_answers"]["ece"] < 0.04
    assert told["answers"]["count"] == 12 * 150 * 10 and told["first_answers"]["count"] == 12 * 150
    assert sum(bin_["count"] for bin_ in told["answers"]["bins"]) == told["answers"]["count"]


def test_answer_sets_cover_new_relations_as_often_as_they_say() -> None:
    calibration = fit(drawn(0, noise=1.0))
    told = report(calibration, drawn(1, relations=40, heads=50, noise=1.0))
    for entry in told["coverage"]:
        assert entry["confidence"] - 0.04 < entry["covered"] < entry["confidence"] + 0.06
        assert entry["worst_relation"] <= entry["mean_of_relations"]
    for entry in left_out(drawn(0, noise=1.0))["coverage"]:
        assert entry["mean_of_relations"] >= entry["confidence"] - 0.05
    assert left_out(drawn(0, relations=1)) == {}


def test_a_sure_model_has_small_answer_sets() -> None:
    calibration = fit(drawn(0))
    sure, unsure = np.zeros((2, 40), np.float32)
    sure[7], unsure[7] = 10, 0.1
    assert calibration.answer_set(sure, 0.9).tolist() == [7]
    assert 20 < len(calibration.answer_set(unsure, 0.9)) <= 40
    sizes = [len(calibration.answer_set(unsure, level)) for level in (0.5, 0.7, 0.9, 0.99)]
    assert sizes == sorted(sizes)
    assert len(calibration.answer_set(unsure, 0.999)) == 40
    unsure[3] = -np.inf
    assert 3 not in calibration.answer_set(unsure, 0.999)
    assert not len(calibration.answer_set(np.full(5, -np.inf, np.float32), 0.9))


def test_confidence_rises_with_the_score() -> None:
    scores = np.random.default_rng(0).normal(size=30).astype(np.float32)
    confidences = fit(drawn(0)).confidences(scores, np.argsort(scores))
    assert (np.diff(confidences) >= 0).all() and confidences[0] > 0 and confidences[-1] < 1


def test_a_true_tail_that_is_no_candidate_is_never_covered() -> None:
    scores = np.random.default_rng(0).normal(size=(100, 10)).astype(np.float32)
    outcomes = Outcomes.of(0, scores, np.arange(100), np.where(np.arange(100) < 30, -1, 0))
    calibration = fit(outcomes)
    told = report(calibration, outcomes)
    assert told["reachable"] == pytest.approx(0.7)
    assert {entry["confidence"]: entry["covered"] for entry in told["coverage"]}[0.9] == pytest.approx(0.7)
    assert len(calibration.answer_set(scores[0], 0.9)) == 10


def test_ties_and_padding() -> None:
    scores = np.array([[1, 1, -np.inf, 0]], np.float32)
    outcomes = Outcomes.of(0, scores, np.array([0, 0]), np.array([1, 3]))
    assert outcomes.right[0].tolist() == [False, True, True] + [False] * 7
    assert np.isneginf(outcomes.shown[0, 3:]).all() and np.isfinite(outcomes.shown[0, :3]).all()
    assert outcomes.rest[0] == pytest.approx(0, abs=1e-9)  # nothing is above a tie
    weight = np.exp(-1 / TEMPERATURES)
    assert np.exp(outcomes.rest[1]) == pytest.approx(weight / (2 + weight))


def test_a_head_without_candidates_does_no_harm() -> None:
    scores = np.array([[-np.inf, -np.inf], [1, 0]], np.float32)
    outcomes = Outcomes.of(0, scores, np.array([0, 1]), np.array([0, 0]))
    assert np.isneginf(outcomes.shown[0]).all() and np.isneginf(outcomes.rest[0]).all()
    assert np.isneginf(outcomes.novel[0]).all() and not np.isnan(outcomes.novel).any()
    assert report(fit(outcomes), outcomes)["reachable"] == 0.5


@pytest.mark.parametrize("right", [True, False])
def test_answers_that_are_all_right_or_all_wrong_do_no_harm(right: bool) -> None:
    scores = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    rows, columns = np.nonzero(np.full(scores.shape, right))
    found = fit(Outcomes.of(0, scores, rows, columns))
    assert np.isfinite([found.slope, found.intercept]).all() and found.slope > 0
    assert (found.confidences(scores[0], np.arange(3)) > 0.5).all() == right


def test_it_is_the_same_after_json() -> None:
    import json

    found = Calibration(0.5, 1.25, -0.75, (*(float(level) for level in LEVELS[:-1]), -np.inf))
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    wrong: dict[str, Any] = {**found.to_dict(), "thresholds": [0.0]}
    with pytest.raises(ValueError, match="thresholds"):
        Calibration.from_dict(wrong)


def test_the_scores_of_a_diverged_model_make_a_calibration_that_can_be_read() -> None:
    scores = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32) * 1e9
    outcomes = Outcomes.of(0, scores, np.arange(50), np.zeros(50, int))
    found = fit(outcomes)
    assert Calibration.from_dict(found.to_dict()) == found and -np.inf in found.thresholds
    for entry in report(found, outcomes)["coverage"]:
        assert entry["covered"] >= entry["confidence"]


def test_the_nearest_number_of_references_counts() -> None:
    one, five = (Calibration(t, 1, 0, (0.0,) * len(LEVELS)) for t in (1.0, 2.0))
    found = {1: one, 5: five}
    assert [for_shots(found, k) for k in (1, 4, 5, 9)] == [one, one, five, five]
    assert for_shots({5: five}, 2) is five and for_shots({}, 3) is None


def test_novel_answers_are_those_left_when_other_true_tails_are_hidden() -> None:
    generator = np.random.default_rng(5)
    scores = generator.normal(size=(4, 30)).astype(np.float32)
    rows = np.array([0, 0, 0, 1, 2, 2, 3])
    columns = np.array([3, 9, 20, 4, 7, -1, 11])  # -1: a true tail that is no candidate
    outcomes = Outcomes.of(0, scores, rows, columns)
    for query, (row, column) in enumerate(zip(rows, columns, strict=True)):
        hidden = {int(c) for r, c in zip(rows, columns, strict=True) if r == row and c != column and c >= 0}
        shown = [int(c) for c in np.argsort(-scores[row], kind="stable") if c not in hidden][:SHOWN]
        assert outcomes.novel_right[query].tolist() == [c == column for c in shown]
        for index, temperature in enumerate(TEMPERATURES):
            exact = scores[row].astype(np.float64) / temperature
            log_mass = exact - np.log(np.exp(exact - exact.max()).sum()) - exact.max()  # known tails share the mass
            assert outcomes.novel[query, :, index] == pytest.approx(log_mass[shown], abs=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0},
        {"temperature": float("nan")},
        {"slope": float("inf")},
        {"slope": "1"},
        {"intercept": None},
        {"intercept": True},
        {"thresholds": [0.0]},
        {"thresholds": None},
    ],
)
def test_numbers_that_are_none_are_refused(change: dict[str, Any]) -> None:
    right = Calibration(1.0, 1.0, 0.0, (0.0,) * len(LEVELS)).to_dict()
    assert calibrations_in({"3": right})[3].to_dict() == right
    with pytest.raises((ValueError, TypeError)):
        calibrations_in({"3": right | change})


@pytest.mark.parametrize("shots", ["0", "-1", "x", "9" * 5_000])
def test_numbers_of_references_that_are_none_are_refused(shots: str) -> None:
    right = Calibration(1.0, 1.0, 0.0, (0.0,) * len(LEVELS)).to_dict()
    with pytest.raises(ValueError, match="number of references"):
        calibrations_in({shots: right})
