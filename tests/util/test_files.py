from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hire.errors import HireError
from hire.util import files
from hire.util.files import (
    atomic_directory,
    atomic_file,
    explain_os_errors,
    open_array,
    restore_directory,
    save_array,
    sha256_of,
)
from tests.support import ended_process, leftover_of


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "new" / "made") as partial:
        (partial / "file").write_text("x")
        assert not (tmp_path / "new" / "made").exists()
    assert names_in(tmp_path / "new") == ["made"] and names_in(tmp_path / "new" / "made") == ["file"]


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """The inodes that were flushed, and between them the renames, in order."""
    done: list[int | str] = []

    def told(name: str, what: Callable[..., int | str]) -> None:
        real = getattr(os, name)

        def instead(*given: Any) -> None:
            done.append(what(*given))
            real(*given)

        monkeypatch.setattr(os, name, instead)

    told("fsync", lambda descriptor: os.fstat(descriptor).st_ino)
    for name in ("rename", "replace"):
        told(name, lambda *_: "renamed")
    return done


@pytest.mark.parametrize("existing", [False, True])
def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, operations: list[int | str], existing: bool
) -> None:
    """Otherwise a power cut may lose either."""
    target = tmp_path / "made"
    if existing:
        target.write_text("old")
    with atomic_file(target) as partial:
        partial.write_text("new")
    assert operations == [target.stat().st_ino, "renamed", tmp_path.stat().st_ino]


@pytest.mark.parametrize("existing", [False, True])
def test_a_directory_is_flushed_with_all_that_it_has_and_those_above_it(
    tmp_path: Path, operations: list[int | str], existing: bool
) -> None:
    target = tmp_path / "new" / "made"
    if existing:
        target.mkdir(parents=True)
    with atomic_directory(target, overwrite=True) as partial:
        (partial / "file").write_text("x")
    inodes = [path.stat().st_ino for path in (target / "file", target, target.parent)]
    renamed = ["renamed"] * (2 if existing else 1)
    assert operations == [*([] if existing else [tmp_path.stat().st_ino]), *inodes[:2], *renamed, inodes[2]]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, HireError])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_leaves_things_as_they_were(tmp_path: Path, failure: type[BaseException], existing: bool) -> None:
    if existing:
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "old").write_text("old")
    before = names_in(tmp_path)

    def fail() -> None:
        with atomic_directory(tmp_path / "made", overwrite=True, ours=["old"]) as partial:
            (partial / "file").write_text("x")
            raise failure("no")

    with pytest.raises(failure):
        fail()
    assert names_in(tmp_path) == before
    if existing:
        assert (tmp_path / "made" / "old").read_text() == "old"


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_an_interruption_while_replacing_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    target = tmp_path / "made"
    target.mkdir()
    (target / "old").write_text("old")
    rename = Path.rename

    def interrupted(self: Path, other: Path) -> Path:
        if other == target and self.name == "made":  # the new one takes its place
            raise failure
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", interrupted)

    def replace() -> None:
        with atomic_directory(target, overwrite=True, ours=["old"]) as partial:
            (partial / "new").write_text("new")

    with pytest.raises((HireError, KeyboardInterrupt)):
        replace()
    assert names_in(tmp_path) == ["made"] and names_in(target) == ["old"]


def test_an_old_directory_that_cannot_go_back_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "made"
    target.mkdir()
    (target / "old").write_text("precious")
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, other: fail() if other == target else rename(self, other))

    def fail() -> None:
        raise OSError("the disk is gone")

    def replace() -> None:
        with atomic_directory(target, overwrite=True, ours=["old"]):
            pass

    with pytest.raises(HireError, match="the disk is gone"):
        replace()
    assert [path.read_text() for path in tmp_path.rglob(".old/old")] == ["precious"]


def test_what_another_process_made_meanwhile_is_kept(tmp_path: Path) -> None:
    def slower() -> None:
        with atomic_directory(tmp_path / "made"):
            (tmp_path / "made").mkdir()
            (tmp_path / "made" / "theirs").write_text("first")

    with pytest.raises(HireError, match="already exists"):
        slower()
    assert names_in(tmp_path) == ["made"] and names_in(tmp_path / "made") == ["theirs"]


