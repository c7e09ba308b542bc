"""Files that are either whole or not there: atomic writing, safe reading, checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError

BLOCK_BYTES = 16 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new directory beside `target` that becomes `target` when the block ends, and vanishes if it fails."""
    if target.exists() and not overwrite:
        raise HireError("exists already", file=target, remedy="choose another place, or say --overwrite")
    if target.exists() and not target.is_dir():
        raise HireError("is not a directory", file=target, remedy="choose another place")
    with explain_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        partial.chmod(0o755)
    try:
        with explain_os_errors(target):
            yield partial
            _replace_directory(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace_directory(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
    target.rename(old / "old")
    try:
        new.rename(target)
    except OSError:
        (old / "old").rename(target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write to; it becomes `target` when the block ends, and vanishes if it fails."""
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        with explain_os_errors(target):
            yield partial
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


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
            errno.EROFS: "choose a place that can be written to",
        }
        reason = (error.strerror or str(error)).lower()
        raise HireError(reason, file=path, remedy=remedies.get(error.errno or 0)) from error


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
