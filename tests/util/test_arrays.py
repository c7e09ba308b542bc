from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.util.arrays import contains, distinct, expand_rows, positions_in, row_offsets

VALUES = st.lists(st.integers(-4, 12), max_size=20)
ROWS = st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=6)  # compressed below


@given(VALUES)
def test_distinct_values_are_sorted(values: list[int]) -> None:
    found = distinct(np.array(values, np.int64))
    assert found.dtype == np.int64 and found.tolist() == sorted(set(values))


def test_distinct_values_of_a_table() -> None:
    assert distinct(np.array([[3, 1], [1, 2]], np.int32)).tolist() == [1, 2, 3]


@given(VALUES, VALUES)
def test_lookups_are_those_of_a_list(values: list[int], wanted: list[int]) -> None:
    ordered = sorted(set(values))
    expected = [ordered.index(value) if value in ordered else -1 for value in wanted]
    given_, asked = np.array(ordered, np.int64), np.array(wanted, np.int64)
    assert positions_in(given_, asked).tolist() == expected
    assert contains(given_, asked).tolist() == [position >= 0 for position in expected]
    assert contains(np.array(sorted(values), np.int64), asked).tolist() == [value in values for value in wanted]


@pytest.mark.parametrize("ordered", [[], [2], [1, 2, 5]])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_lookups_keep_the_shape(ordered: list[int], kind: type[np.signedinteger]) -> None:
    among = np.array(ordered, kind)
    wanted = np.array([[2, 0, 5], [9, -1, 1]])
    expected = np.array([[ordered.index(v) if v in ordered else -1 for v in row] for row in wanted.tolist()])
    found, there = positions_in(among, wanted), contains(among, wanted)
    assert found.dtype == np.int64 and np.array_equal(found, expected)
    assert there.dtype == bool and np.array_equal(there, expected >= 0)
    assert (positions_in(among, 2) >= 0) == contains(among, 2) == (2 in ordered)
    assert positions_in(among, np.zeros(0, kind)).shape == contains(among, np.zeros(0, kind)).shape == (0,)


@given(ROWS)
def test_offsets_say_where_each_row_starts(rows: list[list[int]]) -> None:
    owners = np.array([number for number, row in enumerate(rows) for _ in row], np.int64)
    expected = [sum(len(row) for row in rows[:number]) for number in range(len(rows) + 1)]
    assert row_offsets(np.random.default_rng(0).permutation(owners), len(rows)).tolist() == expected


@given(ROWS, st.data(), st.one_of(st.none(), st.integers(0, 3)))
def test_rows_are_expanded_as_in_plain_loops(rows: list[list[int]], data: st.DataObject, limit: int | None) -> None:
    elements = np.array([element for row in rows for element in row], np.int64)
    offsets = np.cumsum([0, *map(len, rows)])
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    positions, owners = expand_rows(offsets, np.array(chosen, np.int64), limit)
    plain = [(index, element) for index, row in enumerate(chosen) for element in rows[row][:limit]]
    assert list(zip(owners.tolist(), elements[positions].tolist(), strict=True)) == plain
