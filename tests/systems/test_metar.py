from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.episodic.drawing import adaptation_negatives, random_embeddings
from hire.systems.episodic.trainer import EpisodicTrainer
from hire.systems.metar import MetaR, MetaRModelSettings, MetaRNetwork, MetaRSettings
from hire.training.settings import RunSettings
from tests.systems.within_margin import tasks_kept

DIMENSION = 6
MODEL = MetaRModelSettings(
    dimension=DIMENSION, hidden=(7, 5), loss="margin", inner_rate=0.7, inner_negatives=4, normalized=False
)


def system_of(dataset: FewShotDataset, model: MetaRModelSettings) -> MetaR:
    torch.manual_seed(0)
    network, entities = MetaRNetwork(model), torch.randn(len(dataset.graph.entities), DIMENSION)
    weights = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    return MetaR.restore(dataset, replace(MetaRSettings(), model=model), {"entities": entities, **weights})


def learner_of(system: MetaR) -> torch.nn.Sequential:
    assert isinstance(system.network, MetaRNetwork)
    return system.network.learner


def learned(system: MetaR, head: NDArray[np.float64], tail: NDArray[np.float64]) -> NDArray[np.float64]:
    """R of one reference (Eq. 1)."""
    x = np.concatenate([head, tail])
    layers = [layer for layer in learner_of(system) if isinstance(layer, torch.nn.Linear)]
    for i, layer in enumerate(layers):
        x = layer.weight.detach().double().numpy() @ x + layer.bias.detach().double().numpy()
        x = x if i == len(layers) - 1 else np.where(x > 0, x, 0.01 * x)
    return x


def direction(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient of a norm."""
    return np.asarray(difference / np.linalg.norm(difference))


def plain(system: MetaR, pairs: list[tuple[int, int]], negatives: list[int]) -> NDArray[np.float64]:
    """R' of some references (Eq. 1-6)."""
    vectors = system.entities.double().numpy()
    relation = sum(learned(system, vectors[h], vectors[t]) for h, t in pairs) / len(pairs)  # (Eq. 2)
    gradient = np.zeros(DIMENSION)
    for h, t in pairs:
        for false in negatives:
            true, other = vectors[h] + relation - vectors[t], vectors[h] + relation - vectors[false]  # (Eq. 3)
            if MODEL.margin + np.linalg.norm(true) - np.linalg.norm(other) > 0:  # (Eq. 4)
                gradient += (direction(true) - direction(other)) / len(pairs) / len(negatives)  # (Eq. 5)
    return np.asarray(relation - MODEL.inner_rate * gradient)  # (Eq. 6)


@pytest.mark.parametrize("shots", [1, 3])
def test_it_computes_the_equations_of_its_paper(umls: FewShotDataset, shots: int) -> None:
    system = system_of(umls, MODEL)
    candidates = np.arange(5, 40)
    pairs = np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    negatives = adaptation_negatives(system.seed, pairs[:, 1], len(candidates), candidates, 4)
    relation = plain(system, [(int(h), int(t)) for h, t in pairs], negatives.tolist())
    state = system.adapt(Support(pairs, candidates))
    assert np.allclose(state.relation.translation[0].numpy(), relation, atol=1e-5)
    vectors = system.entities.double().numpy()
    scores = system.score(state, np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            expected = -np.linalg.norm(vectors[head] + relation - vectors[tail])  # (Eq. 7)
            assert scores[row, column].item() == pytest.approx(expected, abs=1e-4)


def test_its_scale_is_that_of_the_batch_and_its_number_of_references_is_free(umls: FewShotDataset) -> None:
    system = system_of(umls, replace(MODEL, normalized=True))
    learner = learner_of(system).train()
    hidden = learner[1](torch.randn(8, 3, 7) * 5 + 2)
    assert hidden.mean().abs() < 1e-5 and hidden.std().item() == pytest.approx(1, abs=0.01)
    assert learner(torch.randn(2, 9, 2 * DIMENSION)).shape == (2, 9, DIMENSION)


def published(dataset: FewShotDataset, **changes: object) -> EpisodicTrainer:
    """A small trainer in the recipe `published`."""
    small = {"model.dimension": 12, "model.hidden": [16, 8], "training.tasks": 24, "training.shots": [2]}
    small |= {"training.min_facts": 4, "optimizer.learning_rate": 0.02, "optimizer.table_learning_rate": 0.02}
    changed = {path.replace("__", "."): value for path, value in changes.items()}
    settings = RunSettings.of_recipe("metar", "published").changed(small | changed).settings
    embeddings = random_embeddings(len(dataset.graph.entities), len(dataset.graph.relations), 12, seed=1)
    return EpisodicTrainer(MetaR, dataset, embeddings, settings)


def test_from_some_step_on_dropout_and_scales_are_those_of_evaluation(umls: FewShotDataset) -> None:
    trainer = published(umls, model__settled_after=3, model__dropout=0.5, model__normalized=True)
    network, scales, modes = trainer.network, [], []
    assert isinstance(network, MetaRNetwork)
    for _ in range(6):
        trainer.train_step()
        scales.append({name: buffer.clone() for name, buffer in network.named_buffers()})
        modes.append(network.learner.training)
    assert modes == 3 * [True] + 3 * [False] and network.training  # its inner step stays that of training
    assert len({scale["learner.1.norm.running_mean"].item() for scale in scales[:3]}) == 3
    assert all(torch.equal(scale[part], scales[2][part]) for scale in scales[3:] for part in scale)


def test_the_inner_step_of_training_may_be_another_one(umls: FewShotDataset) -> None:
    trainer = published(umls, model__training_inner_rate=0.25, model__inner_rate=4.0)
    network, (known, _) = trainer.network, trainer._pairs(trainer.batch(0).episodes, None)[0]
    assert isinstance(network, MetaRNetwork)
    learned = network.learn(known).translation
    training, evaluation = (network.train(mode).adapt(known).translation - learned for mode in (True, False))
    assert training.norm() > 0 and torch.allclose(16 * training, evaluation, atol=1e-5)


def test_a_step_is_the_same_without_the_tasks_within_the_margin(
    umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = {"model__dropout": 0.5, "model__normalized": True}
    trainer = published(umls, model__settled_after=2, model__margin=0.01, training__queries=1, **noise)
    kept = tasks_kept(trainer, MetaRNetwork, monkeypatch, 24)
    assert len(kept) == 58 and 0 < min(kept) < 12  # in the first two steps it is drawn anew what to drop


def test_a_step_in_which_all_tasks_are_within_the_margin(umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = published(umls)
    losses = MetaRNetwork.losses
    monkeypatch.setattr(MetaRNetwork, "losses", lambda *given: 0 * losses(*given))
    before = trainer.system().entities.clone()
    assert [trainer.train_step() for _ in range(3)] == [0, 0, 0]
    assert torch.equal(trainer.system().entities, before)
