from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result

from hire.cli import main
from hire.comparison import run as comparison_run
from hire.errors import HireError


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "RUN", "--split", "dev", "--shots", "1", "--json"),
        ("calibrate", "RUN", "--check", "dev", "--shots", "1", "--draws", "1", "--json"),
        ("predict", "RUN", "--references", "REFERENCES", "--head", "plant"),
        ("compare", "umls-one", "--systems", "any-link", "--shots", "1", "--seeds", "1", "--plan", "--json"),
    ],
)
def test_commands_that_ask_a_model_use_one_thread(
    run: Callable[..., Result], umls_run: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    references = tmp_path / "references.tsv"
    references.write_text("tissue\tcell\n")
    places = {"RUN": str(umls_run), "REFERENCES": str(references)}
    torch.set_num_threads(2)
    try:
        result = run(*(places.get(argument, argument) for argument in arguments))
        assert result.exit_code == 0, result.output
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "umls-one", "--systems", "mean-translation", "--shots", "1"),
        ("reproduce", "comparison", "--dataset", "umls-one"),
    ],
)
def test_comparisons_train_with_as_many_threads_as_are_asked_for(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    used: list[int] = []

    def train_run(*_arguments: object, threads: int, **_options: object) -> dict[str, object]:
        used.append(threads)
        raise HireError("enough")

    monkeypatch.setattr(comparison_run, "embeddings_of", lambda *arguments: used.append(arguments[-1]))
    monkeypatch.setattr(comparison_run, "train_run", train_run)
    run(*command, "--seeds", "1", "--threads", "3", "-o", str(tmp_path))
    assert len(used) > 1 and set(used) == {3}


@pytest.mark.parametrize("command", [["calibrate"], ["predict"], ["data", "stats"]])
def test_an_argument_with_a_nul_character_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "run\0"])
    assert ended.value.code == 2 and "NUL" in capsys.readouterr().err
