from __future__ import annotations

import numpy as np

from hire.systems.base import REMEMBERED, LastTails
from hire.util.arrays import IntArray


def test_what_was_made_of_the_last_tails_is_kept() -> None:
    made: list[int] = []

    def make(tails: IntArray) -> int:
        made.append(len(tails))
        return int(tails.sum())

    last: LastTails[int] = LastTails()
    many, others = np.arange(200), np.arange(1, 201)
    assert last.get(many, make) == last.get(many.copy(), make) == many.sum() and made == [200]
    assert last.get(np.arange(3), make) == 3 and last.get(many, make) == many.sum() and made == [200, 3]
    assert last.get(others, make) == others.sum() and last.get(many, make) == many.sum() and made == [200, 3, 200, 200]
    huge = np.arange(REMEMBERED.stop)
    assert last.get(huge, make) == huge.sum() and last.get(many, make) == many.sum() and len(made) == 5


def test_tails_that_are_changed_afterwards_are_other_tails() -> None:
    last: LastTails[int] = LastTails()
    tails = np.arange(200)
    assert last.get(tails, lambda some: int(some.sum())) == 19_900
    tails[0] = 7
    assert last.get(tails, lambda some: int(some.sum())) == 19_907
