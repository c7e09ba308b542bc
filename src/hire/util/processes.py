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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from hire.errors import HireError, Problem
from hire.util.group import SINGLE, TIMEOUT, Group, Share, Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

SECONDS = 600.0  # that a process may let the others wait
LONGEST = 7 * 24 * 3600.0
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
INTERRUPTED = Problem("interrupted", remedy="run again with --resume to continue, where the command has it")
STARTED_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

T = TypeVar("T")
Named = tuple[dict[str, "Tensor"], dict[str, str]]  # tensors, and metadata


_group: Group | None = None
_watch: Watch | None = None  # of the others, while each works alone
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
    if _group is not None or _watch is not None or started_together() == 1:
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
        try:
            ends = {} if group.told else group.heard(everyone=False)
        finally:  # torchrun may interrupt us again
            group.tell([INTERRUPTED])
        # Torchrun interrupts the others as soon as one has failed.
        if any(problems not in ([], [INTERRUPTED]) for problems in ends.values()):
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


def _join() -> Group:
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
    return Group(Share(rank, processes), store, seconds)


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
def each_alone() -> Iterator[None]:
    """For the block, every process works as if there were no other; it ends when all of them have come to its end.

    That may take as long as it does: each gives signs of life, in every step of a training and part of `spread`.
    """
    global _group, _watch
    if _group is None:
        yield
        return
    group, watch = _group, Watch(_group)
    barrier()  # all have given their first sign
    _group, _watch = None, watch
    try:
        yield
        watch.wait()
    finally:
        _group, _watch = group, None


def failure_of_others() -> HireError | None:
    """Why we need not go on alone, if that is so; whoever asks keeps what it has done, and raises it.

    To be asked often, since it gives a sign of life; it costs nothing until it is time for the next.
    """
    return None if _watch is None else _watch.failure()


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Do the block, of several processes of a machine that each work alone, when no other does that of this name."""
    with nullcontext() if _watch is None else _watch.turn(f"{socket.gethostname()}/{name}"):
        yield


def _together() -> AbstractContextManager[None]:
    """What all processes do at once; a failure of any is told."""
    return nullcontext() if _group is None else _group.explained()


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


def broadcast(tensor: Tensor, source: int = 0) -> Tensor:
    """A tensor of one process, in place of those of the others."""
    import torch.distributed as dist

    if _group is not None:
        with _together():
            dist.broadcast(tensor, source)
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


def told(make: Callable[[], T], source: int = 0) -> T:
    """Plain data that one process makes, as all have it from JSON; the others wait for it."""
    if _group is None:
        return make()
    content = json.dumps(make()).encode() if _group.share.rank == source else b""
    found: T = json.loads(_bytes_of_all(content)[source])
    return found


def told_by_all(content: T) -> list[T]:
    """Plain data of every process, by rank, as all have it from JSON."""
    if _group is None:
        return [content]
    return [json.loads(part) for part in _bytes_of_all(json.dumps(content).encode())]


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
            broadcast(tensor.view(-1).view(torch.uint8))
        found[name] = tensor
    return found, told_about


def check_equal(content: dict[str, Any]) -> None:
    """Raise on all processes unless all have the same, naming what differs."""
    if _group is None:
        return
    everyone = told_by_all(content)
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
        alone = []
        for part in range(len(costs)):
            if _watch is not None:
                _watch.live()
            alone.append(do(part))
        return alone
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
