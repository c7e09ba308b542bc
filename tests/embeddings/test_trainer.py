from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.embeddings.scores import EmbeddingName, logits, widths
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer, _negative_loss
from hire.errors import HireError

MODELS = get_args(EmbeddingName)
DIMENSION = 4


def slow(model: EmbeddingName, head: Tensor, relation: Tensor, tail: Tensor) -> float:
    """The score of one triple, as the papers write it."""
    if model == "transe":
        return float(9 - (head + relation - tail).norm())
    if model == "transh":
        d, w = relation[:DIMENSION], relation[DIMENSION:] / relation[DIMENSION:].norm()
        return float(9 - ((head - (w @ head) * w) + d - (tail - (w @ tail) * w)).norm())
    if model == "transd":
        (h, hp), (r, rp), (t, tp) = ((v[:DIMENSION], v[DIMENSION:]) for v in (head, relation, tail))
        return float(9 - ((h + (hp @ h) * rp) + r - (t + (tp @ t) * rp)).norm())
    if model == "distmult":
        return float((head * relation * tail).sum())
    h, r, t = (torch.complex(v[: DIMENSION // 2], v[DIMENSION // 2 :]) for v in (head, relation, tail))
    return float((h * r * t.conj()).sum().real)


def learned(graph: KnowledgeGraph, settings: EmbeddingSettings) -> Embeddings:
    """Embeddings after all steps."""
    trainer = EmbeddingTrainer(graph, settings)
    while trainer.step < trainer.steps:
        trainer.train_step()
    return trainer.embeddings()


@pytest.mark.parametrize("model", MODELS)
def test_scores_equal_those_of_the_papers(model: EmbeddingName) -> None:
    torch.manual_seed(0)
    entity_width, relation_width = widths(model, DIMENSION)
    heads, tails = torch.randn(3, entity_width), torch.randn(5, entity_width)
    relations = torch.randn(3, relation_width)
    found = logits(model, 9.0, heads, relations, tails)
    for i in range(3):
        for j in range(5):
            assert found[i, j].item() == pytest.approx(slow(model, heads[i], relations[i], tails[j]), abs=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_training_raises_true_triples_above_others(umls: FewShotDataset, model: EmbeddingName) -> None:
    settings = EmbeddingSettings(model, dimension=16, batch_size=128, negatives=64, steps=400, learning_rate=2e-2)
    found = learned(umls.graph, settings)
    heads, relations, tails = torch.from_numpy(np.array(umls.graph.triples, np.int64)).T
    for source, kind, target in ((heads, relations, tails), (tails, relations + len(umls.graph.relations), heads)):
        scores = logits(model, 9.0, found.entities[source], found.relations[kind], found.entities)
        rank = (scores > scores.gather(1, target[:, None])).sum(dim=1).float().mean().item()
        assert rank < 0.4 * len(umls.graph.entities) / 2  # chance is a half of all; several tails are true


def test_the_same_seed_gives_the_same_embeddings(umls: FewShotDataset) -> None:
    settings = [EmbeddingSettings(dimension=8, batch_size=32, negatives=16, steps=20, seed=seed) for seed in (3, 3, 4)]
    first, second, third = (learned(umls.graph, chosen).entities for chosen in settings)
    assert torch.equal(first, second) and not torch.equal(first, third)


def test_training_goes_on_where_it_was_left(umls: FewShotDataset) -> None:
    settings = EmbeddingSettings(dimension=8, batch_size=32, negatives=16, steps=20)
    first, second = (EmbeddingTrainer(umls.graph, settings) for _ in range(2))
    for _ in range(7):
        first.train_step()
    second.load_state({name: part.clone() for name, part in first.state().items()})
    while second.step < second.steps:
        second.train_step()
    whole = learned(umls.graph, settings)
    assert torch.equal(second.embeddings().entities, whole.entities)
    assert torch.equal(second.embeddings().relations, whole.relations)


def test_a_small_graph_takes_no_more_than_its_epochs(umls: FewShotDataset) -> None:
    both_directions = 2 * len(umls.graph.triples)
    trainer = EmbeddingTrainer(umls.graph, EmbeddingSettings(dimension=8, batch_size=100, epochs=3))
    assert trainer.steps == -(-3 * both_directions // 100)
    assert EmbeddingTrainer(umls.graph, EmbeddingSettings(dimension=8, steps=5)).steps == 5


@pytest.mark.parametrize("model", ["complex", "complex-n3"])
def test_complex_vectors_need_two_halves(umls: FewShotDataset, model: EmbeddingName) -> None:
    with pytest.raises(HireError, match="7 dimensions are odd"):
        EmbeddingTrainer(umls.graph, EmbeddingSettings(model, dimension=7))


@pytest.mark.parametrize("model", MODELS)
def test_the_regularizer_is_the_sum_of_cubes(umls: FewShotDataset, model: EmbeddingName) -> None:
    def loss(regularization: float) -> float:
        settings = EmbeddingSettings(model, dimension=4, batch_size=3, negatives=2, regularization=regularization)
        trainer = EmbeddingTrainer(umls.graph, settings)
        return trainer.loss(trainer.batch(0)).value.item()

    trainer = EmbeddingTrainer(umls.graph, EmbeddingSettings(model, dimension=4, batch_size=3, negatives=2))
    batch, cubes = trainer.batch(0), 0.0
    for rows, table in ((batch.heads, "entities"), (batch.relations, "relations"), (batch.tails, "entities")):
        for row in rows:
            vector = trainer.tables[table].weights[row]
            absolute = vector if model == "distmult" else torch.complex(vector[:2], vector[2:4])
            cubes += float(absolute.abs().pow(3).sum()) / 3
    expected = 10 * cubes if model in ("distmult", "complex-n3") else 0.0
    assert loss(10.0) - loss(0.0) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("adversarial", [0.0, 0.5, 1.0])
def test_the_quick_loss_of_transe_is_the_plain_one(adversarial: float) -> None:
    heads, relations = torch.randn(2, 7, 5, dtype=torch.float64)
    negatives = torch.cat([torch.randn(6, 5, dtype=torch.float64), heads[:1] + relations[:1]])  # one is at its head
    settings = EmbeddingSettings(adversarial=adversarial, margin=3.0)

    def loss_and_gradients(model: EmbeddingName) -> list[Tensor]:
        parts = [part.clone().requires_grad_() for part in (heads, relations, negatives)]
        if model == "transd":  # with no projections it is TransE, and takes the plain way
            nothing = torch.zeros(7, 5, dtype=torch.float64)
            given = [torch.cat([part, nothing[: len(part)]], dim=-1) for part in parts]
        else:
            given = parts
        loss = _negative_loss(replace(settings, model=model), *given)
        return [loss, *torch.autograd.grad(3 * loss, parts)]

    for quick, plain in zip(loss_and_gradients("transe"), loss_and_gradients("transd"), strict=True):
        assert torch.allclose(quick, plain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("adversarial", [1.0, 0.5])
def test_the_loss_of_transh_equals_that_of_its_scores(adversarial: float) -> None:
    torch.manual_seed(0)
    settings = EmbeddingSettings(model="transh", dimension=DIMENSION, margin=3.0, adversarial=adversarial)
    shapes = (6, DIMENSION), (6, 2 * DIMENSION), (9, DIMENSION)
    heads, relations, negatives = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    scores = logits("transh", settings.margin, heads, relations, negatives)
    weight = torch.softmax(adversarial * scores.detach(), dim=-1)
    plain = (weight * torch.nn.functional.softplus(scores)).sum(-1).mean()
    quick = _negative_loss(settings, heads, relations, negatives)
    assert torch.allclose(quick, plain)
    found, expected = (torch.autograd.grad(3 * loss, [heads, relations, negatives]) for loss in (quick, plain))
    assert all(torch.allclose(one, other, atol=1e-9) for one, other in zip(found, expected, strict=True))
