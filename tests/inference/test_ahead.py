"""Loops that a second process compiles while the first one reads the graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hire
from hire.inference import ahead

COMMAND = [sys.executable, "-P", "-c", "from hire.inference import ahead; ahead.compile_answers()"]
# What an answer compiles, beside what it finds compiled.
ANSWER = """
import sys
from numba.core import event
from hire.inference.open import open_model

class Compiled(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
open_model(sys.argv[1], refit=False).teach([("a0", "b0")]).predict("a1")
print(*Compiled.names)
"""


# The same with tiles compiled first: an answer has to find them as it needs them.
TILES = """
from hire.systems.path.tile_kernels import compile_tiles, read_out_tiles, update_tiles

compile_tiles()
import sys
assert "torch" not in sys.modules
from hire.inference.open import open_model

open_model("umls-one", refit=False).teach([("cell", "tissue")]).predict("tissue")
print(len(read_out_tiles.signatures), len(update_tiles.signatures))
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that were started, on a machine with two processors and an empty folder for machine code."""
    commands: list[list[str]] = []

    class Started:
        def __init__(self, command: list[str], **_: object) -> None:
            commands.append(command)

    monkeypatch.setattr(ahead, "_begun", False)
    monkeypatch.setattr(ahead, "_processors", lambda: 2)
    monkeypatch.setattr("hire.inference.ahead.subprocess.Popen", Started)
    monkeypatch.setattr("hire.inference.ahead.atexit.register", lambda *stop: None)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    return commands


def test_it_compiles_the_package_that_was_imported(tmp_path: Path) -> None:
    """Also from sources that are not installed, and whatever is in the folder that it is called from."""
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import hire, numpy; print(hire.__file__)"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ahead._import_path()},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.strip() == hire.__file__


def test_it_starts_once(started: list[list[str]]) -> None:
    ahead.start_compiling()
    ahead.start_compiling()
    assert started == [COMMAND]


def test_the_process_that_compiles_starts_no_other(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.systems.path.tile_kernels.compile_tiles", lambda: None)
    ahead.compile_answers()
    assert not started and (ahead.machine_code_folder() / ahead._mark()).exists()


def test_one_processor_has_no_time_for_it(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_processors", lambda: 1)
    ahead.start_compiling()
    assert not started


def test_what_is_compiled_is_not_compiled_again(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ahead.machine_code_folder()
    folder.mkdir()
    (folder / ahead._mark()).touch()
    ahead.start_compiling()
    assert not started
    monkeypatch.setattr(ahead, "version", lambda package: "another numba")
    ahead.start_compiling()
    assert len(started) == 1


def test_a_folder_that_cannot_be_written_keeps_nothing(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hire.inference.ahead.os.access", lambda path, mode: False)
    ahead.start_compiling()
    assert not started


def test_another_program_that_embeds_python_is_not_started(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hire.inference.ahead.sys.executable", "/usr/bin/uwsgi")
    ahead.start_compiling()
    assert not started


def test_without_processes_the_loops_are_compiled_here(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("hire.inference.ahead.subprocess.Popen", fails)
    ahead.start_compiling()
    assert not ahead._begun


def test_an_answer_compiles_nothing_more(tmp_path: Path) -> None:
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "code"), "HIRE_CACHE": str(tmp_path / "cache")}
    subprocess.run(COMMAND, env=env, check=True, timeout=300)
    assert [path.name for path in (tmp_path / "code").glob(ahead.MARK + "*")] == [ahead._mark()]
    graph = tmp_path / "graph.tsv"
    facts = [(f"a{i % 7}", f"r{i % 3}", f"b{i % 5}") for i in range(60)]
    graph.write_text("".join("\t".join(fact) + "\n" for fact in sorted(set(facts))))
    answered = subprocess.run(
        [sys.executable, "-c", ANSWER, str(graph)], env=env, check=True, capture_output=True, text=True, timeout=300
    )
    assert set(answered.stdout.split()) <= {"fan_outs_back"}  # of reading a graph
    command = [sys.executable, "-c", TILES]
    tiles = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=300)
    assert tiles.stdout.split() == ["1", "1"]
