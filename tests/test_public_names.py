from __future__ import annotations

import re
from pathlib import Path

import pytest

import hire


def test_every_public_name_is_there() -> None:
    assert set(hire._HOMES) == set(hire.__all__) <= set(dir(hire))
    for name in hire.__all__:
        assert getattr(hire, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = hire.nonsense


def test_the_python_of_the_readme_runs() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["contexts"].mask.any()  # type: ignore[attr-defined]
