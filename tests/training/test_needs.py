from __future__ import annotations

from pathlib import Path

import pytest

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.training.embedding import embeddings_of
from hire.training.needs import check_training, training_needs
from hire.training.pipeline import train_run
from hire.training.settings import RunSettings, preset
from hire.util import memory
from hire.util.memory import MIB, Available


@pytest.mark.parametrize("name", ["hire", "metar", "path", "levels"])
def test_ordinary_trainings_of_small_graphs_fit_anywhere(
    umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: Available(600 * MIB, "the machine"))
    settings = preset(name) if name == "levels" else RunSettings.of(name)
    check_training(umls, settings.system, settings.settings)


def test_what_is_needed_grows_with_the_sizes(umls: FewShotDataset) -> None:
    small, wide, many = (
        training_needs(umls, RunSettings.of("hire").changed(changes).settings)
        for changes in ({}, {"model.dimension": 200}, {"training.tasks": 64})
    )
    assert wide["the network"] == 4 * small["the network"]
    assert wide["the tables of entities"] == 2 * small["the tables of entities"]
    assert many["a step"] == 2 * small["a step"]


def test_a_training_that_cannot_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    for changes in ({"hire.model.dimension": 65_536}, {"hire.training.tasks": 10_000_000}):
        with pytest.raises(HireError, match=r"this training needs .* MiB of memory or more"):
            train_run("umls-one", tmp_path / "run", preset("levels").changed(changes))
        assert not (tmp_path / "run").exists()


def test_embeddings_that_cannot_fit_are_refused(umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: Available(500 * MIB, "the machine"))
    with pytest.raises(HireError, match="learning these embeddings needs"):
        embeddings_of(umls, EmbeddingSettings(dimension=65_536))
