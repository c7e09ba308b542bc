"""Files that are either whole or not there: atomic writing, safe reading, checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError

BLOCK_BYTES = 16 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new directory beside `target` that becomes `target` when the block ends, and vanishes if it fails.

    An existing directory is replaced only if it may be overwritten, and is empty or has a file of one of the names
    `ours`: whatever else a directory holds is not ours to delete.
    """
    check_replaceable(target, overwrite, ours)
    # Named before it is made, so that no interruption can come between making it and knowing what to remove.
    parent = target.parent / f".{target.name[:100]}.partial-{secrets.token_hex(4)}"
    try:
        with explain_os_errors(target):
            partial = parent / target.name
            partial.mkdir(parents=True)
            yield partial
            for path in partial.rglob("*"):
                if path.is_file():
                    _flush_to_disk(path)
            check_replaceable(target, overwrite, ours)  # again: another process may have been faster
            _replace_directory(partial, target, parent / "old")
    finally:
        if target.exists() or not (parent / "old").exists():  # the old directory's last place is never deleted
            shutil.rmtree(parent, ignore_errors=True)


def check_replaceable(target: Path, overwrite: bool, ours: Collection[str]) -> None:
    """Raise unless a directory can be made at `target`, in place of one of ours if it may be overwritten."""
    if not target.exists() and not target.is_symlink():
        return
    if not overwrite:
        raise HireError("exists already", file=target, remedy="choose another place, or say --overwrite")
    if not target.is_dir() or target.is_symlink():
        raise HireError("is not a directory", file=target, remedy="choose another place")
    names = {path.name for path in target.iterdir()}
    if names and not names & set(ours):
        raise HireError(
            "holds something else than a dataset, which --overwrite would delete",
            file=target,
            remedy="choose another place, or empty it yourself",
        )


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _replace_directory(new: Path, target: Path, aside: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    target.rename(aside)
    try:
        new.rename(target)
    except BaseException:  # an interruption must not cost the old directory either
        if not target.exists():
            aside.rename(target)
        raise


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write to; it becomes `target` when the block ends, and vanishes if it fails."""
    if target.exists() and not target.is_file():
        raise HireError("is not a file that can be replaced", file=target, remedy="choose another name")
    target = target.resolve()  # what a link points to is replaced, not the link
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        with explain_os_errors(target):
            yield partial
            _flush_to_disk(partial)
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def explain_os_errors(path: Path | str) -> Iterator[None]:
    """Turn what the operating system refuses into an error that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space, or choose another disk",
            errno.EDQUOT: "free some space, or choose another disk",
            errno.EFBIG: "raise the limit on file sizes (ulimit -f), or choose another disk",
            errno.ENOENT: "check the spelling and the working directory",
            errno.EACCES: "check the permissions",
            errno.EEXIST: "a file stands where a directory is needed: choose another place",
            errno.ENOTDIR: "a file stands where a directory is needed: choose another place",
            errno.EBUSY: "choose a place that is not in use, such as a folder within it",
            errno.EROFS: "choose a place that can be written to",
        }
        reason = (error.strerror or str(error)).lower()
        raise HireError(reason, file=path, remedy=remedies.get(error.errno or 0)) from error


def printable(name: str) -> str:
    """A file's name that can be written as UTF-8, whatever bytes the file system has for it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def compression_of(path: Path) -> str | None:
    """The compression that a file's name ends with, or None."""
    return COMPRESSIONS.get(path.suffix.lower())


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a plain, .gz or .zst file as a stream of its uncompressed bytes (a file-like object)."""
    import pyarrow as pa

    if path.is_dir():
        raise HireError("is a directory, not a file", file=path, remedy="name a file in it")
    with explain_os_errors(path), path.open("rb") as raw:
        compression = compression_of(path)
        yield (raw if compression is None else pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression))


def read_blocks(path: Path, on_read: Callable[[float], None] = lambda _done: None) -> Iterator[bytes]:
    """The uncompressed bytes of a file, block by block; a truncated or corrupt archive is told as such."""
    with open_bytes(path) as stream:
        compressed = compression_of(path) is not None
        while True:
            try:
                block = cast(bytes, stream.read(BLOCK_BYTES))
            except (OSError, EOFError) as error:
                if not compressed or getattr(error, "errno", None):
                    raise
                raise HireError(
                    f"the compressed file is truncated or corrupt ({error})",
                    file=path,
                    remedy="fetch or compress it again",
                ) from error
            if not block:
                return
            on_read(len(block))
            yield block


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file as hexadecimal digits."""
    with explain_os_errors(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array so that `open_array` can map it."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as stream:  # neither mapped nor by numpy's own writer: a full disk must be told as such
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.reshape(-1).view(np.uint8).data)


def open_array(path: Path) -> NDArray[Any]:
    """Map an array that `save_array` wrote, read-only."""
    with explain_os_errors(path):
        try:
            return cast(NDArray[Any], np.load(path, mmap_mode="r", allow_pickle=False))
        except (ValueError, EOFError) as error:
            raise HireError(
                f"is not a readable array ({error})", file=path, remedy="build the dataset again"
            ) from error


def cache_directory() -> Path:
    """Where ready forms of published datasets are kept: $HIRE_CACHE, or `hire` in the user's cache."""
    chosen = os.environ.get("HIRE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hire"
