from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from hire.util.arrays import IntArray
from hire.util.compiled import compiled


def total(values: IntArray) -> int:
    found = 0
    for value in values:
        found += value
    return found


def test_a_compiled_function_does_the_same() -> None:
    assert compiled(total)(np.arange(10)) == total(np.arange(10)) == 45


def test_without_a_folder_for_machine_code_it_is_compiled_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def njit(*given: Any, cache: bool = False, **options: Any) -> Any:
        if given:  # as numba itself uses it when it is first needed
            return real(*given, **options)

        def decorate(function: Any) -> Any:
            if cache:
                raise RuntimeError("cannot cache function 'total': no locator available")
            return real(**options)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(total)(np.arange(10)) == 45
