"""Full disks, folders that cannot be written, tight memory, clocks that jump, and an end in the midst of work."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from hire.errors import HireError
from hire.service.middleware import BusyError, Limits, Workers
from hire.service.store import Store
from hire.training.pipeline import train_run
from hire.util.files import atomic_file
from hire.util.tensors import load_tensors, write_json
from tests.faults.client import Client
from tests.faults.support import TORTURE, torture
from tests.support import serving, small_settings

PAIRS = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]
MIB = 1 << 20


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file.json"
    write_json(target, {"a": 1})

    def full(*_arguments: Any, **_options: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(HireError, match="no space left") as caught:
        write_json(target, {"a": 2})
    assert caught.value.problems[0].remedy == "free some space, or choose another disk"
    assert target.read_bytes() == b'{\n "a": 1\n}\n' and list(tmp_path.iterdir()) == [target]


def test_output_that_cannot_be_written_is_told(run: Callable[..., Result]) -> None:
    command = [sys.executable, "-m", "hire", "systems", "popularity", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "no space left" in done.stderr and "Traceback" not in done.stderr


def test_folders_that_cannot_be_written_are_told(run: Callable[..., Result], graph_file: Path) -> None:
    for place in ("/proc/hire", "/sys/hire"):
        found = run("data", "build", graph_file, "-o", place, "--more-than", "5", "--fewer-than", "1000")
        assert found.exit_code == 2 and "Traceback" not in found.output and place in found.output
    with pytest.raises(HireError), atomic_file(Path("/proc/hire.json")) as partial:
        partial.write_text("x")
    with pytest.raises(HireError):
        Store(Path("/proc/relations.sqlite"))


@pytest.mark.parametrize("mebibytes", range(1_500, 2_101, 100) if TORTURE else [1_000, 1_600])
@pytest.mark.parametrize("system", ["hire", "path", "cian"] if TORTURE else ["hire"])
def test_a_training_in_tight_memory_ends_well_or_is_refused(mebibytes: int, system: str, tmp_path: Path) -> None:
    options = "--steps 2 --no-calibrate --set embedding.steps=5" if system != "path" else "--steps 2 --no-calibrate"
    command = f"ulimit -v {mebibytes * 1024}; exec {sys.executable} -m hire train umls-one -o {tmp_path / 'run'}"
    done = subprocess.run(
        ["sh", "-c", f"{command} --system {system} {options}"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr[-500:]
    assert done.returncode == 0 or "memory" in done.stderr


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, day = small_settings("hire"), 86_400.0
    train_run("umls-one", tmp_path / "steady", settings, max_minutes=5)
    jumps = cycle((day, -day, 10 * day, 0.0))
    monkeypatch.setattr(time, "time", lambda: 1e9 + next(jumps))
    assert train_run("umls-one", tmp_path / "jumping", settings, max_minutes=5)["finished"]
    steady, jumping = (load_tensors(tmp_path / name / "model.safetensors") for name in ("steady", "jumping"))
    assert steady.keys() == jumping.keys() and all(steady[name].equal(jumping[name]) for name in steady)


def test_sigterm_in_the_midst_of_requests_loses_nothing(tmp_path: Path) -> None:
    state, known = tmp_path / "relations.sqlite", []
    with serving("umls-one", "--state", str(state)) as (process, address):
        client, stop = Client(address), threading.Event()

        def teach(number: int) -> None:
            while not stop.is_set():
                try:
                    known.append(client.teach(f"relation {number}", PAIRS))
                except OSError:  # the service has ended
                    return

        threads = [threading.Thread(target=teach, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while len(known) < 8:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        stop.set()
        for thread in threads:
            thread.join()
    assert process.returncode == 0 and "Traceback" not in output and known
    with closing(sqlite3.connect(state)) as connection:
        stored = {row[0] for row in connection.execute("SELECT id FROM relations")}
    assert set(known) <= stored


def test_more_calls_than_the_queue_holds_are_refused_at_once() -> None:
    import asyncio

    workers, go = Workers(Limits(threads=1, waiting=1)), threading.Event()

    async def ask() -> list[Any]:
        asked = [asyncio.ensure_future(workers.run(go.wait, 10)) for _ in range(5)]
        await asyncio.sleep(0.1)
        go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(ask())
    workers.close()
    assert sum(isinstance(each, BusyError) for each in found) == 3 and found.count(True) == 2


@torture
def test_a_soak_of_the_service(tmp_path: Path, tell: Callable[..., None]) -> None:
    from tests.faults.soak import GROWTH, growth, soak

    found = soak("umls-one", 8, 1.0)
    assert not found["wrong"] and found["relations_left"] == 0 and found["rounds"] > 8, found
    assert growth(found) <= GROWTH, found
    grown = 100 * growth(found)
    tell("soak", "umls-one, 8 clients, 1 minute", requests=found["requests"], wrong=0, growth_in_percent=grown)
