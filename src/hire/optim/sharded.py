"""A table that no process has as a whole: each keeps and moves a share of the rows, and asks the others for theirs.

Rows go to and from their owners by all-to-all, as in other engines for large embedding tables. PyTorch's DTensor would
have every process look up the ids of all, and sum whole blocks in which all rows but its own are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch import Tensor

from hire.errors import HireError
from hire.optim.storage import Start, StorageSettings
from hire.optim.tables import RowTable, Table
from hire.util.files import cache_directory, explain_os_errors
from hire.util.processes import barrier, exchanged_rows, share, told
from hire.util.tensors import Part, Parts, map_tensors_and_metadata, save_tensors


def stored(start: Start, storage: StorageSettings, make: Callable[[Start], RowTable]) -> Table:
    """A table of entities: whole, or this process's share of it."""
    return ShardedTable(start, make) if storage.sharded and share().processes > 1 else make(start)


class ShardedTable(Table):
    """Rows of which each process has a share, one after another.

    All processes must ask for rows, and move them, at the same time; which ones, and how many, may differ.
    """

    def __init__(self, start: Start, make: Callable[[Start], RowTable]) -> None:
        self.count, self.dimension = start.rows, start.width
        self.own = share().some(start.rows)
        self.local = make(start.part(self.own))
        processes = share().processes
        self._ends = torch.tensor([start.rows * (rank + 1) // processes for rank in range(processes)])

    @property
    def device(self) -> torch.device:
        """Where our rows are."""
        return self.local.device

    @property
    def weights(self) -> Tensor:
        """Our rows as they are kept."""
        return self.local.weights

    def _sent(self, numbers: Tensor) -> list[int]:
        """How many of some ascending rows each process owns."""
        ends = torch.searchsorted(numbers, self._ends.to(numbers.device))
        return torch.diff(ends, prepend=ends.new_zeros(1)).tolist()

    def rows(self, numbers: Tensor) -> Tensor:
        """A copy of some rows, from their owners."""
        asked, counts = exchanged_rows(numbers, self._sent(numbers))
        found, _ = exchanged_rows(self.local.rows(asked - self.own.start).detach(), counts)
        return found.requires_grad_()

    def gathered(self, numbers: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Those of our rows that any process has a gradient for, and its sum over processes, in their order."""
        sent = self._sent(numbers)
        asked, _ = exchanged_rows(numbers, sent)
        gradients, _ = exchanged_rows(gradient, sent)
        distinct, positions = torch.unique(asked, return_inverse=True)
        return distinct, gradients.new_zeros(len(distinct), self.dimension).index_add_(0, positions, gradients)

    def update(self, numbers: Tensor, gradient: Tensor, rate: float) -> None:
        """Move some distinct rows of our own against their gradient."""
        self.local.update(numbers - self.own.start, gradient, rate)

    def averaged(self) -> Tensor:
        """The averaged weights of all rows, as a map of a file that all processes write together.

        Whoever ranks with them reads rows here and there; no process has all of them in memory.
        """
        folder = Path(told(_new_folder))
        path = folder / "rows.safetensors"
        if not folder.is_dir():
            raise HireError(
                "is not to be seen by all processes",
                file=folder,
                remedy="set HIRE_CACHE to a folder that all machines share: tables that are sharded are ranked from it",
            )
        try:
            save_tensors(path, {"rows": self.local.averaged()}, parts={"rows": Part(self.own.start, self.count)})
            found = map_tensors_and_metadata(path)[0]["rows"]
            barrier()  # who has opened the file keeps it
        finally:
            if share().first:
                path.unlink(missing_ok=True)
                folder.rmdir()
        return found

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, of our rows."""
        return self.local.state()

    @property
    def parts(self) -> Parts:
        """Which rows the state has."""
        return dict.fromkeys(self.local.row_parts, Part(self.own.start, self.count))

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state of all rows."""
        self.local.load({name: part[self.own] if name in self.parts else part for name, part in state.items()})


def _new_folder() -> str:
    folder = cache_directory()
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return mkdtemp(prefix=".rows-", dir=folder)