def test_permissions_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_directory(tmp_path / "made"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o750


def test_a_file_is_not_replaced_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(HireError, match="is not a directory"), atomic_directory(tmp_path / "file", overwrite=True):
        pass
    assert (tmp_path / "file").read_text() == "precious"


def test_a_file_appears_whole_or_stays(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with atomic_file(target) as partial:
        partial.write_text("one")

    def fail() -> None:
        with atomic_file(target) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "one" and names_in(tmp_path) == ["file"]


def test_a_full_disk_is_explained() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(HireError, match="/dev/full: no space left on device") as caught, explain_os_errors(full):
        save_array(full, np.zeros(10_000))
    assert "free some space" in str(caught.value.problems[0].remedy)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_forbidden_place_is_explained(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HireError, match="permission denied"), atomic_directory(tmp_path / "x"):
        pass


@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.zeros((0, 2), np.int32), np.zeros(0, np.uint8)])
def test_small_arrays_are_read_and_large_ones_mapped(
    tmp_path: Path,
    array: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "LARGEST_IN_MEMORY", limit)
    save_array(tmp_path / "array.npy", array)
    again = open_array(tmp_path / "array.npy")
    assert isinstance(again, np.memmap) == (limit == 0) and not again.flags.writeable
    assert again.dtype == array.dtype and np.array_equal(again, array)


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    dead, alive = ended_process(), os.getpid()
    for name in (leftover_of(dead, tmp_path / "made").name, leftover_of(alive, tmp_path / "other").name):
        (tmp_path / name / "made").mkdir(parents=True)
    leftover_of(dead, tmp_path / "file").write_text("half")
    others = [".made.partial-elsewhere-1-01234567", ".made.partial-1", "made.partial"]
    for name in others:
        (tmp_path / name).write_text("not ours")
    with atomic_directory(tmp_path / "made"):
        pass
    left = names_in(tmp_path)
    assert set(left) >= {*others, "made"} and len(left) == 5 and f"-{alive}-" in "".join(left)


@pytest.mark.parametrize("by_building", [False, True])
def test_a_directory_caught_between_the_two_renames_is_found_again(tmp_path: Path, by_building: bool) -> None:
    target = tmp_path / "made"
    leftover = leftover_of(ended_process(), target)
    for name, content in ((files.OLD, "old"), ("made", "new")):
        (leftover / name).mkdir(parents=True)
        (leftover / name / "file").write_text(content)
    if by_building:
        with atomic_file(tmp_path / "beside") as partial:
            partial.write_text("x")
        (tmp_path / "beside").unlink()
    else:
        restore_directory(target)
    assert names_in(tmp_path) == ["made"] and (target / "file").read_text() == "old"


def test_a_directory_that_was_replaced_is_not_put_back(tmp_path: Path) -> None:
    target = tmp_path / "made"
    leftover = leftover_of(ended_process(), target)
    (leftover / files.OLD).mkdir(parents=True)
    target.mkdir()
    with atomic_file(tmp_path / "beside") as partial:
        partial.write_text("x")
    assert names_in(tmp_path) == ["beside", "made"]


def test_renames_are_followed_by_a_flush_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    flush = files.flush_to_disk

    def noted(path: Path) -> None:
        flushed.append(path)
        flush(path)

    monkeypatch.setattr(files, "flush_to_disk", noted)
    with atomic_file(tmp_path / "file") as partial:
        partial.write_text("x")
    assert flushed[-1] == tmp_path and len(flushed) == 2
    flushed.clear()
    with atomic_directory(tmp_path / "made") as made:
        (made / "inner").mkdir()
        (made / "inner" / "file").write_text("x")
    assert flushed[-1] == tmp_path and {path.name for path in flushed[:-1]} == {"file", "inner", "made"}


def test_long_names_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 120)
    with atomic_file(target) as partial:
        partial.write_text("x")
    assert names_in(tmp_path) == [target.name]


def test_checksum(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    assert sha256_of(tmp_path / "x") == hashlib.sha256(b"content").hexdigest()
