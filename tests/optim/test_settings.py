from __future__ import annotations

import pytest

from hire.optim.settings import OptimizerSettings


def test_learning_rates_fall_linearly_to_their_final_share() -> None:
    settings = OptimizerSettings(final_rate=0.25)
    assert [settings.share(step, 8) for step in range(8)] == [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.25]
    assert OptimizerSettings(final_rate=1.0).share(7, 8) == 1


def test_learning_rates_rise_first() -> None:
    settings = OptimizerSettings(final_rate=0.0, warm_up=4)
    found = [settings.share(step, 100) for step in range(6)]
    assert found == pytest.approx([0.25, 0.5 * 0.99, 0.75 * 0.98, 0.97, 0.96, 0.95])


def test_the_ema_reaches_back_a_number_of_steps_or_a_share_of_all() -> None:
    assert OptimizerSettings(ema=None).ema_steps(1_000) is None
    assert OptimizerSettings(ema=0.05).ema_steps(1_000) == 50
    assert OptimizerSettings(ema=100.0).ema_steps(1_000) == 100
    assert OptimizerSettings(ema=0.05).kept(1, 1_000) == pytest.approx(1 - 1 / 50)
    assert OptimizerSettings(ema=None).kept(1, 1_000) == 0
    assert OptimizerSettings(ema=0.05).kept(1, 10) == 0  # half a step is less than one


def test_the_ema_forgets_the_first_steps_sooner() -> None:
    settings = OptimizerSettings(ema=100.0, ema_warm_up=10)
    found = [settings.kept(updates, 1_000) for updates in (1, 10, 90, 990, 5_000)]
    assert found == pytest.approx([1 / 11, 0.5, 0.9, 0.99, 0.99])
    assert OptimizerSettings(ema=None, ema_warm_up=10).kept(90, 1_000) == 0
