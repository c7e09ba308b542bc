from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.errors import HireError
from hire.util.keys import LIMIT, Keying
from tests.support import ranked_keys

WIDTH, ROWS = 5, 40
CELLS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, WIDTH - 1)), max_size=20)


@given(CELLS)
def test_ranks_keep_the_order_and_tell_the_same_apart(cells: list[tuple[int, int]]) -> None:
    rows, columns = np.array(cells, np.int64).reshape(-1, 2).T
    plain, plain_keys = Keying.of(rows, columns, ROWS, WIDTH)
    with ranked_keys():
        ranked, with_ranks = Keying.of(rows, columns, ROWS, WIDTH)
    assert plain.rows is None and ranked.rows is not None
    assert ranked.rows.tolist() == sorted({row for row, _ in cells})
    for keying, keys in ((plain, plain_keys), (ranked, with_ranks)):
        assert keying.keys(rows, columns).tolist() == keys.tolist()
        assert [part.tolist() for part in keying.split(keys)] == [rows.tolist(), columns.tolist()]
        assert keying.rows_of(keys).tolist() == rows.tolist()
        assert np.argsort(keys, kind="stable").tolist() == sorted(range(len(cells)), key=cells.__getitem__)
    others = np.setdiff1d(np.arange(ROWS), rows)
    assert (ranked.keys(others, WIDTH - 1) < 0).all() and (ranked.keys(rows, 0) >= 0).all()


@given(st.lists(st.tuples(st.integers(0, 2**61 - 1), st.integers(0, 2**40 - 1)), max_size=20))
def test_keys_that_would_not_fit_do_with_ranks(cells: list[tuple[int, int]]) -> None:
    rows, columns = np.array(cells, np.int64).reshape(-1, 2).T
    keying, keys = Keying.of(rows, columns, 2**61, 2**40)
    assert len(set(keys.tolist())) == len(set(cells)) and (keys >= 0).all()
    assert [part.tolist() for part in keying.split(keys)] == [rows.tolist(), columns.tolist()]


def test_rows_are_ranked_only_if_they_must_be() -> None:
    rows = np.arange(3)
    assert Keying.of(rows, rows, 2**31, 2**32 - 1)[0].rows is None
    assert Keying.of(rows, rows, 2**31, 2**32)[0].rows is not None


@pytest.mark.parametrize(("row_count", "width"), [(2**40, 2**62), (LIMIT, 3)])
def test_more_than_ranks_can_tell_apart_is_refused(row_count: int, width: int) -> None:
    with pytest.raises(HireError, match="too many for 64-bit keys") as caught:
        Keying.of(np.array([7, 3, 7]), np.arange(3), row_count, width)
    assert "remove relations or entities" in str(caught.value.problems[0].remedy)
    if row_count < LIMIT:
        assert Keying.of(np.array([7, 7]), np.arange(2), row_count, width)[1].tolist() == [0, 1]
