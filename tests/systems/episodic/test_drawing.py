from __future__ import annotations

import numpy as np

from hire.systems.episodic.drawing import adaptation_negatives


def test_no_true_tail_is_a_negative_after_training() -> None:
    for candidates in (None, np.arange(12)):
        assert set(adaptation_negatives(0, np.array([3, 5]), 12, candidates, 10)) == set(range(12)) - {3, 5}
    assert len(adaptation_negatives(0, np.array([7]), 1, np.array([7]), 10)) == 1  # where there is nothing else
