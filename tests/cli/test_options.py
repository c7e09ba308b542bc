from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result


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
