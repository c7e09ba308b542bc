"""Members that are each trained by one process: waiting, hanging, failing, interrupting, and going on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from hire.systems.hire.trainer import HireTrainer
from hire.training.loop import STATE
from hire.training.run import CONFIG, MEMBERS
from hire.util.processes import each_alone, joined, spread
from hire.util.tensors import map_tensors_and_metadata
from tests.faults.support import contents
from tests.faults.test_kills import SMALL
from tests.faults.test_processes import told
from tests.together import SECONDS, Ended, Together, hire, torchrun

LONG = 1_000_000  # steps, for a test that ends before
OFTEN = ("--set", "selection.evaluate_every=5")  # so that there are checkpoints
SOME = 20
MEMBER = ("one", "two")  # by seed
CONFIGURATION = """
system = "ensemble"
members.one = {system = "hire", weight = 1.0}
members.two = {system = "hire", weight = 1.0, training = {seed = 1}}
"""


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that trains two members."""
    config = tmp_path_factory.mktemp("members") / "config.toml"
    config.write_text(CONFIGURATION)
    command = ["train", "umls-one", "--no-calibrate", "--config", str(config), "--steps", str(SOME)]
    return command + [part for setting in SMALL for part in ("--set", setting)]


@pytest.fixture(scope="module")
def whole(train: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed run has."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        succeeded(Together([hire(*train, "-o", folder / "run")], folder).wait())
    return files(folder / "run")


def files(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): content for path, content in contents(run).items() if path.name != CONFIG}


def succeeded(ended: list[Ended]) -> None:
    assert [process.code for process in ended] == [0] * len(ended), ended


def slowly(seconds: dict[str, float], folder: Path, work: Callable[[], object]) -> Callable[[], object]:
    """Work in which the steps of members take so much longer; the number of the last one is in a file."""
    train_step = HireTrainer.train_step

    def step(self: HireTrainer, *batch: object) -> float:
        member = MEMBER[self.seed]
        time.sleep(seconds.get(member, 0))
        loss = train_step(self, *batch)  # type: ignore[arg-type]
        (folder / member).write_text(str(self.step))
        return loss

    def slow() -> None:
        pytest.MonkeyPatch().setattr(HireTrainer, "train_step", step)
        work()

    return slow


def state(run: Path, member: str) -> Path:
    return run / MEMBERS / member / STATE


def wait_for(path: Path, group: Together) -> None:
    until = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < until, [output.read_text() for output in group.outputs]
        time.sleep(0.01)


def test_whoever_is_done_waits_longer_than_a_process_may_be_silent(
    train: list[str], whole: dict[str, bytes], tmp_path: Path
) -> None:
    work = slowly({"two": 0.4}, tmp_path, hire(*train, "-o", tmp_path / "run"))
    start = time.monotonic()
    ended = Together([work, work], tmp_path, seconds=5).wait()
    succeeded(ended)
    assert time.monotonic() - start > 1.5 * 5
    assert "Waiting for process 1 of 2" in ended[0].output and not ended[1].output
    assert files(tmp_path / "run") == whole


def test_ranking_many_tasks_is_a_sign_of_life(tmp_path: Path) -> None:
    def ranked(_: int) -> list[NDArray[Any]]:
        time.sleep(0.5)
        return []

    def work() -> None:
        with joined() as share, each_alone():
            if not share.first:
                spread(ranked, [1.0] * 15)

    succeeded(Together([work, work], tmp_path, seconds=5).wait())


@pytest.mark.parametrize("other", ["trains", "waits"])
def test_a_process_that_hangs_is_noticed_by_one_that(other: str, train: list[str], tmp_path: Path) -> None:
    steps = {"trains": ("--steps", str(LONG)), "waits": ("--set", f"two.training.steps={LONG}")}[other]
    group = Together([hire(*train, *OFTEN, *steps, "-o", tmp_path / "run")] * 2, tmp_path, seconds=5)
    wait_for(state(tmp_path / "run", "two"), group)
    while other == "waits" and "Waiting for process 1" not in group.outputs[0].read_text():
        time.sleep(0.01)
    os.kill(group.ids[1], signal.SIGSTOP)
    start = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(group.ids[0], 0)[1])
    seconds = time.monotonic() - start
    os.kill(group.ids[1], signal.SIGKILL)
    os.waitpid(group.ids[1], 0)
    output = group.outputs[0].read_text()
    assert code == 2 and "process 1 of 2 did not answer within 5 s" in output and "Traceback" not in output, output
    assert seconds < 30  # the machine may be busy
    assert state(tmp_path / "run", "one").exists()


