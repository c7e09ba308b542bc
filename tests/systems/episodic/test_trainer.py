from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.embeddings.settings import Embeddings
from hire.systems.episodic.drawing import random_embeddings
from hire.systems.episodic.trainer import EpisodicTrainer
from hire.systems.registry import BUILT_IN, system_class
from hire.training.settings import RunSettings
from hire.util.settings import paths
from tests.support import small_settings

EPISODIC = ["gmatching", "metar", "fsrl", "faan", "gana", "cian"]


@pytest.fixture
def embeddings(umls: FewShotDataset) -> Embeddings:
    return random_embeddings(len(umls.graph.entities), len(umls.graph.relations), 16, seed=1)


def trainer_of(name: str, dataset: FewShotDataset, embeddings: Embeddings, **changes: object) -> EpisodicTrainer:
    given = {"model__dimension": 16, "training__steps": 60, "training__tasks": 8} | changes
    settings = small_settings(name, **given)
    kind = system_class(name)
    return EpisodicTrainer(kind, dataset, embeddings, settings.settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_the_loss_falls(name: str, loss: str, umls: FewShotDataset, embeddings: Embeddings) -> None:
    batches = "pooled" if loss == "softmax" else "episodes"
    changes = {"model__loss": loss, "training__batches": batches, "optimizer__table_learning_rate": 0.05}
    noise = {path.replace(".", "__"): 0.0 for path in paths(small_settings(name).settings) if "dropout" in path}
    trainer = trainer_of(name, umls, embeddings, **changes, **noise)
    losses = [trainer.train_step() for _ in range(60)]
    assert sum(losses[-15:]) < 0.97 * sum(losses[:15])


@pytest.mark.parametrize("name", EPISODIC)
def test_a_resumed_training_ends_with_the_same_bits(name: str, umls: FewShotDataset, embeddings: Embeddings) -> None:
    whole, first, second = (trainer_of(name, umls, embeddings) for _ in range(3))
    losses = [whole.train_step() for _ in range(6)]
    for _ in range(3):
        first.train_step()
    second.load_state({part: tensor.clone() for part, tensor in first.state().items()})
    assert [second.train_step() for _ in range(3)] == losses[3:]
    one, other = whole.state(), second.state()
    assert all(torch.equal(one[part], other[part]) for part in one)


def test_only_rows_in_use_move(umls: FewShotDataset, embeddings: Embeddings) -> None:
    trainer = trainer_of("gana", umls, embeddings, training__tasks=1, training__queries=1, training__negatives=1)
    before = {name: table.weights.clone() for name, table in trainer.tables.items()}
    batch = trainer.batch(0)
    trainer.train_step(batch)
    assert batch.neighbors is not None
    episodes, near = batch.episodes, batch.neighbors
    used = {
        "entities": {*episodes.references.flatten().tolist(), *episodes.queries.flatten().tolist()}
        | {*episodes.query_negatives.flatten().tolist(), *near.entities[near.mask].tolist()},
        "relations": set(near.relations[near.mask].tolist()),
    }
    for name, table in trainer.tables.items():
        moved = (table.weights != before[name]).any(dim=1).nonzero()[:, 0].tolist()
        assert moved and set(moved) <= used[name]


def test_a_graph_without_edges_has_no_neighbors_and_still_trains(umls: FewShotDataset, embeddings: Embeddings) -> None:
    graph = KnowledgeGraph.of(umls.graph.entities, umls.graph.relations, umls.graph.triples[:0])
    trainer = trainer_of("gana", replace(umls, graph=graph), embeddings)
    assert torch.isfinite(torch.tensor(trainer.train_step()))


@pytest.mark.parametrize("name", [name for name in BUILT_IN if system_class(name).recipes])
def test_recipes_are_settings(name: str) -> None:
    common, published = (RunSettings.of_recipe(name, recipe) for recipe in ("common", "published"))
    assert common == RunSettings.of(name)
    if hasattr(common.settings, "model"):  # conventional embeddings differ in what they are trained on
        assert published.settings.model.loss == "margin" and common.settings.model.loss == "softmax"
