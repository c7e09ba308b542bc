"""The output of a long prediction: complete or resumable, never a mixture, and written into what is not a file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from hire.errors import HireError
from hire.util.checksums import checksum_of, damaged, file_checksum, read_record, write_record
from hire.util.files import cache_directory, explain_os_errors, flush_to_disk

SECONDS_BETWEEN_RECORDS = 2.0
START_OVER = "delete it to start over"


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a FIFO or the like, which can be written or read once, but not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


class StreamOutput:
    """An output that is written into a device, a FIFO or the like as it comes."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.heads = self.size = 0

    def __enter__(self) -> None:
        with explain_os_errors(self.target):
            self.stream = self.target.open("wb")

    def __exit__(self, *_exception: object) -> None:
        with explain_os_errors(self.target):
            self.stream.close()

    def write(self, text: str, head: str | None = None) -> None:
        """Append the lines of a head, or a header."""
        content = text.encode("utf-8", "backslashreplace")
        with explain_os_errors(self.target):
            self.stream.write(content)
        self.size += len(content)
        self.heads += head is not None

    def skip(self, heads: Iterable[tuple[int, str]]) -> None:
        """Nothing was written before."""

    def finish(self) -> None:
        """Nothing is left to do."""


class Output:
    """An incomplete output beside its target, and a record of its progress.

    `about` is everything that the answers depend on. It must be the same when the output is resumed, or called
    complete (`complete_for`); for the latter the cache keeps a record of each output that was finished.
    """

    def __init__(self, target: Path, about: dict[str, Any], resume: bool) -> None:
        self.target = target
        self.partial = target.with_name(f"{target.name}.partial")
        self.progress = target.with_name(f"{target.name}.progress")
        self.about = about
        self.heads = self.size = 0
        self.of_heads, self.of_bytes = xxhash.xxh3_128(), xxhash.xxh3_128()  # of what is finished
        self.expected: str | None = None
        self.recorded = time.monotonic()
        if self.interrupted(target):
            if not resume:
                raise HireError(
                    "was interrupted",
                    file=target,
                    remedy="run again with --resume to continue, "
                    f"or delete {self.progress.name} and {self.partial.name} to start over",
                )
            self._read()

    def _read(self) -> None:
        record = read_record(self.progress, START_OVER)
        _check_same(self.target, record["about"], self.about, "use the same settings, or choose another -o")
        self.heads, self.size, self.expected = record["heads"], record["bytes"], record["of_heads"]
        with explain_os_errors(self.partial):
            if self.partial.stat().st_size < self.size:
                raise HireError("is shorter than it was", file=self.partial, remedy=START_OVER)
            with self.partial.open("rb") as stream:
                while block := stream.read(min(1 << 20, self.size - stream.tell())):
                    self.of_bytes.update(block)
        if self.of_bytes.hexdigest() != record["of_bytes"]:
            raise damaged(self.partial, START_OVER)

    @staticmethod
    def interrupted(target: Path) -> bool:
        """Whether an output is incomplete."""
        return all(target.with_name(target.name + suffix).exists() for suffix in (".partial", ".progress"))

    def skip(self, heads: Iterable[tuple[int, str]]) -> None:
        """Skip the finished heads; an error if they have changed."""
        for _, name in islice(heads, self.heads):
            self.of_heads.update(_line(name))
        if self.expected is not None and self.of_heads.hexdigest() != self.expected:
            raise HireError(
                f"the first {self.heads:,} heads have changed",
                file=self.target,
                remedy="use the same heads, or choose another -o",
            )

    def __enter__(self) -> None:
        with explain_os_errors(self.partial):
            self.stream = self.partial.open("r+b" if self.size else "wb")
            self.stream.truncate(self.size)
            self.stream.seek(self.size)
        self._record()

    def __exit__(self, *_exception: object) -> None:
        try:
            self._record()
        finally:
            self.stream.close()

    def write(self, text: str, head: str | None = None) -> None:
        """Append the lines of a head, or a header."""
        content = text.encode("utf-8", "backslashreplace")
        with explain_os_errors(self.partial):
            self.stream.write(content)
        self.size += len(content)
        self.of_bytes.update(content)
        if head is not None:
            self.of_heads.update(_line(head))
            self.heads += 1
        if time.monotonic() - self.recorded > SECONDS_BETWEEN_RECORDS:
            self._record()

    def _record(self) -> None:
        """Record the progress, once the output is on disk."""
        with explain_os_errors(self.partial):
            self.stream.flush()
            os.fsync(self.stream.fileno())
        write_record(self.progress, self._state())
        self.recorded = time.monotonic()

    def _state(self) -> dict[str, Any]:
        digests = {"of_heads": self.of_heads.hexdigest(), "of_bytes": self.of_bytes.hexdigest()}
        return {"heads": self.heads, "bytes": self.size, **digests, "about": self.about}

    def finish(self) -> None:
        """Turn the complete output into the target."""
        with explain_os_errors(self.target):
            self.partial.replace(self.target)
            flush_to_disk(self.target.parent)
        with suppress(HireError, OSError):  # without it, --resume writes the output again
            cache_directory().mkdir(parents=True, exist_ok=True)
            write_record(_finished(self.target), self._state())
        with explain_os_errors(self.target):
            self.progress.unlink()


def complete_for(target: Path, about: dict[str, Any], heads: Iterable[tuple[int, str]]) -> bool:
    """Whether a target is complete; an error if it is so for other heads or settings.

    False as well if that cannot be told, for want of a record of how the target became what it is.
    """
    if not target.is_file() or Output.interrupted(target.resolve()):
        return False
    try:
        record = read_record(_finished(target), START_OVER)
    except HireError:
        return False
    if file_checksum(target) != record["of_bytes"]:
        return False
    remedy = "run without --resume to write it again, or choose another -o"
    _check_same(target, record["about"], about, remedy)
    if checksum_of(_line(name) for _, name in heads) != record["of_heads"]:
        raise HireError("was written for other heads", file=target, remedy=remedy)
    return True


def _check_same(target: Path, before: dict[str, Any], now: dict[str, Any], remedy: str) -> None:
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if changed:
        raise HireError(f"was written with different settings: {', '.join(changed)}", file=target, remedy=remedy)


def _finished(target: Path) -> Path:
    """Where the record of a finished output is kept."""
    return cache_directory() / f"output-{checksum_of([os.fsencode(target.resolve())])[:16]}.json"


def _line(head: str) -> bytes:
    return head.encode("utf-8", "surrogatepass") + b"\n"
