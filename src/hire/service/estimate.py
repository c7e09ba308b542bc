"""What share of the facts above a threshold is correct, estimated from the cards that people have checked.

People do not check at random: the most useful cards come first. So facts and checked pairs are compared within strata,
the best answers of their heads apart from others, and both by confidence; the strata are weighted by their facts. The
interval is Wilson's, with the number of checks that would be as informative if they had been drawn at random, and
reaches to the next shares that so many facts can have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STRATA = 3  # by confidence, with as many facts in each
LEVEL, DEVIATIONS = 0.95, 1.96
MIN_CHECKED = 20
MIN_SHARE = 0.1  # of all facts: a stratum that large needs checks of its own
MIN_IN_STRATUM = 3

FloatArray = NDArray[np.float64]


class Rated(NamedTuple):
    """What is known of a pair before anyone checks it."""

    confidence: float
    best: bool = True  # whether it is the best answer of its head


@dataclass(frozen=True)
class Share:
    """An estimated share, with its interval; without checks, nothing is known."""

    facts: int
    checked: int
    correct: int
    share: float | None
    low: float
    high: float
    needed: int  # cards to check before the estimate means something


def estimate(facts: Sequence[Rated], checked: Sequence[Rated], correct: Sequence[bool]) -> Share:
    """The share of facts that are correct, given the pairs that were checked and whether they were."""
    if not facts or not checked:
        needed = min(MIN_CHECKED, len(facts))
        return Share(len(facts), len(checked), sum(correct), None, 0.0, 1.0, needed)
    edges = [_edges([pair.confidence for pair in facts if pair.best == best]) for best in (False, True)]
    weights = _counts(edges, facts) / len(facts)
    checks = _counts(edges, checked)
    right = _counts(edges, [pair for pair, is_correct in zip(checked, correct, strict=True) if is_correct])
    shares = np.where(checks > 0, right / np.maximum(checks, 1), right.sum() / checks.sum())
    share = float(weights @ shares)
    # Smoothed, because no error among few checks does not mean that there is none; unchecked strata may be anything.
    smooth = np.where(checks > 0, (right + 1) / (checks + 2), 0.5)
    variance = float((weights**2) @ (smooth * (1 - smooth) / np.maximum(checks, 1)))
    mean = float(weights @ smooth)
    informative = min(max(1.0, mean * (1 - mean) / variance), float(checks.sum()))
    low, high = wilson(share, 1 / (1 / informative + 1 / len(facts)))  # the facts, too, are but a draw
    low, high = math.floor(low * len(facts)) / len(facts), math.ceil(high * len(facts)) / len(facts)
    few = np.where(weights >= MIN_SHARE, np.maximum(MIN_IN_STRATUM - checks, 0), 0).sum()
    needed = min(max(MIN_CHECKED - len(checked), int(few), 0), len(facts))
    return Share(len(facts), len(checked), int(right.sum()), share, low, high, needed)


def _edges(confidences: Sequence[float]) -> FloatArray:
    """Where strata of equally many facts meet."""
    if not confidences:
        return np.zeros(0)
    return np.unique(np.quantile(confidences, np.linspace(0, 1, STRATA + 1)[1:-1], method="inverted_cdf"))


def _counts(edges: Sequence[FloatArray], pairs: Sequence[Rated]) -> FloatArray:
    """How many pairs are in each stratum, [2 * STRATA]."""
    found = np.zeros(2 * STRATA)
    for pair in pairs:
        found[pair.best * STRATA + int(np.searchsorted(edges[pair.best], pair.confidence, side="left"))] += 1
    return found


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's interval of a share among so many."""
    square = DEVIATIONS**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = DEVIATIONS / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def in_words(threshold: float, found: Share) -> str:
    """The estimate as a sentence."""
    facts = f"{threshold:g} or higher: {found.facts:,} fact{'' if found.facts == 1 else 's'}"
    if not found.facts:
        return facts
    more = f"check {'all' if found.needed == found.facts else found.needed} of them for an estimate"
    if found.share is None:
        return f"{facts}, none checked; {more}"
    interval = f"{found.low:.0%} to {found.high:.0%}, {found.checked} checked"
    told = f"{facts}, estimated {found.share:.0%} correct ({interval})"
    return f"{told}; too few checked: {more}" if found.needed else told
