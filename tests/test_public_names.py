from __future__ import annotations

import pytest

import hire


def test_every_public_name_is_there() -> None:
    assert set(hire._HOMES) == set(hire.__all__) <= set(dir(hire))
    for name in hire.__all__:
        assert getattr(hire, name).__name__ in (name, f"{name}_model")
    with pytest.raises(AttributeError):
        _ = hire.nonsense
