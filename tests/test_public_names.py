from __future__ import annotations

import re
from pathlib import Path

import pytest

import hire
from hire.training.settings import preset


def test_every_public_name_is_there() -> None:
    assert set(hire._HOMES) == set(hire.__all__) <= set(dir(hire))
    for name in hire.__all__:
        assert getattr(hire, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = hire.nonsense


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    short = preset().changed(training={"steps": 2, "tasks": 4}, embedding={"steps": 20}, path_training={"steps": 1})
    monkeypatch.setattr("hire.training.pipeline.preset", lambda: short)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.count("Answer(tail=") == 5