@pytest.mark.parametrize("other", ["trains", "waits"])
def test_what_one_fails_with_is_told_by_one_that(other: str, train: list[str], tmp_path: Path) -> None:
    steps = {"trains": ("--steps", str(LONG)), "waits": ("--set", f"two.training.steps={LONG}")}[other]
    work = hire(*train, *OFTEN, *steps, "-o", tmp_path / "run")
    train_step = HireTrainer.train_step

    def diverging(self: HireTrainer, *batch: object) -> float:
        value = train_step(self, *batch)  # type: ignore[arg-type]
        waited = other == "trains" or "Waiting for" in (tmp_path / "output-0").read_text()
        return float("nan") if self.step > 10 and waited else value

    def failing() -> None:
        pytest.MonkeyPatch().setattr(HireTrainer, "train_step", diverging)
        work()

    ended = Together([work, failing], tmp_path).wait()
    told(ended, "the loss of step ", "is nan; the last good checkpoint is", "smaller optimizer.learning_rate")
    assert "process 1 of 2 failed" in ended[0].output


@pytest.mark.parametrize("signalled", [(0, 1), (1,)])
def test_an_interruption_saves_every_member_and_the_run_is_resumed(
    signalled: tuple[int, ...], train: list[str], whole: dict[str, bytes], tmp_path: Path
) -> None:
    command = [*train, "-o", str(tmp_path / "run")]
    slow = slowly({"one": 0.5, "two": 0.5}, tmp_path, hire(*command))
    group = Together([slow] * 2, tmp_path)
    for member in MEMBER:
        wait_for(tmp_path / member, group)
    for rank in signalled:
        os.kill(group.ids[rank], signal.SIGTERM)
    told(group.wait(), "interrupted", "--resume")
    for member in MEMBER:
        saved, _ = map_tensors_and_metadata(state(tmp_path / "run", member))
        assert int(saved["step"]) == int((tmp_path / member).read_text()) < SOME
    succeeded(Together([hire(*command, "--resume")] * 2, tmp_path).wait())
    assert files(tmp_path / "run") == whole


def test_a_deadline_ends_all_members_and_the_run_is_resumed(
    train: list[str], whole: dict[str, bytes], tmp_path: Path
) -> None:
    command = [*train, "-o", str(tmp_path / "run")]
    ended = Together([hire(*command, "--max-minutes", "0.0001")] * 2, tmp_path).wait()
    succeeded(ended)
    assert "not finished, --resume continues" in ended[0].output
    assert all(state(tmp_path / "run", member).exists() for member in MEMBER)
    succeeded(Together([hire(*command, "--resume")] * 2, tmp_path).wait())
    assert files(tmp_path / "run") == whole


def test_members_whose_process_was_killed_go_on_to_the_same_result(train: list[str], tmp_path: Path) -> None:
    """Killed with -9 once it has written a checkpoint of its member; torchrun starts all again."""
    (tmp_path / "whole").mkdir()
    succeeded(Together([hire(*train, *OFTEN, "-o", tmp_path / "whole" / "run")], tmp_path).wait())
    run = tmp_path / "run"
    command = torchrun("hire", *train, *OFTEN, "-o", run)
    command[3:3] = ["--max-restarts", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        until, children = time.monotonic() + SECONDS, [0]
        while not state(run, "two").exists() and time.monotonic() < until:
            found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(started.pid)], capture_output=True, text=True)
            children = [int(child) for child in found.stdout.split()]
        os.kill(max(children), signal.SIGKILL)
        output = started.communicate(timeout=SECONDS)[0]
    assert started.returncode == 0, output
    assert output.count("Training one in process 0, two in process 1") == 2, output
    assert files(run) == files(tmp_path / "whole" / "run")
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
