"""Several processes that work as one, as torchrun starts them: which share is ours, and what the others have.

Without torchrun there is one process, and everything here does nothing. What one process fails with is told by all: the
reason is left where the others find it, and whoever waits for that process then raises it, too.
"""

from __future__ import annotations

import io
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from hire.errors import HireError, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from torch._C._distributed_c10d import Store

TIMEOUT = "HIRE_PROCESS_TIMEOUT"  # the environment variable: seconds
SECONDS = 600.0  # that a process may let the others wait
LONGEST = 7 * 24 * 3600.0
SECONDS_TO_SAY_WHY = 2.0  # for the others to hear of a failure, or to tell of theirs
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
STARTED_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

T = TypeVar("T")
Named = tuple[dict[str, "Tensor"], dict[str, str]]  # tensors, and metadata


@dataclass(frozen=True)
class Share:
    """The part of the work that is done by one of some processes."""

    rank: int = 0
    processes: int = 1

    @property
    def first(self) -> bool:
        """Whether we are the process that writes, and tells what happens."""
        return self.rank == 0

    def of(self, count: int, what: str = "parts") -> slice:
        """Which of so many parts of a batch are ours; every process must have one."""
        if count < self.processes:
            raise HireError(
                f"a batch of {count} {what} cannot be shared by {self.processes} processes",
                remedy="start fewer processes, or set a larger batch (hire systems NAME shows its settings)",
            )
        return self.some(count)

    def some(self, count: int) -> slice:
        """Which of so many parts are ours, perhaps none."""
        return slice(count * self.rank // self.processes, count * (self.rank + 1) // self.processes)


SINGLE = Share()


class _Group:
    """The processes that we belong to, and the store in which each can leave word for the others."""

    def __init__(self, share: Share, store: Store, seconds: float) -> None:
        self.share = share
        self.store = store
        self.seconds = seconds
        self.told = False  # whether the others know how we ended

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.share.processes) if rank != self.share.rank]

    def tell(self, problems: Sequence[Problem] = ()) -> None:
        """Leave word that we end: with problems of our own, or because others have."""
        if not self.told:
            self.told = True
            with suppress(RuntimeError):  # the store may be gone
                self.store.set(f"ended/{self.share.rank}", json.dumps([asdict(problem) for problem in problems]))

    def heard(self, *, everyone: bool) -> dict[int, list[Problem]]:
        """How others have ended: waits a moment until one has told a problem, or until everyone has ended."""
        found: dict[int, list[Problem]] = {}
        until = time.monotonic() + SECONDS_TO_SAY_WHY
        with suppress(RuntimeError):
            while time.monotonic() < until:
                for rank in self.others:
                    if rank not in found and self.store.check([f"ended/{rank}"]):
                        content = json.loads(self.store.get(f"ended/{rank}"))
                        found[rank] = [Problem(**problem) for problem in content]
                if len(found) == len(self.others) or (not everyone and any(found.values())):
                    break
                time.sleep(0.02)
        return found

    def why(self, error: BaseException | None = None) -> HireError:
        """Why we cannot go on: what another process has failed with, or that it is silent."""
        late = error is not None and "imed out" in str(error)
        if late:
            self.tell()  # so that everyone who is alive is known
        found = self.heard(everyone=late)
        for rank, problems in sorted(found.items()):
            if problems:
                of = f"process {rank} of {self.share.processes}"
                told = [Problem(f"{of} failed: {problem}", remedy=problem.remedy) for problem in problems]
                return HireError.of(told)
        silent = [rank for rank in self.others if rank not in found] or self.others
        who = f"process {', '.join(map(str, silent))} of {self.share.processes}"
        if late:
            return HireError(
                f"{who} did not answer within {self.seconds:g} s",
                remedy=f"look at what it does, or set {TIMEOUT} to more seconds; hire train continues with --resume",
            )
        return HireError(f"{who} has ended", remedy="see its own messages; hire train continues with --resume")


_group: _Group | None = None
_times_joined = 0


def share() -> Share:
    """Our share of the work; all of it in a single process."""
    return SINGLE if _group is None else _group.share


