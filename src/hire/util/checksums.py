"""Checksums of what is written, verified before it is believed: of files, and of JSON records that carry their own.

XXH3 finds every kind of accidental damage and is as fast as the memory (benchmarks/checksums.py compares it with
others); it is no protection from forgery.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from hire.errors import HireError
from hire.util.files import atomic_file, explain_os_errors

BLOCK_BYTES = 1 << 20
CHECKSUM = "checksum"  # its name in a record


def checksum_of(parts: Iterable[Any]) -> str:
    """The checksum of some bytes, part by part (bytes, or anything contiguous in memory)."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def file_checksum(path: Path, size: int | None = None) -> str:
    """The checksum of a file, or of as many of its first bytes."""
    digest = xxhash.xxh3_128()
    block = memoryview(bytearray(BLOCK_BYTES))
    left = path.stat().st_size if size is None else size
    with explain_os_errors(path), path.open("rb", buffering=0) as stream:
        while left and (count := stream.readinto(block[: min(left, BLOCK_BYTES)])):
            digest.update(block[:count])
            left -= count
    return digest.hexdigest()


def damaged(path: Path, remedy: str) -> HireError:
    """The error of a file whose bytes are not those that were written."""
    return HireError("is damaged: its content does not match its checksum", file=path, remedy=remedy)


def write_record(path: Path, content: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write a JSON object with its own checksum, complete or not at all."""
    plain = json.loads(json.dumps(content))  # what will be read: keys are strings, tuples are lists
    sealed = plain | {CHECKSUM: _checksum_of_data(plain)}
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(sealed, indent=indent, ensure_ascii=False) + "\n", "utf-8")


def read_record(path: Path, remedy: str, *forms: int) -> dict[str, Any]:
    """Read a JSON object that `write_record` wrote; an error if it is not the one that was written.

    If its format has a number, that is its entry `format`, and must be one of these.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise HireError(f"is not readable ({error.strerror})", file=path, remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        raise HireError(f"is damaged: it is not valid JSON ({error})", file=path, remedy=remedy) from error
    if not isinstance(content, dict):
        raise damaged(path, remedy)
    if forms and content.get("format") not in forms:
        raise HireError(
            f"has format {content.get('format')!r}; this version reads format {' or '.join(map(str, forms))}",
            file=path,
            remedy=f"{remedy} with this version, or use the version that wrote it",
        )
    if content.pop(CHECKSUM, None) != _checksum_of_data(content):
        raise damaged(path, remedy)
    return content


def _checksum_of_data(content: Any) -> str:
    try:
        return checksum_of([json.dumps(content, sort_keys=True, separators=(",", ":")).encode()])
    except RecursionError:  # nothing that was written is nested so deeply
        return ""


class ChangedFileError(HireError):
    """A file is no longer what was opened."""


class MappedFiles:
    """Files that stay mapped: while size, time and identity are the same, their bytes are those that were verified."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._states = {path: _state(path) for path in paths}

    def add(self, paths: Iterable[Path]) -> None:
        """Watch more files, as they are now."""
        self._states |= {path: _state(path) for path in paths}

    def check(self) -> None:
        """Raise if a file has changed: reading a map of a file that was cut short would end the process."""
        for path, state in self._states.items():
            if _state(path) != state:
                raise ChangedFileError(
                    "a file of the dataset was changed or removed while it was in use",
                    file=path,
                    remedy="restore it, and start again",
                )


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (half the time of Path.stat, before every answer)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
