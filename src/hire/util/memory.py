"""Memory that is free, but not yet given back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    """The function of glibc that gives memory back, where there is one."""
    try:
        found: Callable[[int], int] = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
    return found


def give_back_memory() -> None:
    """Give memory that is free back to the system: large arrays of ever other sizes leave gaps that add up."""
    trim = _trim()
    if trim is not None:
        trim(0)