def started_together() -> int:
    """How many processes torchrun has started, 1 without it."""
    if not all(name in os.environ for name in STARTED_BY_TORCHRUN):
        return 1
    return int(os.environ["WORLD_SIZE"])


def was_restarted() -> bool:
    """Whether torchrun has started these processes again, after one of them had ended."""
    return started_together() > 1 and os.environ.get(RESTARTS, "0") != "0"


def launch() -> str:
    """Which start of torchrun this is: the same when it has started its processes again."""
    return f"{socket.gethostname()} {os.getppid()} {os.environ.get('TORCHELASTIC_RUN_ID', '')}"


def local_rank() -> int:
    """Our number on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if started_together() > 1 else 0


@contextmanager
def joined() -> Iterator[Share]:
    """Work together with the other processes that torchrun has started, if there are any, for the block.

    It ends on all of them, or fails on all of them.
    """
    global _group
    if _group is not None or started_together() == 1:
        yield share()
        return
    import torch.distributed as dist

    group = _group = _join()
    try:
        yield group.share
        barrier()  # no one leaves as long as another may fail
    except HireError as error:
        group.tell(error.problems)
        raise
    except KeyboardInterrupt:
        failed = [] if group.told else [problems for problems in group.heard(everyone=False).values() if problems]
        group.tell([Problem("interrupted")])
        if failed:  # torchrun ends the others as soon as one has failed
            raise group.why() from None
        raise
    except BaseException as error:
        group.tell([Problem(str(error) or type(error).__name__)])
        raise
    finally:
        _group = None
        with suppress(RuntimeError):
            dist.destroy_process_group()
        if group.told:
            group.heard(everyone=True)  # the store may be ours, and torchrun would interrupt them


def _join() -> _Group:
    global _times_joined
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    _times_joined += 1
    seconds, expected = _seconds(), started_together()
    timeout = timedelta(seconds=seconds)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, processes = next(rendezvous("env://", timeout=timeout))
        # What was left there before counts no more, by processes that torchrun has started again or by ourselves.
        store = PrefixStore(f"hire/{os.environ.get(RESTARTS, '0')}/{_times_joined}", store)
        store.set_timeout(timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=processes, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise HireError(
            f"not all {expected} processes had started within {seconds:g} s ({str(error).splitlines()[0][:200]})",
            remedy=f"start all of them, each with another RANK, or set {TIMEOUT} to more seconds",
        ) from error
    return _Group(Share(rank, processes), store, seconds)


def _seconds() -> float:
    given = os.environ.get(TIMEOUT)
    try:
        seconds = SECONDS if given is None else float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST:
        raise HireError(f"{TIMEOUT} is {given!r}", remedy=f"set it to seconds, at most {LONGEST:,.0f}, or not at all")
    return seconds


@contextmanager
def alone() -> Iterator[None]:
    """Work for the block as if there were no other process."""
    global _group
    group, _group = _group, None
    try:
        yield
    finally:
        _group = group


@contextmanager
def _together() -> Iterator[None]:
    """What all processes do at once; a failure of any is told."""
    try:
        yield
    except RuntimeError as error:
        if _group is None:
            raise
        raise _group.why(error) from error


def barrier() -> None:
    """Wait for the others."""
    any_of()


def any_of(*flags: bool) -> list[bool]:
    """Each flag, whether any process has set it."""
    import torch

    if _group is None:
        return list(flags)
    own = torch.tensor(flags or [False], dtype=torch.uint8)
    return [bool(flag) for flag in gathered(own).any(dim=0)]


def gathered(tensor: Tensor) -> Tensor:
    """A tensor of the same shape from every process, [processes, ...]."""
    import torch.distributed as dist

    if _group is None:
        return tensor[None]
    found = tensor.new_empty(_group.share.processes, *tensor.shape)
    with _together():
        dist.all_gather(list(found.unbind()), tensor.contiguous())
    return found


def gathered_rows(rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Tensors that differ in the number of rows, which everyone knows, from every process."""
    if not max(counts):
        return [rows for _ in counts]
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    return [part[:count] for part, count in zip(gathered(padded), counts, strict=True)]


