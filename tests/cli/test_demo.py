from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result

from hire.training.settings import preset


def test_it_trains_compares_and_answers(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short_embeddings = preset("levels").changed({"embedding.steps": 20})
    monkeypatch.setattr("hire.training.settings.preset", lambda _name: short_embeddings)
    short = ("demo", "--path-steps", "1", "--steps")
    first = run(*short, "3")
    assert first.exit_code == 0
    for expected in (
        "popularity",
        "TransE",
        "HiRe",
        "Taught: ",
        "part_of",
        "confidence",
        "curves.svg",
        "hire serve runs/demo",
    ):
        assert expected in first.stdout
    assert (tmp_path / "runs" / "demo" / "members" / "hire" / "curves.svg").is_file()
    again = run(*short, "3")
    assert again.exit_code == 0 and again.stdout == first.stdout
    other = run(*short, "4")
    assert other.exit_code == 2 and "steps is 4, was 3" in other.output
    served: list[Path] = []
    monkeypatch.setattr(import_module("hire.cli.demo"), "serve_model", served.append)
    assert run(*short, "3", "--serve").exit_code == 0 and served == [Path("runs/demo")]
