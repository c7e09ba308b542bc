"""Members of an ensemble over two processes: each is trained by one alone, and the run is that of one process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from hire.embeddings.trainer import EmbeddingTrainer, TripleBatch
from hire.training.card import CARD
from hire.training.loop import CURVES, METRICS, STATE
from hire.training.members import owners
from hire.training.run import CALIBRATION, CONFIG, MEMBERS, MODEL
from hire.util.group import Share
from hire.util.settings import changed
from tests.faults.support import contents
from tests.support import small_settings
from tests.together import Together, hire

LEVELS: list[str | Path] = ["train", "umls-one", "--preset", "levels", "--steps", "4", "--set", "path.training.steps=2"]
SETTINGS = ("model.dimension=8", "embedding.dimension=8", "embedding.steps=10", "path.training.tasks=1")
LEVELS += [part for setting in SETTINGS for part in ("--set", setting)]
TWINS = """
system = "ensemble"
members.one = {system = "hire", weight = 1.0}
members.two = {system = "hire", weight = 1.0, training = {seed = 1}}
"""


def files(run: Path) -> dict[str, bytes]:
    """What a run has by name, but for what tells one from another."""
    return {str(path.relative_to(run)): content for path, content in contents(run).items() if path.name != CONFIG}


def trained_together(works: list[Callable[[], object]], folder: Path) -> list[str]:
    ended = Together(works, folder).wait()
    assert [process.code for process in ended] == [0] * len(works), ended
    return [process.output for process in ended]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(folder / "cache"))
        child = os.fork()
        if not child:
            hire(*LEVELS, "-o", folder / "run")()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    return folder / "run"


def test_the_run_of_two_processes_is_that_of_one(
    alone: Path, tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))  # embeddings are learned again
    first, second = trained_together([hire(*LEVELS, "-o", tmp_path / "run")] * 2, tmp_path)
    assert first.count("Training hire in process 0, path in process 1\n") == 1 and not second
    assert files(tmp_path / "run") == files(alone)
    expected = {f"{MEMBERS}/{member}/{name}" for member in ("hire", "path") for name in (MODEL, METRICS, CURVES, STATE)}
    assert files(alone).keys() == expected | {MODEL, CALIBRATION, CARD}
    assert json.loads((tmp_path / "run" / CONFIG).read_text())["processes"] == 2
    assert run("evaluate", tmp_path / "run", "--shots", "1").exit_code == 0


def test_files_of_another_machine_come_to_the_first(
    alone: Path, tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hire.training.members.BLOCK_BYTES", 1000)

    def machine(rank: int) -> None:
        os.environ |= {"HIRE_CACHE": str(tmp_path / f"cache-{rank}"), "LOCAL_RANK": "0"}
        hire(*LEVELS, "-o", tmp_path / str(rank) / "run")()

    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    works: list[Callable[[], object]] = [lambda: machine(0), lambda: machine(1)]
    trained_together(works, tmp_path)
    state = f"{MEMBERS}/path/{STATE}"
    assert files(tmp_path / "0" / "run") == {name: content for name, content in files(alone).items() if name != state}
    of_path = {f"{MEMBERS}/path/{name}" for name in (MODEL, METRICS, CURVES, STATE)}
    assert files(tmp_path / "1" / "run").keys() == of_path
    assert run("evaluate", tmp_path / "0" / "run", "--shots", "1").exit_code == 0

    (tmp_path / "0" / "run").rename(tmp_path / "0" / "before")  # the other machine still has its part of it
    ended = Together(works, tmp_path).wait()
    for process in ended:
        assert process.code == 2 and f"{MEMBERS}/path: has the state of an earlier training" in process.output, ended


def test_embeddings_that_two_members_need_are_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twins.toml").write_text(TWINS)
    taken, train_step = tmp_path / "steps", EmbeddingTrainer.train_step

    def counted(self: EmbeddingTrainer, batch: TripleBatch | None = None) -> float:
        with taken.open("a") as file:
            file.write(".")
        return train_step(self, batch)

    monkeypatch.setattr(EmbeddingTrainer, "train_step", counted)
    twins = [*LEVELS[:2], "--config", tmp_path / "twins.toml", "--no-calibrate", "--steps", "2", *LEVELS[8:-2]]
    for folder, processes in (("two", 2), ("one", 1)):
        monkeypatch.setenv("HIRE_CACHE", str(tmp_path / f"cache-{folder}"))
        taken.unlink(missing_ok=True)
        trained_together([hire(*twins, "-o", tmp_path / folder / "run")] * processes, tmp_path)
        assert len(taken.read_text()) == 10
    assert files(tmp_path / "two" / "run") == files(tmp_path / "one" / "run")


def parts(*systems: str, **changes: Any) -> dict[str, tuple[str, Any]]:
    found = {}
    for number, system in enumerate(systems):
        settings = small_settings(system).settings
        for path, value in changes.items() if system == "hire" else ():
            settings = changed(settings, path.replace("__", "."), value)
        found[f"{system}-{number}"] = system, settings
    return found


@pytest.mark.parametrize(
    ("processes", "systems", "expected"),
    [
        (1, ("hire", "path"), {}),
        (2, ("hire", "path"), {"hire-0": 0, "path-1": 1}),
        (2, ("popularity", "hire", "path", "metar"), {"hire-1": 0, "path-2": 1, "metar-3": 0}),
        (2, ("popularity", "hire"), {}),
        (2, ("ensemble", "hire"), {"ensemble-0": 0, "hire-1": 1}),
        (3, ("hire", "path"), {}),
    ],
)
def test_members_that_learn_are_dealt_out_in_turn_if_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, processes: int, systems: tuple[str, ...], expected: dict[str, int]
) -> None:
    monkeypatch.setattr("hire.training.members.share", lambda: Share(0, processes))
    assert owners(parts(*systems)) == expected


@pytest.mark.parametrize("section", ["optimizer", "embedding"])
def test_members_with_a_table_of_which_each_process_has_a_share_are_trained_by_all(
    monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    monkeypatch.setattr("hire.training.members.share", lambda: Share(0, 2))
    assert owners(parts("hire", "path", **{f"{section}__storage__place": "file"}))
    assert not owners(parts("hire", "path", **{f"{section}__storage__sharded": True}))
