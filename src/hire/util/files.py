"""Files that are complete or absent: atomic writing, safe reading, checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError

BLOCK_BYTES = 16 << 20
LARGEST_IN_MEMORY = 8 << 20  # bytes of an array that is not mapped
OLD = ".old"  # a directory that is being replaced, beside the new one
MAX_LINE_BYTES = 16 << 20  # a line is kept in memory until it ends, however well it is compressed
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new directory beside `target` that becomes `target` when the block ends, and is removed if it fails.

    An existing directory is replaced only with `overwrite`, and only if it is empty or has a file with one of the names
    in `ours`: any other directory is not ours to delete.
    """
    restore_directory(target)
    check_replaceable(target, overwrite, ours)
    # Named before it is created, so that an interruption cannot leave it behind unknown.
    parent = partial_beside(target)
    try:
        with explain_os_errors(target):
            partial = parent / target.name
            make_directory(target.parent)
            partial.mkdir(parents=True)
            _remove_leftovers(target.parent)
            yield partial
            for path in [*partial.rglob("*"), partial]:
                flush_to_disk(path)
            check_replaceable(target, overwrite, ours)  # again: another process may have created it
            _replace_directory(partial, target, parent / OLD)
            flush_to_disk(target.parent)
    finally:
        if target.exists() or not (parent / OLD).exists():  # never delete the only copy of the old directory
            shutil.rmtree(parent, ignore_errors=True)


def partial_beside(target: Path) -> Path:
    """A new name beside a target that tells whose it is: this machine's and this process's."""
    name = os.fsdecode(os.fsencode(target.name)[:100])
    return target.with_name(f".{name}.partial-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}")


def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname())[:64]


def _leftovers(directory: Path) -> Iterator[Path]:
    """What processes of this machine that are no more were writing in a directory when they were killed."""
    ours = re.compile(rf"\..+\.partial-{re.escape(_machine())}-(\d+)-[0-9a-f]{{8}}", re.DOTALL)
    for path in directory.iterdir():
        found = ours.fullmatch(path.name)
        if found and not _is_running(int(found[1])):
            yield path


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed processes have left in a directory, but put back what one of them was about to replace."""
    with suppress(OSError):
        for path in _leftovers(directory):
            if (path / OLD).exists():
                for new in path.iterdir():
                    restore_directory(directory / new.name)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def restore_directory(target: Path) -> None:
    """Put a directory back that a killed process had moved aside and not yet replaced, if that is why it is missing."""
    with suppress(OSError):
        if target.exists():
            return
        for path in _leftovers(target.parent):
            if target.name != OLD and (path / target.name).exists() and (path / OLD).exists():
                (path / OLD).rename(target)
                flush_to_disk(target.parent)
                shutil.rmtree(path, ignore_errors=True)
                return


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


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing; all of them are on disk when it returns."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        flush_to_disk(each.parent)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    check_file(target)
    target = behind_links(target)  # replace what a link points to, not the link
    partial = partial_beside(target)
    try:
        with explain_os_errors(target):
            _remove_leftovers(target.parent)
            yield partial
            flush_to_disk(partial)
            partial.replace(target)
            flush_to_disk(target.parent)
    finally:
        with suppress(OSError):
            partial.unlink()


def check_file(target: Path) -> None:
    """Raise unless a file can be there: nothing else is, and the folder exists; before work whose result goes there."""
    with explain_os_errors(target):
        if not behind_links(target).parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if target.exists() and not target.is_file():
        raise HireError("is not a regular file and cannot be replaced", file=target, remedy="choose another name")


def behind_links(path: Path) -> Path:
    """What a path is when all links are followed; an error if they lead in a circle."""
    with explain_os_errors(path):
        try:
            return path.resolve()
        except RuntimeError as error:  # how pathlib tells a circle
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


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
            errno.ELOOP: "the link leads back to itself: choose another path",
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


class ArrayWriter:
    """Writes an array part by part, in memory for one part, so that `open_array` can map it."""

    def __init__(self, path: Path, kind: Any, width: int | None = None) -> None:
        self._stream = path.open("wb")
        self._kind = np.dtype(kind)
        self._shape = () if width is None else (width,)  # of an element
        self._count = 0
        self._start = self._write_header()

    def _write_header(self) -> int:
        about: dict[str, Any] = {
            "descr": np.lib.format.dtype_to_descr(self._kind),
            "fortran_order": False,
            "shape": (self._count, *self._shape),
        }
        np.lib.format.write_array_header_1_0(self._stream, about)  # padded: as long for any number of elements
        return self._stream.tell()

    def append(self, part: NDArray[Any]) -> None:
        """Write more elements."""
        part = np.ascontiguousarray(part, self._kind)
        self._stream.write(part.reshape(-1).view(np.uint8).data)
        self._count += len(part)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._stream.seek(0)
            if self._write_header() != self._start:
                raise AssertionError("the header of an array has changed its length")
        finally:
            self._stream.close()


def open_array(path: Path, *, copied_on_write: bool = False) -> NDArray[Any]:
    """Open an array that `save_array` wrote: a small one in memory, a large one as a map of its file.

    It is read-only, or else what is written to it is written to a copy of the page.
    """
    with explain_os_errors(path):
        map_mode: Literal["r", "c"] = "c" if copied_on_write else "r"
        mode = map_mode if is_mapped(path) else None
        try:
            array = cast(NDArray[Any], np.load(path, mmap_mode=mode, allow_pickle=False))
        except OSError:
            raise
        except Exception as error:  # a header is evaluated, and mangled ones fail in any way
            raise HireError(
                f"is not a readable array ({error})", file=path, remedy="build the dataset again"
            ) from error
    if copied_on_write:
        return np.asarray(array)  # plain: numpy's class for maps is slower
    array.flags.writeable = False
    return array


def is_mapped(path: Path) -> bool:
    """Whether an array is large enough to be mapped, rather than read into memory."""
    return path.stat().st_size > LARGEST_IN_MEMORY


def cache_directory() -> Path:
    """The cache of published datasets in binary form: $HIRE_CACHE, or `hire` in the user's cache."""
    chosen = os.environ.get("HIRE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hire"
