"""Batches drawn ahead of time."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import torch

from hire.sampling.ahead import drawn_ahead
from hire.training.loop import one_or_more_threads


def test_batches_come_in_order() -> None:
    with closing(drawn_ahead(lambda step: step**2, 3, workers=2)) as batches:
        assert list(islice(batches, 4)) == [9, 16, 25, 36]


def test_batches_are_drawn_by_one_thread_each_and_the_training_keeps_its_own() -> None:
    with one_or_more_threads(3), closing(drawn_ahead(lambda _: torch.get_num_threads(), 0, workers=2)) as batches:
        assert list(islice(batches, 6)) == [1] * 6
        assert torch.get_num_threads() == 3
