from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError

names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), unique=True)


@given(names)
def test_both_ways(strings: list[str]) -> None:
    vocabulary = Vocabulary.of(strings)
    assert len(vocabulary) == len(strings)
    assert list(vocabulary) == strings
    assert [vocabulary[i] for i in range(len(strings))] == strings
    assert [vocabulary.find(name) for name in strings] == list(range(len(strings)))
    assert vocabulary.ids(strings).tolist() == list(range(len(strings)))


@given(names, st.text(max_size=12))
def test_unknown_names_are_not_found(strings: list[str], other: str) -> None:
    vocabulary = Vocabulary.of(strings)
    assert vocabulary.find(other) == (strings.index(other) if other in strings else None)
    assert (other in vocabulary) == (other in strings)


@given(names)
def test_saved_and_mapped_is_the_same(tmp_path_factory: pytest.TempPathFactory, strings: list[str]) -> None:
    directory = tmp_path_factory.mktemp("vocabulary")
    Vocabulary.of(strings).save(directory, "names")
    assert list(Vocabulary.open(directory, "names")) == strings
    assert list(StringTable.open(directory, "names")) == strings


def test_numbers_marks_unknown_names() -> None:
    assert Vocabulary.of(["x", "y"]).ids(["y", "z", "x"]).tolist() == [1, -1, 0]


def test_slices_negative_numbers_and_bounds() -> None:
    table = StringTable.of(["a", "ß", ""])
    assert table[-1] == "" and table[1:] == ["ß", ""] and table[np.int64(1)] == "ß"
    with pytest.raises(IndexError):
        table[3]


def test_an_unknown_name_is_told_with_near_ones() -> None:
    vocabulary = Vocabulary.of([f"person:{name}" for name in ("anna", "annabel", "otto")], "entity")
    with pytest.raises(HireError, match="unknown entity 'person:ana'") as caught:
        vocabulary.id("person:ana")
    assert "person:anna" in str(caught.value.problems[0].remedy)


def test_of_a_slice_of_an_arrow_array() -> None:
    import pyarrow as pa

    assert list(StringTable.of(pa.array(["a", "bb", "ccc", "d"])[1:3])) == ["bb", "ccc"]


def test_open_tells_of_a_damaged_file(tmp_path: Path) -> None:
    Vocabulary.of(["x"]).save(tmp_path, "names")
    (tmp_path / "names.text.npy").write_bytes(b"nonsense")
    with pytest.raises(HireError, match=r"names\.text\.npy"):
        Vocabulary.open(tmp_path, "names")


@given(names, st.integers(0, 12))
def test_extended_is_as_if_made_at_once(strings: list[str], count: int) -> None:
    known, new = strings[: len(strings) - count], strings[len(strings) - count :] if count else []
    if count > len(strings):
        known, new = [], strings
    whole, extended = Vocabulary.of(strings), Vocabulary.of(known).extended(new)
    assert list(extended) == strings and extended.order.tolist() == whole.order.tolist()


def test_more_names_than_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.data.vocabulary.MOST_IDS", 2)
    two = Vocabulary.of(["a", "b"], "entity")
    with pytest.raises(HireError, match="3 ids of the kind 'entity' are too many") as caught:
        Vocabulary.of(["a", "b", "c"], "entity")
    assert "remove" in str(caught.value.problems[0].remedy)
    with pytest.raises(HireError, match="3 ids"):
        two.extended(["c"])
