from __future__ import annotations

import math

from hire.util.ranges import Range


def test_what_is_within_a_range() -> None:
    closed, open_ = Range(1, 10), Range(0, 1, low_open=True, high_open=True)
    assert 1 in closed and 10 in closed and 0 not in closed and 11 not in closed
    assert 0.5 in open_ and 0 not in open_ and 1 not in open_
    assert not any(value in closed or value in open_ for value in (math.nan, math.inf, -math.inf))


def test_a_range_is_told_in_words() -> None:
    assert str(Range(1, 65_536)) == "from 1 to 65,536"
    assert str(Range(0, 1.5, low_open=True)) == "above 0 to 1.5"
    assert str(Range(0, 1, high_open=True)) == "from 0, below 1"
    assert str(Range(0, 2**63 - 1)) == "from 0 to 2^63 - 1"
