from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.episodic.drawing import adaptation_negatives, random_embeddings
from hire.systems.episodic.trainer import EpisodicTrainer
from hire.systems.gana import Gana, GanaModelSettings, GanaNetwork, GanaSettings, ReferenceEncoder
from hire.training.settings import RunSettings
from tests.systems.within_margin import tasks_kept

DIMENSION = 6
MODEL = GanaModelSettings(
    dimension=DIMENSION, hidden=5, loss="margin", inner_rate=0.7, inner_negatives=4, max_neighbors=7
)


def system_of(dataset: FewShotDataset) -> Gana:
    torch.manual_seed(0)
    network = GanaNetwork(MODEL)
    tensors = {
        "entities": torch.randn(len(dataset.graph.entities), DIMENSION),
        "relations": torch.randn(2 * len(dataset.graph.relations), DIMENSION),
        **{f"network.{name}": tensor for name, tensor in network.state_dict().items()},
    }
    return Gana.restore(dataset, replace(GanaSettings(), model=MODEL), tensors)


def network_of(system: Gana) -> GanaNetwork:
    assert isinstance(system.network, GanaNetwork)
    return system.network


def aggregated(system: Gana, entity: int, hidden: int) -> Tensor:
    """e' = g c + (1 - g) e, neighbor by neighbor."""
    of, graph = network_of(system).aggregator, system.graph
    tuples: list[Tensor] = []
    for relation, other in graph.neighbors_of(entity, None).tolist():
        if relation % len(graph.relations) != hidden and len(tuples) < MODEL.max_neighbors:
            tuples.append(
                nn.functional.leaky_relu(of.neighbor(torch.cat([system.relations[relation], system.entities[other]])))
            )
    weights = torch.softmax(torch.stack([of.attention(c)[0] for c in tuples]), dim=0)
    around = sum((weight * c for weight, c in zip(weights, tuples, strict=True)), torch.zeros(DIMENSION))
    gate = torch.sigmoid(of.gate(around))
    found: Tensor = gate * around + (1 - gate) * system.entities[entity]
    return found


def lstm_direction(lstm: nn.LSTM, suffix: str, inputs: list[Tensor]) -> list[Tensor]:
    """The hidden states of one layer in one direction, step by step."""
    weights = {name: getattr(lstm, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    hidden = cell = torch.zeros(lstm.hidden_size)
    states = []
    for x in inputs:
        gates = weights["weight_ih"] @ x + weights["bias_ih"] + weights["weight_hh"] @ hidden + weights["bias_hh"]
        enter, forget, new, leave = gates.chunk(4)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        states.append(hidden)
    return states


def encoded(encoder: ReferenceEncoder, references: list[Tensor]) -> Tensor:
    """The attentive Bi-LSTM of references in order."""
    outputs = references
    for layer in range(encoder.lstm.num_layers):
        forward = lstm_direction(encoder.lstm, f"l{layer}", outputs)
        backward = lstm_direction(encoder.lstm, f"l{layer}_reverse", outputs[::-1])[::-1]
        outputs = [torch.cat(both) for both in zip(forward, backward, strict=True)]
    final = torch.cat([forward[-1], backward[0]])
    weights = torch.softmax(torch.stack([m @ final for m in outputs]), dim=0)
    mean = sum((weight * m for weight, m in zip(weights, outputs, strict=True)), torch.zeros(2 * MODEL.hidden))
    found: Tensor = encoder.output(mean)
    return found


def distance(head: Tensor, tail: Tensor, relation: Tensor, direction: Tensor) -> Tensor:
    """||h_perp + r - t_perp|| with the projection matrix written out."""
    unit = direction / direction.norm()
    matrix = torch.eye(DIMENSION) - torch.outer(unit, unit)
    found: Tensor = (matrix @ head + relation - matrix @ tail).norm()
    return found


@pytest.mark.parametrize("shots", [1, 3])
def test_it_computes_the_equations_of_its_paper(umls: FewShotDataset, shots: int) -> None:
    system, hidden = system_of(umls), int(umls.graph.background_relations[3])
    candidates = np.arange(5, 40)
    pairs = np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    vectors = system.entities
    references = [torch.cat([aggregated(system, int(end), hidden) for end in pair]) for pair in pairs]
    relation = encoded(network_of(system).encoder, references).detach().requires_grad_()
    direction = network_of(system).direction.detach().clone().requires_grad_()
    negatives = adaptation_negatives(system.seed, pairs[:, 1], len(candidates), candidates, 4)
    loss = torch.zeros(())
    for h, t in pairs:
        for false in negatives:
            true = distance(vectors[h], vectors[t], relation, direction)
            loss = loss + torch.relu(MODEL.margin + true - distance(vectors[h], vectors[false], relation, direction))
    gradients = torch.autograd.grad(loss / shots / len(negatives), (relation, direction))
    refined = [
        part - MODEL.inner_rate * gradient for part, gradient in zip((relation, direction), gradients, strict=True)
    ]
    state = system.adapt(Support(pairs, candidates, relation=hidden))
    for found, expected in zip(state.relation, refined, strict=True):
        assert torch.allclose(found[0], expected, atol=1e-5)
    scores = system.score(state, np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            expected = -distance(vectors[head], vectors[tail], *refined)
            assert scores[row, column].item() == pytest.approx(expected.item(), abs=1e-4)


def test_only_the_neighbors_of_references_are_looked_at(umls: FewShotDataset) -> None:
    system = system_of(umls)
    pairs = np.array([(1, 7), (2, 9)])
    before = system.score(system.adapt(Support(pairs)), np.array([3]), np.arange(30))
    system.relations = system.relations + 1
    assert not torch.allclose(system.score(system.adapt(Support(pairs)), np.array([3]), np.arange(30)), before)
    assert not system.network.neighbors_of_queries


def test_a_step_is_the_same_without_the_tasks_within_the_margin(
    umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: dict[str, object] = {"model.dimension": 12, "model.hidden": 8, "model.margin": 0.05}
    small |= {"training.tasks": 24, "training.shots": [1], "training.queries": 1}
    small |= {"optimizer.learning_rate": 0.02, "optimizer.table_learning_rate": 0.02}
    settings = RunSettings.of_recipe("gana", "published").changed(small).settings
    embeddings = random_embeddings(len(umls.graph.entities), len(umls.graph.relations), 12, seed=1)
    trainer = EpisodicTrainer(Gana, umls, embeddings, settings)
    assert trainer.network.rate == 0.5
    assert 0 < min(tasks_kept(trainer, GanaNetwork, monkeypatch, 24)) < 16


def test_dropout_falls_on_what_the_aggregator_sees_once_for_each(umls: FewShotDataset) -> None:
    settings = RunSettings.of_recipe("gana", "published").changed({"model.dimension": 12}).settings
    embeddings = random_embeddings(len(umls.graph.entities), len(umls.graph.relations), 12, seed=1)
    trainer = EpisodicTrainer(Gana, umls, embeddings, settings)
    batch = trainer.batch(0)
    (references, _), _ = trainer._pairs(*batch)
    network = trainer.network.train()
    assert isinstance(network, GanaNetwork)
    seen = network.seen(references)
    kept = seen.heads.table / references.heads.table
    assert set(kept.round(decimals=3).flatten().tolist()) == {0.0, 2.0}
    assert seen.heads.table is seen.tails.table is seen.tails.neighbors.entity_table
    assert references.negatives is seen.negatives
    assert network.eval().seen(references) is references
