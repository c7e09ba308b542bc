"""Files that are complete or absent: atomic writing, safe reading, checksums."""

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
MAX_LINE_BYTES = 16 << 20  # a line is kept in memory until it ends, however well it is compressed
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new directory beside `target` that becomes `target` when the block ends, and is removed if it fails.

    An existing directory is replaced only with `overwrite`, and only if it is empty or has a file with one of the names
    in `ours`: any other directory is not ours to delete.
    """
    check_replaceable(target, overwrite, ours)
    # Named before it is created, so that an interruption cannot leave it behind unknown.
    parent = target.parent / f".{target.name[:100]}.partial-{secrets.token_hex(4)}"
    try:
        with explain_os_errors(target):
            partial = parent / target.name
            partial.mkdir(parents=True)
            yield partial
            for path in partial.rglob("*"):
                if path.is_file():
                    _flush_to_disk(path)
            check_replaceable(target, overwrite, ours)  # again: another process may have created it
            _replace_directory(partial, target, parent / "old")
    finally:
        if target.exists() or not (parent / "old").exists():  # never delete the only copy of the old directory
            shutil.rmtree(parent, ignore_errors=True)


def check_replaceable(target: Path, overwrite: bool, ours: Collection[str]) -> None:
    """Raise unless a directory can be created at `target`, or may replace the one there."""
    if not target.exists() and not target.is_symlink():
        return
    if not overwrite:
        raise HireError("already exists", file=target, remedy="choose another path, or pass --overwrite")
    if not target.is_dir() or target.is_symlink():
        raise HireError("is not a directory", file=target, remedy="choose another path")
    names = {path.name for path in target.iterdir()}
    if names and not names & set(ours):
        raise HireError(
            "is not a dataset, and --overwrite would delete its files",
            file=target,
            remedy="choose another path, or empty the directory yourself",
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
    except BaseException:  # an interruption must not lose the old directory either
        if not target.exists():
            aside.rename(target)
        raise


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write to; it becomes `target` when the block ends, and is removed if it fails."""
    if target.exists() and not target.is_file():
        raise HireError("is not a regular file and cannot be replaced", file=target, remedy="choose another name")
    target = target.resolve()  # replace what a link points to, not the link
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
    """Turn an operating system error into one that names the file and a remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space, or choose another disk",
            errno.EDQUOT: "free some space, or choose another disk",
            errno.EFBIG: "raise the limit on file sizes (ulimit -f), or choose another disk",
            errno.ENOENT: "check the spelling and the working directory",
            errno.EACCES: "check the permissions",
            errno.EEXIST: "a file is in the place of a directory: choose another path",
            errno.ENOTDIR: "a file is in the place of a directory: choose another path",
            errno.EBUSY: "choose a path that is not in use, such as a folder within it",
            errno.EROFS: "choose a writable path",
        }
        reason = (error.strerror or str(error)).lower()
        raise HireError(reason, file=path, remedy=remedies.get(error.errno or 0)) from error


def printable(name: str) -> str:
    """A file name as valid UTF-8, whatever bytes it has in the file system."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def compression_of(path: Path) -> str | None:
    """The compression that a file's suffix stands for, or None."""
    return COMPRESSIONS.get(path.suffix.lower())


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a plain, .gz or .zst file as a stream of its uncompressed bytes (a file-like object)."""
    import pyarrow as pa

    if path.is_dir():
        raise HireError("is a directory, not a file", file=path, remedy="choose a file in it")
    with explain_os_errors(path), path.open("rb") as raw:
        compression = compression_of(path)
        yield (raw if compression is None else pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression))


def read_blocks(path: Path, on_read: Callable[[float], None] = lambda _done: None) -> Iterator[bytes]:
    """The uncompressed bytes of a file, block by block; an error if a compressed file is truncated or corrupt."""
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
                    remedy="download or compress it again",
                ) from error
            if not block:
                return
            on_read(len(block))
            yield block


def check_line_length(path: Path, line: int, length: int) -> None:
    """Raise if a line is longer than any line of names."""
    if length > MAX_LINE_BYTES:
        raise HireError(
            f"the line is longer than {MAX_LINE_BYTES >> 20} MiB",
            file=path,
            line=line,
            remedy="check that it is a text file with one row per line",
        )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file as hexadecimal digits."""
    with explain_os_errors(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array so that `open_array` can map it."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as stream:  # numpy's own writers do not report a full disk as such
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.reshape(-1).view(np.uint8).data)


def open_array(path: Path) -> NDArray[Any]:
    """Map an array that `save_array` wrote, read-only."""
    with explain_os_errors(path):
        try:
            return cast(NDArray[Any], np.load(path, mmap_mode="r", allow_pickle=False))
        except OSError:
            raise
        except Exception as error:  # a header is evaluated, and mangled ones fail in any way
            raise HireError(
                f"is not a readable array ({error})", file=path, remedy="build the dataset again"
            ) from error


def cache_directory() -> Path:
    """The cache of published datasets in binary form: $HIRE_CACHE, or `hire` in the user's cache."""
    chosen = os.environ.get("HIRE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hire"
