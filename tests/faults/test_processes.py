"""What goes wrong with one of several processes is told by all of them, with exit code 2, and leaves nothing half."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hire.data.dataset import FewShotDataset
from hire.training.run import CONFIG, MODEL
from hire.util.tensors import map_tensors_and_metadata
from tests.faults.support import contents
from tests.faults.test_kills import TRAIN
from tests.together import SECONDS, Ended, Together, hire, torchrun


def told(ended: list[Ended], *words: str) -> None:
    """Demand that all processes ended with exit code 2, and with these words."""
    for rank, process in enumerate(ended):
        assert process.code == 2 and "Traceback" not in process.output, (rank, process)
        assert all(word in process.output for word in words), (rank, process)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes."""
    folder = tmp_path_factory.mktemp("together")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        ended = Together([hire(*TRAIN, "-o", folder / "run")] * 2, folder).wait()
    assert [process.code for process in ended] == [0, 0], ended
    assert "the run" in ended[0].output and not ended[1].output  # the first tells, and writes
    assert json.loads((folder / "run" / CONFIG).read_text())["processes"] == 2
    assert not [path.name for path in (folder / "run").iterdir() if path.name.startswith(".")]
    return folder / "run"


def test_a_run_is_resumed_by_as_many_processes(trained: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    before = contents(trained)
    found = run(*TRAIN, "-o", trained, "--resume")
    assert found.exit_code == 2 and "processes is 1, was 2" in found.output
    told(Together([hire(*TRAIN, "-o", trained)] * 2, tmp_path).wait(), "the run folder already exists", "--resume")
    assert contents(trained) == before


def test_processes_with_different_datasets_or_programs_do_not_begin(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    umls.save(tmp_path / "same")
    thinned = umls.extended(["new"], umls.graph.triples[:1])
    thinned.save(tmp_path / "other")

    def of_another_version() -> None:
        monkeypatch.setattr("hire.training.run.__version__", "0.0.1")
        hire("train", tmp_path / "same", *TRAIN[2:], "-o", tmp_path / "run")()

    works = [hire("train", tmp_path / name, *TRAIN[2:], "-o", tmp_path / "run") for name in ("same", "other", "none")]
    told(Together(works[:2], tmp_path).wait(), "process 1 of 2 differs", "fingerprint of the dataset", "give all")
    told(Together([works[0], works[2]], tmp_path).wait(), f"{tmp_path / 'none'}: is neither a bundled dataset")
    told(Together([works[0], of_another_version], tmp_path).wait(), "the version of hire is '0.0.1'")
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_told_by_all(tmp_path: Path) -> None:
    def with_a_full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
        hire(*TRAIN, "-o", tmp_path / "run")()

    ended = Together([with_a_full_disk, hire(*TRAIN, "-o", tmp_path / "run")], tmp_path).wait()
    told(ended, f"{tmp_path / 'run' / MODEL}: file too large", "raise the limit on file sizes")
    assert "process 0 of 2 failed" in ended[1].output
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.safetensors*"))


def test_a_process_that_starts_late_is_not_waited_for_forever(tmp_path: Path) -> None:
    ended = Together([hire(*TRAIN, "-o", tmp_path / "run")] * 2, tmp_path, seconds=1, late=4).wait()
    told(ended, "not all 2 processes had started within 1 s", "HIRE_PROCESS_TIMEOUT")
    assert not (tmp_path / "run").exists()


def test_a_process_that_hangs_is_noticed(tmp_path: Path) -> None:
    steps = ("--set", "training.steps=1000000")
    group = Together([hire(*TRAIN, *steps, "-o", tmp_path / "run")] * 2, tmp_path, seconds=5)
    while not (tmp_path / "run" / CONFIG).exists():
        assert os.waitpid(group.ids[0], os.WNOHANG) == (0, 0), group.outputs[0].read_text()
        time.sleep(0.01)
    os.kill(group.ids[1], signal.SIGSTOP)
    start = time.monotonic()
    _, status = os.waitpid(group.ids[0], 0)
    seconds = time.monotonic() - start
    os.kill(group.ids[1], signal.SIGKILL)
    os.waitpid(group.ids[1], 0)
    output = group.outputs[0].read_text()
    assert os.waitstatus_to_exitcode(status) == 2 and "process 1 of 2 did not answer within 5 s" in output, output
    assert seconds < 30  # the machine may be busy


def test_a_timeout_is_a_number_of_seconds(tmp_path: Path) -> None:
    told(Together([hire(*TRAIN, "-o", tmp_path / "run")] * 2, tmp_path, seconds=-1).wait(), "HIRE_PROCESS_TIMEOUT is")


def test_a_batch_has_a_part_for_every_process(tmp_path: Path) -> None:
    few = ("--set", "training.tasks=1", "-o", tmp_path / "run")
    told(Together([hire(*TRAIN, *few)] * 2, tmp_path).wait(), "a batch of 1 tasks cannot be shared by 2 processes")
    assert not (tmp_path / "run").exists()


def test_other_commands_are_for_one_process(tmp_path: Path) -> None:
    told(Together([hire("serve", "umls-one")] * 2, tmp_path).wait(), "hire serve is for a single process")


def test_answers_of_two_processes_are_those_of_one(
    umls: FewShotDataset, umls_run: Path, tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hire.inference.bulk.HEADS_AT_ONCE", 16)
    (tmp_path / "examples.tsv").write_text("virus\torganism\nfungus\torganism\n")
    (tmp_path / "heads.txt").write_text("".join(f"{umls.graph.entities[i]}\n" for i in range(100)))
    given = ("predict", umls_run, "--references", tmp_path / "examples.tsv", "--heads", tmp_path / "heads.txt", "-o")
    assert run(*given, tmp_path / "one").exit_code == 0
    two = [hire(*given, tmp_path / "two")] * 2
    ended = Together(two, tmp_path).wait()
    assert [process.code for process in ended] == [0, 0], ended
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    ended = Together([hire(*given, tmp_path / "two", "--resume")] * 2, tmp_path).wait()
    assert [process.code for process in ended] == [0, 0] and "already complete" in ended[0].output, ended
    (tmp_path / "heads.txt").write_text("virus\nno such entity\n")
    told(Together([hire(*given, tmp_path / "three")] * 2, tmp_path).wait(), "no such entity", "heads.txt:2")


def test_a_run_is_calibrated_and_evaluated_by_two_as_by_one(
    trained: Path, tmp_path: Path, run: Callable[..., Result]
) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    calibrate, evaluate = ("--shots", "1", "--draws", "1"), ("--shots", "1", "--json")
    assert run("calibrate", tmp_path / "copy", *calibrate).exit_code == 0
    alone = (tmp_path / "copy" / "calibration.json").read_bytes(), run("evaluate", tmp_path / "copy", *evaluate).stdout
    ended = Together([hire("calibrate", tmp_path / "copy", *calibrate)] * 2, tmp_path).wait()
    assert [process.code for process in ended] == [0, 0], ended
    assert (tmp_path / "copy" / "calibration.json").read_bytes() == alone[0]
    ended = Together([hire("evaluate", tmp_path / "copy", *evaluate)] * 2, tmp_path).wait()
    assert ended[0].output == alone[1] and not ended[1].output


def test_a_group_that_loses_a_process_goes_on_to_the_same_result(trained: Path, tmp_path: Path) -> None:
    """Killed with -9 once it has written a checkpoint; torchrun starts all again, and they continue."""
    every, target = ("--set", "selection.evaluate_every=5"), tmp_path / "run"
    whole = Together([hire(*TRAIN, *every, "-o", tmp_path / "whole")] * 2, tmp_path).wait()
    assert [process.code for process in whole] == [0, 0], whole
    command = torchrun("hire", *TRAIN, *every, "-o", target)
    command[3:3] = ["--max-restarts", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        until = time.monotonic() + SECONDS
        while not (target / "state.safetensors").exists() and time.monotonic() < until:
            time.sleep(0.005)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(started.pid)], capture_output=True, text=True)
        os.kill(max(int(child) for child in children.stdout.split()), signal.SIGKILL)
        output = started.communicate(timeout=SECONDS)[0]
    assert started.returncode == 0 and "has ended" in output, output
    assert (target / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert not [path.name for path in target.iterdir() if path.name.startswith(".")]


def test_tables_of_which_each_has_a_share_give_the_same_run_also_when_it_is_resumed(
    trained: Path, tmp_path: Path
) -> None:
    train: tuple[str | Path, ...] = (*TRAIN, "--set", "optimizer.storage.sharded=true", "-o", tmp_path / "run")
    begun = Together([hire(*train, "--max-minutes", "0.0001")] * 2, tmp_path).wait()
    assert [process.code for process in begun] == [0, 0] and "not finished" in begun[0].output, begun
    state, _ = map_tensors_and_metadata(tmp_path / "run" / "state.safetensors")
    assert len(state["entities.weights"]) == len(state["entities.first"]) == 135
    ended = Together([hire(*train, "--resume")] * 2, tmp_path).wait()
    assert [process.code for process in ended] == [0, 0], ended
    assert (tmp_path / "run" / MODEL).read_bytes() == (trained / MODEL).read_bytes()


def test_a_disk_that_is_full_for_one_of_those_who_write_a_table_is_told_by_all(tmp_path: Path) -> None:
    def with_a_full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
        sharded()

    sharded = hire(*TRAIN, "--set", "optimizer.storage.sharded=true", "-o", tmp_path / "run")
    told(Together([sharded, with_a_full_disk], tmp_path).wait(), "file too large", "raise the limit on file sizes")
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.safetensors*"))


def test_a_run_that_was_there_before_is_not_continued_by_a_restart(trained: Path, tmp_path: Path) -> None:
    def restarted() -> None:
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        hire(*TRAIN, "-o", trained)()

    told(Together([restarted] * 2, tmp_path).wait(), "the run folder already exists")


def test_two_machines_train_as_two_processes_do(trained: Path, tmp_path: Path) -> None:
    """With a network between them: two namespaces of this machine."""
    command = [str(Path(__file__).parents[1] / "two_nodes.sh"), "-m", "hire", *TRAIN, "-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHON": sys.executable}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)
    if ended.returncode == 77:
        pytest.skip(ended.stdout.strip())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "run" / MODEL).read_bytes() == (trained / MODEL).read_bytes()
