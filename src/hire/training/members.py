"""The members of a system over several processes: who trains which alone, and how its files come to the first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hire.errors import HireError
from hire.optim.storage import sharded
from hire.systems.registry import system_class
from hire.training.loop import STATE
from hire.util.checksums import file_checksum
from hire.util.files import atomic_file, explain_os_errors, make_directory
from hire.util.processes import broadcast, share, told

BLOCK_BYTES = 4 << 20  # of a file, at once


def owners(parts: Mapping[str, tuple[str, Any]]) -> dict[str, int]:
    """Which process trains each part alone; nothing where every part is trained by all processes.

    The parts that learn are dealt out in turn, if there are enough for every process; sharded tables need all of them.
    """
    learning = [name for name, (system, settings) in parts.items() if _learns(system, settings)]
    processes = share().processes
    if processes == 1 or len(learning) < processes or any(sharded(settings) for _, settings in parts.values()):
        return {}
    return {name: position % processes for position, name in enumerate(learning)}


def _learns(system: str, settings: Any) -> bool:
    kind = system_class(system)
    return kind.learns() or any(_learns(*part) for part in kind.parts(settings).values())


def check_new(folder: Path) -> None:
    """Raise if a training that begins would continue another, which a machine still has in a folder of that name."""
    if folder.is_dir() and any(folder.rglob(STATE)):
        raise HireError(
            "has the state of an earlier training",
            file=folder,
            remedy="delete it, or choose another folder for the run",
        )


def bring(folder: Path, owner: int) -> None:
    """Copy what a process has in a folder to where the first one has it, but for the state of its training.

    Where both are on the same file system, that has happened already.
    """
    for name, (size, checksum) in told(lambda: _files(folder), owner).items():
        if not told(partial(_has, folder / name, checksum)):
            _copy(folder / name, size, owner)


def _has(path: Path, checksum: str) -> bool:
    return path.is_file() and file_checksum(path) == checksum


def _files(folder: Path) -> dict[str, tuple[int, str]]:
    """The size and checksum of all files that matter when training is over."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.name != STATE and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): (path.stat().st_size, file_checksum(path)) for path in kept}


def _copy(path: Path, size: int, owner: int) -> None:
    """Copy a file from a process to the first one, complete or not at all."""
    with ExitStack() as stack, explain_os_errors(path):
        source = stack.enter_context(path.open("rb")) if share().rank == owner else None
        target = None
        if share().first:
            make_directory(path.parent)
            target = stack.enter_context(stack.enter_context(atomic_file(path)).open("wb"))
        for start in range(0, size, BLOCK_BYTES):
            block = torch.empty(min(BLOCK_BYTES, size - start), dtype=torch.uint8)
            if source is not None:
                source.readinto(block.numpy().data)
            broadcast(block, owner)
            if target is not None:
                target.write(block.numpy().data)
