from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.util.locks import InUseError, locked

HOLD = """
import sys, time
from pathlib import Path
from hire.util.locks import locked
with locked(Path(sys.argv[1]), Path("folder")):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_the_first_is_and_a_crash_frees_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    process = holder(lock)
    try:
        with pytest.raises(InUseError, match=rf"folder: is in use by process {process.pid} on .* since .*: -c"):
            locked(lock, tmp_path / "folder").__enter__()
    finally:
        process.kill()
        process.communicate()
    assert lock.exists()  # the crash left it behind
    with locked(lock, tmp_path / "folder"):
        assert f'"process": {os.getpid()}' in lock.read_text()
    assert not lock.exists()


def test_a_failure_frees_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), locked(tmp_path / "lock", tmp_path):
        raise ValueError("no")
    with locked(tmp_path / "lock", tmp_path):
        pass


def test_never_two_at_once(tmp_path: Path) -> None:
    """The lock file is removed by each holder: who waits for a removed one must not believe to have the lock."""
    inside, most, taken = 0, 0, 0
    end = time.monotonic() + 1

    def work() -> None:
        nonlocal inside, most, taken
        while time.monotonic() < end:
            try:
                with locked(tmp_path / "lock", tmp_path):
                    inside += 1
                    most = max(most, inside)
                    taken += 1
                    inside -= 1
            except InUseError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and taken > 4


def test_no_place_for_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="no such file or directory"), locked(tmp_path / "none" / "lock", tmp_path):
        pass
