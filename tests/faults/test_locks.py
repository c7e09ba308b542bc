"""One writer at a time: the second is told who the first is, and a crash frees what was locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from hire.service.store import Store
from hire.training.run import CONFIG, LOCK, MODEL
from hire.util.locks import InUseError
from tests.faults.support import torture
from tests.faults.test_kills import TRAIN, finish, hire
from tests.support import serving
from tests.util.test_locks import holder

Run = Callable[..., Result]


@contextmanager
def held(lock: Path) -> Iterator[int]:
    """A lock that another process holds until it is killed; its id."""
    process = holder(lock)
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def references(tmp_path: Path) -> Path:
    path = tmp_path / "refs.tsv"
    path.write_text("virus\torganism\nbacterium\torganism\n")
    return path


def test_the_second_writer_of_a_run_an_output_or_a_state_is_refused(
    run: Run, umls_run: Path, references: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    predict = ("predict", umls_run, "--references", references, "--head", "plant", "-o", tmp_path / "out.tsv")
    for lock, command in (
        (tmp_path / "run" / LOCK, ("train", "umls-one", "-o", tmp_path / "run", "--system", "popularity")),
        (umls_run / LOCK, ("calibrate", umls_run)),
        (tmp_path / "out.tsv.lock", predict),
        (tmp_path / "state.lock", ("serve", umls_run, "--port", "0", "--state", tmp_path / "state")),
    ):
        with held(lock) as process:
            result = run(*command)
            assert result.exit_code == 2 and f"is in use by process {process} on " in result.output, result.output
        assert lock.exists()  # as the crash left it
    assert run(*predict).exit_code == 0  # taken over
    assert run("train", "umls-one", "-o", tmp_path / "run", "--system", "popularity").exit_code == 0
    assert not (tmp_path / "run" / LOCK).exists() and (tmp_path / "run" / MODEL).exists()


def test_a_state_is_the_same_by_whatever_link(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(InUseError):
        Store(tmp_path / "link")
    store.close()
    Store(tmp_path / "link").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "state"]


@torture
def test_two_servers_do_not_share_a_state(umls_run: Path, tmp_path: Path) -> None:
    with serving(umls_run, "--state", str(tmp_path / "state")) as (first, _):
        second = hire("serve", umls_run, "--port", "0", "--state", tmp_path / "state")
        output = second.communicate(timeout=120)[0]
        assert second.returncode == 2 and f"is in use by process {first.pid}" in output
    with serving(umls_run, "--state", str(tmp_path / "state")):  # the first was killed
        pass


@torture
def test_of_two_trainings_into_one_folder_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    for number in range(3):
        run = tmp_path / f"run-{number}"
        both = [hire(*TRAIN, "-o", run, "--seed", str(seed)) for seed in (1, 2)]
        outputs = [process.communicate(timeout=600)[0] for process in both]
        assert sorted(process.returncode for process in both) == [0, 2], outputs
        refused = outputs[[process.returncode for process in both].index(2)]
        assert "is in use by process" in refused or "already exists" in refused
        seed = 1 if both[0].returncode == 0 else 2
        finish(hire(*TRAIN, "-o", tmp_path / f"alone-{number}", "--seed", str(seed)))
        for name in (CONFIG, MODEL):
            assert (run / name).read_bytes() == (tmp_path / f"alone-{number}" / name).read_bytes()
