from __future__ import annotations

import numpy as np
import pytest

from hire.comparison.table import METRICS, compare
from tests.comparison.support import made_up, outcome, row


def test_a_cell_has_mean_spread_and_interval() -> None:
    comparison = made_up()
    good = comparison.line("good (common)")
    cell = good.cells[1, "hits@1"]
    shares = [
        np.mean(np.concatenate([ranks.realistic for _, ranks in run.evaluations[0].ranks.values()]) == 1)
        for run in good.outcomes
    ]
    assert cell.mean == pytest.approx(np.mean(shares)) and cell.deviation == pytest.approx(np.std(shares, ddof=1))
    assert cell.interval[0] < cell.mean < cell.interval[1] and cell.interval[1] - cell.interval[0] < 0.2
    assert comparison.line("cut (default)").cells[1, "mrr"].deviation is None
    assert set(good.cells) == {(1, metric) for metric in METRICS} and good.seconds() == 90.0


def test_the_best_is_marked_and_what_is_significantly_below_it() -> None:
    comparison = made_up()
    assert [line.cells[1, "mrr"].best for line in comparison.lines] == [True, False, False, False]
    assert [line.cells[1, "mrr"].worse for line in comparison.lines] == [False, True, True, True]
    alike = [each for each in comparison.differences if {each.first, each.second} == {"a_b (common)", "alike (common)"}]
    assert all(each.p_value > 0.5 and each.interval[0] <= 0 <= each.interval[1] for each in alike)
    equal = compare([row("a"), row("b")], [outcome(row(name), seed) for name in "ab" for seed in (0, 1)], (1,))
    assert not any(cell.worse for line in equal.lines for cell in line.cells.values())


def test_draws_are_compared_on_the_same_queries() -> None:
    rows = [row("good"), row("bad"), row("fixed")]
    outcomes = [outcome(of, share=share, draws=3) for of, share in zip(rows[:2], (0.8, 0.2), strict=True)]
    outcomes.append(outcome(rows[2], share=1.0, fixed=True))
    comparison = compare(rows, outcomes, (1,))
    assert comparison.lines[0].cells[1, "mrr"].best and comparison.lines[1].cells[1, "mrr"].worse
    fixed = comparison.lines[2]
    assert not fixed.cells[1, "mrr"].best and "not redrawn" in fixed.notes[0]
    assert not any("fixed (common)" in (each.first, each.second) for each in comparison.differences)


def test_notes_say_what_was_cut_and_what_failed() -> None:
    assert made_up().line("cut (default)").notes == ["1 of 1 runs were cut at step 1,234"]
    rows = [row("failed"), row("fine")]
    failed = outcome(rows[0], training={"problem": "the loss of step 7 is nan", "finished": False})
    comparison = compare(rows, [failed, outcome(rows[0], 1), outcome(rows[1])], (1,))
    assert comparison.lines[0].notes == ["1 of 2 runs have no metrics (the loss of step 7 is nan)"]
    assert (1, "mrr") in comparison.lines[0].cells and len(comparison.lines[0].evaluated()) == 1
    nothing = compare([rows[0]], [failed], (1,))
    assert not nothing.lines[0].cells and nothing.lines[0].seconds() is None


def test_runs_and_minutes_are_those_of_the_number_of_references() -> None:
    of = row("trained for each")
    runs = [
        outcome(of, shots=(1,)),
        outcome(of, 1, shots=(1,), training={"seconds": 30.0}),
        outcome(of, shots=(5,), training={"seconds": 210.0}),
    ]
    line = compare([of], runs, (1, 5)).lines[0]
    assert [len(line.evaluated(shots)) for shots in (1, 5, None)] == [2, 1, 3]
    assert [line.seconds(shots) for shots in (1, 5, None)] == [60.0, 210.0, 110.0]
