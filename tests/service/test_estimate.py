from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hire.service.estimate import MIN_CHECKED, Rated, Share, estimate, in_words, wilson
from tests.service.conftest import Desk

DRAWS = 1_000


def share_of(facts: Iterable[float], checked: Iterable[float], correct: Iterable[bool]) -> Share:
    return estimate([Rated(each) for each in facts], [Rated(each) for each in checked], list(map(bool, correct)))


def test_wilson_is_the_published_interval() -> None:
    # Brown, Cai and DasGupta (2001) and the usual tables: 0 of 10 and 81 of 263.
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=5e-4)
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-4)


def test_without_checks_nothing_is_estimated() -> None:
    found = share_of([0.95] * 40, [], [])
    assert found.share is None and (found.low, found.high) == (0, 1) and found.needed == MIN_CHECKED
    assert in_words(0.9, found) == "0.9 or higher: 40 facts, none checked; check 20 of them for an estimate"
    assert in_words(0.9, share_of([], [0.95], [True])) == "0.9 or higher: 0 facts"
    assert in_words(0.9, share_of([0.95] * 6, [], [])).endswith(
        "6 facts, none checked; check all of them for an estimate"
    )


def test_strata_correct_for_the_choice_of_checks() -> None:
    """Most checks are of doubtful pairs, which are wrong more often: the plain share would be far too low."""
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, 4_000)
    correct = generator.uniform(size=4_000) < confidence
    doubtful = np.argsort(confidence)
    checked = np.concatenate([doubtful[:150], generator.choice(doubtful[150:], 80, replace=False)])
    facts = np.setdiff1d(np.arange(4_000), checked)
    found = share_of(confidence[facts], confidence[checked], correct[checked])
    truth = correct[facts].mean()
    assert found.share is not None and found.low <= truth <= found.high
    plain = correct[checked].mean()
    assert abs(found.share - truth) < abs(plain - truth) and not found.low <= plain <= found.high


@pytest.mark.parametrize("truth", [0.6, 0.9, 0.98])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(truth: float) -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(DRAWS):
        confidence = generator.uniform(0.9, 1, 500)
        correct = generator.uniform(size=500) < truth
        checked = generator.choice(500, 30, replace=False)
        rest = np.setdiff1d(np.arange(500), checked)
        found = share_of(confidence[rest], confidence[checked], correct[checked])
        covered += found.low <= correct[rest].mean() <= found.high
    assert covered / DRAWS >= 0.92  # of 95%; 93 to 96% with many more draws


def test_checks_in_one_corner_are_too_few() -> None:
    facts = np.linspace(0.5, 1, 400).tolist()
    found = share_of(facts, [0.99] * 40, [True] * 40)
    assert found.needed > 0 and found.low < 0.8  # most facts are unlike those that were checked
    spread = share_of(facts, facts[::10], [True] * 40)
    assert spread.needed == 0 and spread.low > found.low


def test_best_answers_do_not_vouch_for_others() -> None:
    facts = [Rated(0.9)] * 20 + [Rated(0.9, best=False)] * 80
    checked = [Rated(0.9)] * 20 + [Rated(0.9, best=False)] * 5
    found = estimate(facts, checked, [True] * 20 + [False] * 5)
    assert found.share == pytest.approx(0.2) and found.high < 0.8
    unseen = estimate(facts, [Rated(0.9)] * 40, [True] * 40)
    assert unseen.needed > 0 and unseen.low < 0.5


def test_the_interval_ends_at_shares_that_so_few_facts_can_have() -> None:
    found = share_of([0.9] * 2, [0.9] * 30, [True] * 24 + [False] * 6)
    assert (found.low, found.high) in {(0, 1), (0.5, 1)}


def test_the_estimate_comes_from_checked_cards(desk: Desk) -> None:
    before = desk.get("/estimate", threshold=0.3)
    assert before["share"] is None and not before["enough"] and before["facts"] > 40
    cards = desk.cards(order="audit", min_confidence=0.3, limit=30)
    for number, card in enumerate(cards):
        desk.judge(card, "reject" if number < 6 else "accept")
    after = desk.get("/estimate", threshold=0.3)
    assert (after["checked"], after["correct"]) == (30, 24) and after["low"] < after["share"] < after["high"]
    desk.judge(desk.cards(order="audit", min_confidence=0.3)[0], "unsure")
    assert desk.get("/estimate", threshold=0.3)["checked"] == 30
    denied = desk.cards(order="audit", min_confidence=0.3)[0]
    desk.judge(denied, "no_tail")
    assert (desk.get("/estimate", threshold=0.3)["checked"], desk.get("/estimate", threshold=0.3)["correct"]) == (
        31,
        24,
    )
