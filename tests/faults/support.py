"""What the fault tests share: how much to do, damage to files, and processes that are killed at a file operation.

`make test` does a sample of some seconds; `make torture` sets HIRE_TORTURE and does all of it. HIRE_TORTURE_SEED
chooses another sample: every failure can be repeated with the seed and the number in its message.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hire.errors import HireError

TORTURE = bool(os.environ.get("HIRE_TORTURE"))
SEED = int(os.environ.get("HIRE_TORTURE_SEED", "0"))
torture = pytest.mark.skipif(not TORTURE, reason="several processes: `make torture` does it")
SECONDS = (
    600  # that a child may take, if it has to compile first and the machine is busy: only to notice one that hangs
)

Folder = dict[Path, bytes]


def how_many(sample: int, everything: int) -> int:
    """A number of trials: of the sample, or of everything."""
    return everything if TORTURE else sample


def randomness(*purpose: object) -> random.Random:
    """The random choices of a test."""
    return random.Random(repr((SEED, *purpose)))


def contents(*places: Path) -> Folder:
    """All files of some folders, or the files themselves."""
    files = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return {path: path.read_bytes() for path in files if path.is_file()}


def restore(folder: Folder) -> None:
    """Write files as they were, where they are not."""
    for path, content in folder.items():
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@dataclass
class Trials:
    """Damage to the files of an artefact, one at a time, and what became of it."""

    name: str
    use: Callable[[], Any]  # opens the artefact and answers with it
    files: Folder
    is_cache: bool = False  # then no error is allowed either: it is made anew
    counts: Counter[str] = field(default_factory=Counter)

    def flips(self, count: int) -> None:
        """Flip single bits."""
        self._damage("flips", count, _flipped)

    def truncations(self, count: int) -> None:
        """Cut files short."""
        self._damage("truncations", count, _truncated)

    def _damage(self, kind: str, count: int, damage: Callable[[bytes, random.Random], bytes]) -> None:
        expected = self.use()
        generator = randomness(self.name, kind)
        paths = [path for path, content in self.files.items() if content]
        for number in range(count):
            path = generator.choice(paths)
            path.write_bytes(damage(self.files[path], generator))
            where = f"{kind} {number} of {self.name} with seed {SEED}, in {path}"
            try:
                found = self.use()
            except HireError as error:
                assert not self.is_cache, f"{where}: a cache was not made anew: {error}"
                assert error.problems[0].remedy and error.problems[0].file, f"{where}: no file or remedy: {error}"
                self.counts["told"] += 1
            except Exception as error:
                raise AssertionError(f"{where}: not told, but {error!r}") from error
            else:
                assert found == expected, f"{where}: believed"
                self.counts["right_all_the_same"] += 1
            self.counts[kind] += 1
            restore(self.files)


def _flipped(content: bytes, generator: random.Random) -> bytes:
    position = generator.randrange(8 * len(content))
    flipped = bytearray(content)
    flipped[position // 8] ^= 1 << position % 8
    return bytes(flipped)


def _truncated(content: bytes, generator: random.Random) -> bytes:
    """Cut anywhere, to nothing, to a part of a header, or by one byte."""
    size = len(content)
    return content[: generator.choice([0, generator.randrange(size), generator.randrange(min(size, 600)), size - 1])]


WRITING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree", "fcntl.flock")


def killed_at(operation: int, work: Callable[[], object]) -> bool:
    """Do some work in a child that is killed with -9 at its so manieth file operation; whether it came so far."""
    child = os.fork()
    if not child:
        _be_killed_at(operation, work)
    signal.alarm(SECONDS)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        signal.alarm(0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the child failed at operation {operation}"
    return os.WIFSIGNALED(status)


def killed_after(seconds: float | None, work: Callable[[], object], log: Path) -> bool:
    """Do some work in a child that is killed with -9 after a time, its output in a log; whether it came through."""
    child = os.fork()
    if not child:
        _write_to(log, work)
    end = time.monotonic() + (SECONDS if seconds is None else seconds)
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert seconds is not None, f"the child took more than {SECONDS} seconds"
            return False
        time.sleep(0.001)
    assert os.waitstatus_to_exitcode(found[1]) == 0, log.read_text()
    return True


def _write_to(log: Path, work: Callable[[], object]) -> None:
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _be_killed_at(operation: int, work: Callable[[], object]) -> None:
    left = operation

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        opened_to_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if opened_to_write or event in WRITING:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        work()
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)
