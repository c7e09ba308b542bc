"""A group of processes as one of them sees the others: the word that each leaves in the store, and signs of life."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hire.errors import HireError, Problem
from hire.progress import say

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

TIMEOUT = "HIRE_PROCESS_TIMEOUT"  # the environment variable: seconds
SECONDS_TO_SAY_WHY = 2.0  # for the others to hear of a failure, or to tell of theirs
SECONDS_BETWEEN_SIGNS = 1.0  # of life, or a tenth of the timeout
SECONDS_BETWEEN_LOOKS = 0.1  # of a process that waits


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


class Group:
    """The processes that we belong to, and the store in which each can leave word for the others."""

    def __init__(self, share: Share, store: Store, seconds: float) -> None:
        self.share = share
        self.store = store
        self.seconds = seconds
        self.told = False  # whether the others know how we ended
        self.times_alone = 0

    @property
    def others(self) -> list[int]:
        """The ranks of the other processes."""
        return [rank for rank in range(self.share.processes) if rank != self.share.rank]

    def tell(self, problems: Sequence[Problem] = ()) -> None:
        """Leave word that we end: with problems of our own, or because others have."""
        if not self.told:
            self.told = True
            with suppress(RuntimeError):  # the store may be gone
                self.store.set(f"ended/{self.share.rank}", json.dumps([asdict(problem) for problem in problems]))

    def has_ended(self, rank: int) -> bool:
        """Whether a process has left word that it ends."""
        return self.store.check([f"ended/{rank}"])

    def heard(self, *, everyone: bool) -> dict[int, list[Problem]]:
        """How others have ended: waits a moment until one has told a problem, or until everyone has ended."""
        found: dict[int, list[Problem]] = {}
        until = time.monotonic() + SECONDS_TO_SAY_WHY
        with suppress(RuntimeError):
            while time.monotonic() < until:
                for rank in self.others:
                    if rank not in found and self.has_ended(rank):
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
                told = [Problem(f"{self.named(rank)} failed: {problem}", remedy=problem.remedy) for problem in problems]
                return HireError.of(told)
        silent = [rank for rank in self.others if rank not in found] or self.others
        if late:
            return self.silent(silent)
        return HireError(
            f"{self.named(*silent)} has ended", remedy="see its own messages; hire train continues with --resume"
        )

    def silent(self, ranks: Sequence[int]) -> HireError:
        """The error of processes that are no longer heard of."""
        return HireError(
            f"{self.named(*ranks)} did not answer within {self.seconds:g} s",
            remedy=f"look at what it does, or set {TIMEOUT} to more seconds; hire train continues with --resume",
        )

    def named(self, *ranks: int) -> str:
        """Some processes, for people."""
        return f"process {', '.join(map(str, ranks))} of {self.share.processes}"

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What needs the other processes; a failure of any is told."""
        try:
            yield
        except RuntimeError as error:
            raise self.why(error) from error


class Watch:
    """What processes know of one another while each works alone.

    Each gives signs of life, and misses whoever has given none for as long as a process may let the others wait. The
    thread that works gives them, and no other: one that does not get on is silent.
    """

    def __init__(self, group: Group) -> None:
        group.times_alone += 1
        self.group = group
        self.place = f"alone/{group.times_alone}"
        self.pause = min(SECONDS_BETWEEN_SIGNS, group.seconds / 10)
        self.given, self.looked = -math.inf, time.monotonic()
        self.heard_of = dict.fromkeys(group.others, (b"", self.looked))  # the last sign, and when we saw it
        self.live()

    def live(self) -> None:
        """Give a sign of life, unless there was one a moment ago."""
        now = time.monotonic()
        if now - self.given >= self.pause:
            self.given = now
            with suppress(RuntimeError):  # if the store is gone, `failure` will tell
                self.group.store.set(f"{self.place}/alive/{self.group.share.rank}", str(now))

    def failure(self) -> HireError | None:
        """Why the others will not get to the end, if that is so; to be asked often, and gives a sign of life."""
        self.live()
        now = time.monotonic()
        if now - self.looked < self.pause:
            return None
        self.looked = now
        try:
            if any(self.group.has_ended(rank) for rank in self.group.others):
                return self.group.why()
            signs = self.group.store.multi_get([f"{self.place}/alive/{rank}" for rank in self.heard_of])
        except RuntimeError as error:
            return self.group.why(error)
        for (rank, (last, _)), sign in zip(list(self.heard_of.items()), signs, strict=True):
            if sign != last:
                self.heard_of[rank] = sign, now
        late = [rank for rank, (_, seen) in self.heard_of.items() if now - seen > self.group.seconds]
        return self.group.silent(late) if late else None

    def wait(self) -> None:
        """Wait until every process has come here."""
        store, said = self.group.store, False
        with self.group.explained():
            store.set(f"{self.place}/done/{self.group.share.rank}", "")
            while working := [rank for rank in self.group.others if not store.check([f"{self.place}/done/{rank}"])]:
                if not said:
                    say(f"Waiting for {self.group.named(*working)}")
                    said = True
                self._wait_a_moment()

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Do the block when no other process does the one of that name."""
        key, own, store = f"{self.place}/turn/{name}", str(self.group.share.rank), self.group.store
        with self.group.explained():
            while store.compare_set(key, "", own) != own.encode():
                self._wait_a_moment()
        try:
            yield
        finally:
            with suppress(RuntimeError):
                store.delete_key(key)

    def _wait_a_moment(self) -> None:
        failure = self.failure()
        if failure is not None:
            raise failure
        time.sleep(SECONDS_BETWEEN_LOOKS)
