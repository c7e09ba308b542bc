from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from hypothesis import settings

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset

torch.set_num_threads(1)  # the tests' tensors are small
settings.register_profile("any machine", deadline=None)  # a busy one takes longer, which is no failure
settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
DATA_PLACES = (ROOT / "data", ROOT.parent / "shared" / "data")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def benchmark_directory(name: str, variable: str) -> Path | None:
    """Where a published benchmark is, if it is here: where an environment variable says, or in a folder for data."""
    given = os.environ.get(variable)
    places = [Path(given)] if given else [place / name for place in DATA_PLACES]
    return next((place for place in places if (place / "path_graph").exists()), None)


@pytest.fixture(scope="session")
def nell_one_directory() -> Path:
    place = benchmark_directory("nell-one", "HIRE_NELL_ONE")
    if place is None:
        pytest.skip("NELL-One is not here: `hire data get nell-one` fetches it, or HIRE_NELL_ONE says where it is")
    return place


@pytest.fixture(scope="session")
def nell_one(nell_one_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> FewShotDataset:
    from hire.data.published.read import read_published

    return read_published(nell_one_directory)


@pytest.fixture(scope="session")
def fb15k237_one_directory() -> Path:
    place = benchmark_directory("fb15k237-one", "HIRE_FB15K237_ONE")
    if place is None:
        pytest.skip("FB15k237-One is not here: HIRE_FB15K237_ONE says where it is")
    return place


@pytest.fixture(scope="session")
def umls() -> FewShotDataset:
    return open_dataset("umls-one")


@pytest.fixture(scope="session")
def umls_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps, calibrated."""
    from hire.inference.calibrate import calibrate
    from hire.inference.fit import fit
    from hire.inference.model import load
    from hire.training.settings import preset

    settings = preset("fast").changed(
        {
            "model.dimension": 16,
            "model.learner_start": 0.1,
            "training.steps": 3,
            "training.tasks": 4,
            "embedding.steps": 20,
            "embedding.dimension": 16,
        }
    )
    directory = tmp_path_factory.mktemp("runs") / "umls"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        fit("umls-one", directory, settings, calibrate=False)
    calibrate(load(directory), directory, (1, 3), draws=1)
    return directory


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run `hire` in this process, through its own error handling."""

    def run_hire(*arguments: str | Path) -> Result:
        from hire import cli, progress

        class Main:
            name = "hire"

            @staticmethod
            def main(args: list[str], **_: Any) -> None:
                cli.main(args)

        try:
            return CliRunner().invoke(Main(), [str(argument) for argument in arguments])  # type: ignore[arg-type]
        finally:
            progress.show(False)

    return run_hire


def random_triples(
    seed: int = 0, entities: int = 60, relations: dict[str, int] | None = None
) -> list[tuple[str, str, str]]:
    """Distinct random triples, with so many of each relation."""
    generator = np.random.default_rng(seed)
    found: dict[tuple[str, str, str], None] = {}
    for relation, count in (relations or {"few": 20, "a": 60, "b": 70, "c": 80, "d": 90, "many": 600}).items():
        pairs = generator.permutation(entities * entities)[:count]
        found.update({(f"e{pair // entities}", relation, f"e{pair % entities}"): None for pair in pairs})
    triples = list(found)
    return [triples[i] for i in generator.permutation(len(triples))]


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    """A small graph as a .tsv file."""
    path = tmp_path / "graph.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in random_triples()))
    return path


def write_layout(directory: Path, **changes: Any) -> Path:
    """A tiny dataset in the published layout; a change is the text or the JSON of a file, or None to leave it out."""
    tasks = {
        "train": {"r1": [["a", "r1", "b"], ["b", "r1", "c"], ["c", "r1", "d"]]},
        "dev": {"r2": [["a", "r2", "c"], ["b", "r2", "d"]]},
        "test": {"r3": [["a", "r3", "d"], ["d", "r3", "a"], ["a", "r3", "b"]]},
    }
    true: dict[str, list[str]] = {}
    for of_split in tasks.values():
        for relation, triples in of_split.items():
            for head, _, tail in triples:
                true.setdefault(head + relation, []).append(tail)
    contents: dict[str, Any] = {
        "path_graph": "a\tlinks\tb\nb\tlinks\tc\nc\tlikes\ta\nd\tlikes\tb\n",
        **{f"{split}_tasks.json": of_split for split, of_split in tasks.items()},
        "rel2candidates.json": {relation: ["a", "b", "c", "d"] for relation in ("r1", "r2", "r3")},
        "e1rel_e2.json": true,
        "ent2ids": {"b": 0, "a": 1, "c": 2, "d": 3},
        "relation2ids": {"links": 0, "links_inv": 1, "likes": 2, "likes_inv": 3},
    }
    contents |= {name.replace("__", "."): change for name, change in changes.items()}
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        elif content is not None:
            (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return directory