def exchanged_rows(rows: Tensor, sent: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Rows for each process, so many for each in turn: those that the others have for us, and how many each sent."""
    import torch
    import torch.distributed as dist

    if _group is None:
        return rows, list(sent)
    counts = torch.empty(len(sent), dtype=torch.int64)
    with _together():
        dist.all_to_all_single(counts, torch.tensor(sent))
        received: list[int] = counts.tolist()
        found = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(found, rows.contiguous(), received, list(sent))
    return found, received


def summed(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in place."""
    import torch.distributed as dist

    if _group is not None:
        with _together():
            dist.all_reduce(tensor)
    return tensor


def from_first(tensor: Tensor) -> Tensor:
    """A tensor of the first process, in place of those of the others."""
    import torch.distributed as dist

    if _group is not None:
        with _together():
            dist.broadcast(tensor, 0)
    return tensor


def _bytes_of_all(content: bytes) -> list[bytes]:
    import torch

    own = torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[: len(content)]
    counts = gathered(torch.tensor(len(content))).tolist()
    return [part.numpy().tobytes() for part in gathered_rows(own, counts)]


def in_turn(make: Callable[[], T]) -> T:
    """What every process makes: the first one of each machine before the others, who find what it left in the cache."""
    made = make() if local_rank() == 0 else None
    barrier()
    return make() if made is None else made


def told(make: Callable[[], T]) -> T:
    """Plain data that the first process makes, as all have it from JSON; the others wait for it."""
    if _group is None:
        return make()
    content = json.dumps(make()).encode() if _group.share.first else b""
    found: T = json.loads(_bytes_of_all(content)[0])
    return found


def told_tensors(make: Callable[[], Named]) -> Named:
    """Named tensors and metadata that the first process makes or reads."""
    import torch

    if _group is None:
        return make()
    own, about = make() if _group.share.first else ({}, {})
    shapes: dict[str, Any] = {
        name: (str(tensor.dtype).removeprefix("torch."), tensor.shape) for name, tensor in own.items()
    }
    told_shapes, told_about = told(lambda: (shapes, about))
    found = {}
    for name, (kind, shape) in told_shapes.items():
        tensor = own[name].contiguous() if name in own else torch.empty(shape, dtype=getattr(torch, kind))
        if tensor.numel():
            from_first(tensor.view(-1).view(torch.uint8))
        found[name] = tensor
    return found, told_about


def check_equal(content: dict[str, Any]) -> None:
    """Raise on all processes unless all have the same, naming what differs."""
    if _group is None:
        return
    everyone = [json.loads(part) for part in _bytes_of_all(json.dumps(content).encode())]
    for rank, other in enumerate(everyone):
        differing = [name for name in everyone[0] if other.get(name) != everyone[0][name]]
        if differing:
            here = "; ".join(f"{name} is {other.get(name)!r}, not {everyone[0][name]!r}" for name in differing)
            raise HireError(
                f"process {rank} of {len(everyone)} differs from process 0: {here}",
                remedy="give all processes the same program, dataset and options",
            )


def spread(do: Callable[[int], list[NDArray[Any]]], costs: Sequence[float]) -> list[list[NDArray[Any]]]:
    """The results of all parts of some work, each done by one of the processes; costs keep them evenly busy."""
    import numpy as np

    if _group is None:
        return [do(part) for part in range(len(costs))]
    owner = _owners(costs, _group.share.processes)
    own = {
        f"{part}/{position}": array
        for part in range(len(costs))
        if owner[part] == _group.share.rank
        for position, array in enumerate(do(part))
    }
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **own)
    results: list[list[NDArray[Any]]] = [[] for _ in costs]
    for content in _bytes_of_all(packed.getvalue()):
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for name in arrays.files:  # in the order in which they were packed
                results[int(name.partition("/")[0])].append(arrays[name])
    return results


def _owners(costs: Sequence[float], processes: int) -> list[int]:
    """Which process does each part: the costliest first, each to whoever has the least to do."""
    busy, owners = [0.0] * processes, [0] * len(costs)
    for part in sorted(range(len(costs)), key=lambda part: -costs[part]):
        owners[part] = busy.index(min(busy))
        busy[owners[part]] += costs[part]
    return owners
