from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.errors import HireError
from hire.util.checksums import BLOCK_BYTES, MappedFiles, checksum_of, file_checksum, read_record, write_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda part: st.lists(part) | st.dictionaries(st.text(st.characters(codec="utf-8")), part),
    max_leaves=10,
)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 7])
def test_a_file_has_the_checksum_of_its_bytes(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(size).bytes(size + 10)
    (tmp_path / "file").write_bytes(content)
    assert file_checksum(tmp_path / "file") == checksum_of([content])
    assert file_checksum(tmp_path / "file", size) == checksum_of([content[:size]])
    assert checksum_of([content[:3], content[3:]]) == checksum_of([content])


@given(content=st.dictionaries(st.text(st.characters(codec="utf-8")).filter(lambda key: key != "checksum"), JSON))
def test_a_record_is_what_was_written(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "record.json"
    write_record(path, content)
    assert read_record(path, "make it anew") == content


def test_keys_and_tuples_are_as_json_has_them(tmp_path: Path) -> None:
    write_record(tmp_path / "record", {"by number": {10: (1, 2), 9: 1.0}})
    assert read_record(tmp_path / "record", "") == {"by number": {"10": [1, 2], "9": 1.0}}


def test_no_flipped_bit_of_a_record_is_believed(tmp_path: Path) -> None:
    path, content = tmp_path / "record", {"format": 3, "name": "a", "settings": {"rate": 0.25, "steps": [1, 2]}}
    write_record(path, content)
    whole, believed = path.read_bytes(), 0
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            assert read_record(path, "make it anew", 3) == content  # white space
            believed += 1
        except HireError as error:
            assert str(path) in str(error) and "make it anew" in str(error.problems[0].remedy)
    assert believed < 8 * 40


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"checksum": 3}', '{"a": 1, "checksum": ""}'])
def test_what_is_no_record_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    with pytest.raises(HireError, match="record: is"):
        read_record(tmp_path / "record", "make it anew")


def test_deep_nesting_is_told(tmp_path: Path) -> None:
    (tmp_path / "record").write_text("[" * 100_000)
    gc.disable()  # callbacks of the collector would run out of stack here, and be blamed on another test
    try:
        with pytest.raises(HireError, match="record: is damaged"):
            read_record(tmp_path / "record", "make it anew")
    finally:
        gc.enable()


def test_another_format_is_told_before_damage(tmp_path: Path) -> None:
    (tmp_path / "record").write_text(json.dumps({"format": 1}))
    with pytest.raises(HireError, match="has format 1; this version reads format 2"):
        read_record(tmp_path / "record", "build it again", 2)
    with pytest.raises(HireError, match="has format 1; this version reads format 2 or 3"):
        read_record(tmp_path / "record", "build it again", 2, 3)


@pytest.mark.parametrize("change", ["cut", "written", "replaced", "removed"])
def test_a_mapped_file_that_changes_is_told(tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"some content")
    files = MappedFiles([path])
    files.check()
    if change == "cut":
        os.truncate(path, 0)
    elif change == "written":
        path.write_bytes(b"some_content")
        os.utime(path, (1, 1))
    elif change == "replaced":
        (tmp_path / "other").write_bytes(b"some content")
        (tmp_path / "other").rename(path)
    else:
        path.unlink()
    with pytest.raises(HireError, match="was changed or removed while it was in use"):
        files.check()
