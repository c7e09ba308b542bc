from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from hire.errors import HireError
from hire.util.tensors import (
    load_tensors,
    load_tensors_and_metadata,
    map_tensors_and_metadata,
    on_device,
    pinned,
    recorded_checksum,
    save_tensors,
)

TENSORS = {
    "weights": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "step": torch.tensor(7),
    "flags": torch.tensor([True, False]),
    "none": torch.zeros(0, 4),
    "view": torch.arange(12).reshape(3, 4).T,
}


def test_tensors_and_metadata_are_what_was_written(tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", TENSORS, {"of": "a graph"})
    tensors, about = load_tensors_and_metadata(tmp_path / "file")
    assert about == {"of": "a graph"} and tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_library_reads_what_we_write_and_a_map_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.util.tensors.BLOCK_BYTES", 16)  # rows at a time
    tensors = TENSORS | {"half": torch.randn(5, 3).bfloat16(), "empty": torch.zeros(3, 0)}
    save_tensors(tmp_path / "file", tensors, {"of": "a graph"})
    for found in (load_file(tmp_path / "file"), map_tensors_and_metadata(tmp_path / "file")[0]):
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensors[name]) for name in tensors)
        assert all(found[name].dtype == tensors[name].dtype for name in tensors)


def test_no_flipped_bit_and_no_missing_byte_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_tensors(path, TENSORS, {"of": "a graph"})
    whole = path.read_bytes()
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            tensors, about = load_tensors_and_metadata(path)
            map_tensors_and_metadata(path)
        except HireError as error:
            assert str(path) in str(error) and "train again" in str(error.problems[0].remedy)
            continue
        assert about == {"of": "a graph"}  # white space in the header
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(HireError, match="file: is"):
            load_tensors(path)
        with pytest.raises(HireError, match="file: is"):
            map_tensors_and_metadata(path)


def test_the_checksum_tells_weights_apart_without_reading_them(tmp_path: Path) -> None:
    seen = set()
    for number in range(3):
        save_tensors(tmp_path / "file", {"weights": torch.full((4,), float(number))})
        seen.add(recorded_checksum(tmp_path / "file"))
    assert len(seen) == 3
    save_file({"weights": torch.zeros(2)}, tmp_path / "plain")
    with pytest.raises(HireError, match="is not a readable weights file"):
        recorded_checksum(tmp_path / "plain")


def test_a_file_without_a_checksum_is_not_believed(tmp_path: Path) -> None:
    save_file({"weights": torch.zeros(2)}, tmp_path / "plain")
    with pytest.raises(HireError, match="does not match its checksum"):
        load_tensors(tmp_path / "plain")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_neither_saved_nor_loaded(
    tmp_path: Path, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"good": torch.zeros(2), "bad": torch.tensor([1.0, wrong])}
    with pytest.raises(HireError, match="'bad' are not finite"):
        save_tensors(tmp_path / "file", tensors)
    assert not (tmp_path / "file").exists()
    with monkeypatch.context() as patch:
        patch.setattr("hire.util.tensors.check_finite", lambda *_: None)
        save_tensors(tmp_path / "file", tensors)
    with pytest.raises(HireError, match="'bad' are not finite"):
        load_tensors(tmp_path / "file")


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o007, 0o660)])
def test_permissions_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        save_tensors(tmp_path / "file", TENSORS)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_a_file_that_is_cut_short_later_does_not_matter(tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", {"weights": torch.ones(1_000_000)})
    tensors = load_tensors(tmp_path / "file")
    os.truncate(tmp_path / "file", 0)
    assert float(tensors["weights"].sum()) == 1_000_000  # a map of the file would end the process here


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed by forking it")
def test_what_is_left_behind_by_a_process_that_is_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if not child:
        monkeypatch.setattr("hire.util.tensors._checksum", lambda *_: os._exit(9))  # the last before it is sealed
        save_tensors(tmp_path / "file", TENSORS)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [path.name.startswith(".file.partial") for path in tmp_path.iterdir()] == [True]
    save_tensors(tmp_path / "file", TENSORS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Both(NamedTuple):
    one: torch.Tensor
    others: list[torch.Tensor]


def test_all_tensors_of_a_value_are_moved_or_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    value = (Both(torch.ones(2), [torch.zeros(3)]), "text", torch.ones(1))
    assert on_device(value, torch.device("cpu")) is value
    both, text, last = on_device(value, torch.device("meta"))
    assert isinstance(both, Both) and text == "text"
    assert {both.one.device.type, both.others[0].device.type, last.device.type} == {"meta"}
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)  # there is nothing to pin for
    both, text, last = pinned(value)
    assert text == "text" and [both.one[0], both.others[0][0], last[0]] == [2, 1, 2]
