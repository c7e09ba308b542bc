from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result

from hire.embeddings.settings import EmbeddingSettings
from hire.evaluation.ranking import evaluate_draws
from hire.inference.model import load
from hire.systems.ensemble import Ensemble
from hire.systems.mean_translation import MeanTranslation
from hire.training import embedding
from hire.training.settings import preset


def _draws_that_hire_wins(run: Path) -> int:
    """In how many draws of the references the HiRe of a demo ranks the test tasks better than TransE."""
    trained = load(run)
    assert isinstance(trained.system, Ensemble)
    transe = MeanTranslation(embedding.embeddings_of(trained.dataset, EmbeddingSettings()).entities)
    hire, other = (
        evaluate_draws(system, trained.dataset, "test", 3, 10)["draws"]
        for system in (trained.system.members["hire"], transe)
    )
    return sum(of_hire["mrr"] > of_other["mrr"] for of_hire, of_other in zip(hire, other, strict=True))


def test_it_trains_compares_and_answers(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short_embeddings = preset("levels").changed({"embedding.steps": 20})
    monkeypatch.setattr("hire.training.settings.preset", lambda _name: short_embeddings)
    learned = embedding.embeddings_of
    monkeypatch.setattr(
        embedding, "embeddings_of", lambda of, settings, *rest: learned(of, replace(settings, steps=20), *rest)
    )
    short = ("demo", "--path-steps", "1", "--steps")
    first = run(*short, "3")
    assert first.exit_code == 0
    for expected in (
        "popularity",
        "TransE",
        "HiRe",
        "mean of 10 draws",
        f"in {_draws_that_hire_wins(tmp_path / 'runs' / 'demo')} of the 10 draws",
        "Taught: ",
        "part_of",
        "confidence",
        "curves.svg",
    ):
        assert expected in first.stdout
    assert (tmp_path / "runs" / "demo" / "members" / "hire" / "curves.svg").is_file()
    served: list[Path] = []
    monkeypatch.setattr(import_module("hire.cli.demo"), "serve_model", served.append)
    again = run(*short, "3", "--serve")
    in_the_browser = "In the browser: hire serve runs/demo\n"
    assert again.exit_code == 0 and again.stdout == first.stdout.replace(in_the_browser, "")
    assert in_the_browser in first.stdout and served == [Path("runs/demo")]
    other = run(*short, "4")
    assert other.exit_code == 2 and "steps is 4, was 3" in other.output
