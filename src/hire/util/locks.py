"""One writer at a time: a lock file that names its holder, and that the system frees however the holder ends."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from hire.errors import HireError
from hire.util.files import explain_os_errors

NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # some network file systems


class InUseError(HireError):
    """Another process holds the lock."""


@contextmanager
def locked(lock: Path, what: Path) -> Iterator[None]:
    """Hold a lock file for the block; an error that names the holder if another process does.

    The file is there as long as the lock is held. One that a crash has left behind is taken over.
    """
    with _acquired(lock, what) as stream:
        stream.truncate(0)
        stream.write(json.dumps(_ourselves()))
        stream.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _acquired(lock: Path, what: Path) -> IO[str]:
    """The lock file, open and locked."""
    while True:
        with explain_os_errors(lock):
            stream = lock.open("a+", encoding="utf-8")
        if not _try_to_lock(stream):
            holder = _described(stream)
            stream.close()
            raise InUseError(f"is in use by {holder}", file=what, remedy="wait until that ends, or stop it")
        if _is_at(stream, lock):
            return stream
        stream.close()  # its holder removed it before we had it; others would make another


def _try_to_lock(stream: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # where there are no such locks, two processes must have two folders
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in NO_LOCKS_HERE
    return True


def _is_at(stream: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _ourselves() -> dict[str, str | int]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv)[:500],
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _described(stream: IO[str]) -> str:
    """The holder, as the lock file names it."""
    try:
        stream.seek(0)
        holder = json.load(stream)
        return f"process {holder['process']} on {holder['host']} since {holder['since']}: {holder['command']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is about to write its name
        return "another process"
