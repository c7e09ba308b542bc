"""How the rows of a table are kept: in which precision, and in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hire.errors import HireError
from hire.util.files import cache_directory, explain_os_errors
from hire.util.settings import Settings, items
from hire.util.tensors import blocks_of

BLOCK_NUMBERS = 1 << 20  # of a table that are filled at once
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PLACES = ("storage.place", "storage.sharded")
DROPPED_BITS = {torch.bfloat16: 16, torch.float16: 13}  # of the fraction of single precision


@dataclass(frozen=True)
class StorageSettings(Settings):
    """How tables of entities are kept while they are learned, and afterwards."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of vectors; all is computed in float32
    place: Literal["memory", "file"] = "memory"  # or a file in the cache, of which the rows in use are in memory
    sharded: bool = False  # of several processes, each has a share of the rows, instead of all

    @property
    def kind(self) -> torch.dtype:
        """The type of a vector's numbers."""
        return TYPES[self.precision]

    @property
    def apart(self) -> bool:
        """Whether a table is never in the memory of one process as a whole."""
        return self.sharded or self.place == "file"

    def zeros(self, rows: int, width: int, kind: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        """A new table."""
        if self.place == "memory":
            return torch.zeros(rows, width, dtype=kind, device=device)
        if torch.device(device).type != "cpu":
            raise HireError("tables in a file are for the CPU", remedy="choose the device cpu, or storage.place=memory")
        return _in_file(rows, width, kind)


def kept_apart(settings: Any) -> bool:
    """Whether any tables of a system with these settings are never in the memory of one process as a whole."""
    return any(value in ("file", True) for path, value in items(settings) if path.endswith(PLACES))


def sharded(settings: Any) -> bool:
    """Whether of any tables of a system with these settings each process has a share of the rows."""
    return any(value is True for path, value in items(settings) if path.endswith("storage.sharded"))


def _in_file(rows: int, width: int, kind: torch.dtype) -> Tensor:
    """A new table in a file that is gone when the table is, or the process."""
    folder, size = cache_directory(), max(1, rows * width * kind.itemsize)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is told now, and is no crash later
            content = np.memmap(file, np.uint8, "r+", shape=(size,))
    return torch.from_numpy(np.asarray(content))[: rows * width * kind.itemsize].view(kind).view(rows, width)


class Start(NamedTuple):
    """The vectors that a table starts with, some rows at a time: no one needs to have all of them in memory."""

    rows: int
    width: int
    blocks: Callable[[], Iterator[Tensor]]  # [n, width] each, in order

    @classmethod
    def of(cls, weights: Tensor, scale: Tensor | None = None) -> Start:
        """Given vectors, perhaps multiplied."""

        def blocks() -> Iterator[Tensor]:
            for block in blocks_of(weights):
                yield block if scale is None else block.float() * scale

        return cls(len(weights), weights.shape[1], blocks)

    @classmethod
    def drawn(cls, rows: int, width: int, draw: Callable[[int, int], Tensor]) -> Start:
        """Vectors at random, so many of a width at once."""
        # In multiples of 16 numbers, PyTorch draws the same one after another as all at once.
        at_once = max(16, BLOCK_NUMBERS // width // 16 * 16)
        return cls(rows, width, lambda: (draw(min(at_once, rows - start), width) for start in range(0, rows, at_once)))

    def part(self, own: slice) -> Start:
        """Some rows of the same; those before them are drawn, too, so that it does not matter who has which."""

        def blocks() -> Iterator[Tensor]:
            start = 0
            for block in self.blocks():
                yield block[max(0, own.start - start) : max(0, own.stop - start)]
                start += len(block)

        return Start(own.stop - own.start, self.width, blocks)


def stochastically_rounded(values: Tensor, kind: torch.dtype, generator: torch.Generator) -> Tensor:
    """Numbers of half the precision: up or down at random, so that the mean of many small steps is not lost."""
    dropped = DROPPED_BITS[kind]
    words = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device)
    noise = words.random_(-(2**63), None, generator=generator).view(torch.int16)[: values.numel()]
    bits = values.contiguous().view(torch.int32) + (noise.view(values.shape).int() & ((1 << dropped) - 1))
    return (bits & -(1 << dropped)).view(torch.float32).to(kind)
