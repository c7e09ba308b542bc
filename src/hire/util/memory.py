"""Memory: how much there is for this process, what does not fit into it, and what is free, but not yet given back."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hire.errors import HireError

MIB = 1 << 20
LEAST_LIMIT = 1_500 * MIB  # of the address space: the libraries alone take 800 MiB of it
RESERVE = 400 * MIB  # for threads and what else the libraries allocate without asking
SECONDS_BETWEEN_TIDYING = 1.0
MOST_GROWTH = 256 * MIB  # of the process, between two times
LARGE_BLOCK = MIB
M_MMAP_THRESHOLD = -3  # as malloc.h has it
DATA = 5  # the column of a process's data among its pages
UNLIMITED = 1 << 60  # from here on, a limit is none


class Available(NamedTuple):
    """Memory that this process can still allocate."""

    bytes_: int
    bound: str  # what bounds it


def available_memory() -> Available:
    """The least of what the machine, the control group and the limit of the process leave; unbounded if none tells."""
    found = [Available(UNLIMITED, "nothing")]
    free = _machine_memory()
    if free is not None:
        found.append(Available(free, "the machine"))
    group = _group_memory()
    if group is not None:
        found.append(Available(group, "the control group (container)"))
    limit = address_limit()
    if limit is not None:
        found.append(Available(max(0, limit - _address_space()), "the limit of the process (ulimit -v)"))
    limit = data_limit()
    if limit is not None:
        found.append(Available(max(0, limit - _pages(DATA)), "the limit of the process (ulimit -d)"))
    return min(found)


def _machine_memory() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _group_memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """What the nearest bounded control group leaves, in either version of them; file caches can be given up."""
    try:
        names = [line.split(":", 2)[2].lstrip("/") for line in own.read_text().splitlines()]
    except (OSError, IndexError):
        return None
    left = []
    for folder in {root / kind / part for kind in ("", "memory") for name in names for part in (name, "")}:
        for limit, used, cache_ in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with suppress(OSError, ValueError):
                most = int((folder / limit).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                if most < UNLIMITED:
                    left.append(most - int((folder / used).read_text()) + int(stat.get(cache_, 0)))
    return max(0, min(left)) if left else None


def address_limit() -> int | None:
    """The limit on the address space of this process, if there is one."""
    return _limit("RLIMIT_AS")


def data_limit() -> int | None:
    """The limit on what this process may write to besides files, if there is one; maps of files do not count."""
    return _limit("RLIMIT_DATA")


def _limit(name: str) -> int | None:
    try:
        import resource
    except ImportError:  # not on this system
        return None
    limit: int = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY or limit >= UNLIMITED else limit


def _address_space() -> int:
    return _pages(0)


def resident_memory() -> int:
    """The bytes of this process that are in memory; 0 where the system does not tell."""
    return _pages(1)


def _pages(column: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[column]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def check_address_limit() -> None:
    """Refuse to begin within a limit that the libraries cannot even be loaded in: they would crash without a word."""
    limit = address_limit()
    if limit is None:
        return
    if limit < LEAST_LIMIT:
        raise HireError(
            f"this process may use {limit // MIB:,} MiB of memory; at least {LEAST_LIMIT // MIB:,} are needed",
            remedy="raise it (ulimit -v)",
        )
    # The default pool reserves a gigabyte of address space in advance, whether it is needed or not.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def check_fits(what: str, needs: Mapping[str, int], remedy: str) -> None:
    """Refuse work that does not fit into memory, before it begins; `needs` are bytes by what needs them."""
    needed, available = sum(needs.values()) + RESERVE, available_memory()
    if needed <= available.bytes_:
        return
    largest = sorted(needs, key=lambda part: -needs[part])[:3]
    parts = ", ".join(f"{part} {needs[part] // MIB:,} MiB" for part in largest)
    parts += f", and {RESERVE // MIB:,} MiB for the libraries"
    raise HireError(
        f"{what} needs {needed // MIB:,} MiB of memory or more ({parts}), "
        f"but {available.bound} leaves {available.bytes_ // MIB:,} MiB",
        remedy=remedy,
    )


@cache
def _trim() -> Callable[[int], int] | None:
    """The function of glibc that gives memory back, where there is one."""
    try:
        found: Callable[[int], int] = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
    return found


def keep_large_blocks_apart() -> None:
    """In a process that runs for long: memory of large arrays goes back to the system as soon as they are gone.

    By itself glibc takes more and more of them from the heap, where arrays of ever other sizes leave gaps.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


class Tidying:
    """Gives memory back now and then: after a second, or once the process has grown by much."""

    def __init__(self) -> None:
        self._last, self._size = time.monotonic(), resident_memory()

    def tidy(self) -> None:
        """Give memory back if it is time."""
        now = time.monotonic()
        if now - self._last > SECONDS_BETWEEN_TIDYING or resident_memory() - self._size > MOST_GROWTH:
            give_back_memory()
            self._last, self._size = now, resident_memory()


def give_back_memory() -> None:
    """Give memory that is free back to the system: large arrays of ever other sizes leave gaps that add up."""
    trim = _trim()
    if trim is not None:
        trim(0)
