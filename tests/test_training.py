from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hire.datasets import FewShotDataset
from hire.embeddings import Embeddings
from hire.evaluation import evaluate
from hire.models.hire import HireSettings
from hire.training import HireTrainer, TrainingSettings

MODEL = HireSettings(dimension=16, inner_negatives=32)
TRAINING = TrainingSettings(steps=150, tasks=8, queries=16, negatives=32, inner_negatives=16, context_references=4)


@pytest.fixture(scope="module")
def embeddings(umls: FewShotDataset) -> Embeddings:
    generator = torch.Generator().manual_seed(0)
    return Embeddings(
        torch.randn(len(umls.graph.entities), 16, generator=generator),
        torch.randn(2 * len(umls.graph.relations), 16, generator=generator),
    )


def state_of(trainer: HireTrainer) -> dict[str, torch.Tensor]:
    tables = {name: getattr(trainer, name).weights for name in ("entities", "projections", "relations")}
    return tables | trainer.network.state_dict()


def test_training_helps_with_unseen_relations(umls: FewShotDataset, embeddings: Embeddings) -> None:
    trainer = HireTrainer(umls, embeddings, MODEL, TRAINING)
    untrained = evaluate(trainer.model(), umls, "dev", 3)["realistic"]["mrr"]
    losses = [trainer.train_step() for _ in range(TRAINING.steps)]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
    trained = evaluate(trainer.model(), umls, "dev", 3)["realistic"]["mrr"]
    assert trained > 1.5 * untrained > 0


def test_the_same_seed_gives_the_same_run_bit_for_bit(umls: FewShotDataset, embeddings: Embeddings) -> None:
    first, second, third = (HireTrainer(umls, embeddings, MODEL, replace(TRAINING, seed=seed)) for seed in (3, 3, 4))
    for trainer in (first, second, third):
        for _ in range(5):
            trainer.train_step()
    one, other, different = map(state_of, (first, second, third))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["entities"], different["entities"])


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder": "mtranse"},
        {"decoder": "mtransh"},
        {"learner": "mean"},
        {"learner": "lstm"},
        {"inner_steps": 0},
        {"inner_steps": 2},
        {"second_order": False},
        {"context_weight": 0.0},
        {"false_contexts": 3},
        {"loss": "margin"},
        {"residual": False},
    ],
)
def test_every_switch_trains(umls: FewShotDataset, embeddings: Embeddings, changes: dict[str, object]) -> None:
    trainer = HireTrainer(umls, embeddings, replace(MODEL, **changes), TRAINING)  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in state_of(trainer).items()}
    losses = [trainer.train_step() for _ in range(3)]
    assert all(loss == loss and loss > 0 for loss in losses)
    moved = {name for name, value in state_of(trainer).items() if not torch.equal(value, before[name])}
    assert "entities" in moved
    assert ("relations" in moved) == (changes.get("context_weight") != 0.0)
    assert ("projections" in moved) == (changes.get("decoder", "mtransd") == "mtransd")
    assert not any(value.isnan().any() for value in state_of(trainer).values())
