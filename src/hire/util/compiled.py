"""Loops that are compiled when they are first called; the machine code is kept for the next start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of numbers and arrays; it lets other threads run meanwhile, and checks no index.

    A product and a sum may be one instruction, rounded once.
    """
    return _compiled(function, {"contract"})


def compiled_in_any_order(function: Callable[P, R]) -> Callable[P, R]:
    """The same, and a sum may be added up in another order than it is written, many terms at once."""
    return _compiled(function, {"contract", "reassoc", "nsz"})


def compiled_as_written(function: Callable[P, R]) -> Callable[P, R]:
    """The same, and every product and every sum is rounded, as PyTorch's operations are."""
    return _compiled(function, set())


def _compiled(function: Callable[P, R], freedoms: set[str]) -> Callable[P, R]:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": freedoms}
    options["no_cfunc_wrapper"] = True  # which only C would call: it takes a tenth of the time
    made: Callable[P, R]
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # there is no folder to keep the machine code in
        made = numba.njit(**options)(function)
    return made
