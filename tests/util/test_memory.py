from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.util import memory
from hire.util.memory import (
    LEAST_LIMIT,
    MIB,
    UNLIMITED,
    Available,
    Tidying,
    available_memory,
    check_address_limit,
    check_fits,
    give_back_memory,
    resident_memory,
)


def test_it_is_asked_for_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    give_back_memory()
    assert asked == [0]


def test_it_is_given_back_after_a_second_or_once_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    clock, size = [100.0], [500 * MIB]
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    monkeypatch.setattr(memory, "resident_memory", lambda: size[0])
    monkeypatch.setattr("hire.util.memory.time.monotonic", lambda: clock[0])
    tidying = Tidying()
    for seconds, grown, times in ((0.5, 200, 0), (0.1, 100, 1), (0.5, 200, 1), (0.6, 0, 2), (0.1, 200, 2)):
        clock[0] += seconds
        size[0] += grown * MIB
        tidying.tidy()
        assert len(asked) == times


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_the_memory_of_this_process() -> None:
    with mmap.mmap(-1, 64 * MIB) as block:  # a map of its own: malloc may reuse memory that is resident already
        before = resident_memory()
        block[:: mmap.PAGESIZE] = bytes(64 * MIB // mmap.PAGESIZE)
        assert resident_memory() - before > 50 * MIB


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    memory._trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    try:
        give_back_memory()
        assert memory._trim() is None
    finally:
        memory._trim.cache_clear()


def test_the_least_of_all_bounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("_machine_memory", 900),
        ("_group_memory", 500),
        ("address_limit", 1_000),
        ("_address_space", 0),
    ):
        monkeypatch.setattr(memory, name, lambda value=value: value)
    assert available_memory() == (500, "the control group (container)")
    monkeypatch.setattr(memory, "_address_space", lambda: 700)
    assert available_memory() == (300, "the limit of the process (ulimit -v)")
    for name in ("_machine_memory", "_group_memory", "address_limit"):
        monkeypatch.setattr(memory, name, lambda: None)
    assert available_memory() == (UNLIMITED, "nothing")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("", ("memory.max", "memory.current", "inactive_file")),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
)
def test_a_control_group_is_read_in_either_version(tmp_path: Path, kind: str, names: tuple[str, str, str]) -> None:
    limit, used, inactive = names
    folder = tmp_path / kind / "a"
    folder.mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("4:memory:/a\n" if kind else "0::/a\n")
    (folder / limit).write_text("1000\n")
    (folder / used).write_text("900\n")
    (folder / "memory.stat").write_text(f"anon 1\n{inactive} 200\n")
    assert memory._group_memory(tmp_path, own) == 300
    (folder / limit).write_text("max\n" if not kind else str(2**63 - 4096))
    assert memory._group_memory(tmp_path, own) is None


def test_what_does_not_fit_is_refused_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: Available(1_000 * MIB, "the machine"))
    check_fits("this", {"a": 500 * MIB}, "use less")
    with pytest.raises(
        HireError, match=r"needs 1,010 MiB .*\(b 600 MiB, a 10 MiB, .*the machine leaves 1,000"
    ) as caught:
        check_fits("this", {"a": 10 * MIB, "b": 600 * MIB}, "use less")
    assert caught.value.problems[0].remedy == "use less"


def test_a_limit_that_the_libraries_do_not_fit_into_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "")
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL")
    monkeypatch.setattr(memory, "address_limit", lambda: LEAST_LIMIT - 1)
    with pytest.raises(HireError, match="1,500 are needed"):
        check_address_limit()
    monkeypatch.setattr(memory, "address_limit", lambda: LEAST_LIMIT)
    check_address_limit()
    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "system"


def test_large_blocks_are_maps_of_their_own() -> None:
    script = (
        "from hire.util.memory import keep_large_blocks_apart, resident_memory\n"
        "import ctypes\n"
        "keep_large_blocks_apart()\n"
        "libc = ctypes.CDLL('libc.so.6')\n"
        "libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]\n"
        "before = resident_memory()\n"
        "for _ in range(3):\n"  # a block that is freed does not raise the size from which blocks are mapped
        "    blocks = [libc.malloc(8 << 20) for _ in range(9)]\n"
        "    for block in blocks: ctypes.memset(block, 1, 8 << 20)\n"
        "    for block in blocks[:-1]: libc.free(block)\n"  # the last one would hold the heap up
        "print(resident_memory() - before >> 20)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 50  # the last blocks are 24; without, it is 88
