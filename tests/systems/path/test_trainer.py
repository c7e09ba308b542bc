from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.systems.path.settings import PathSettings, PathTrainingSettings
from hire.systems.path.tasks import NEVER
from hire.systems.path.trainer import PathTrainer
from hire.training.run import load_optimizer, optimizer_tensors

SMALL = PathSettings(channels=4, kind_width=8, readout_width=8, members=2)
SHORT = PathTrainingSettings(steps=6, tasks=2, queries=4, hard_negatives=6, random_negatives=5, seed=3)


def weights_of(trainer: PathTrainer) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in trainer.model().network.state_dict().values()]


@pytest.fixture
def trainer(umls: FewShotDataset) -> PathTrainer:
    return PathTrainer(umls, SMALL, SHORT)


def test_the_same_seed_gives_the_same_model_bit_for_bit(umls: FewShotDataset, trainer: PathTrainer) -> None:
    trainer.train()
    again = PathTrainer(umls, SMALL, SHORT)
    for step in range(SHORT.steps):  # drawn one by one instead of ahead
        assert again.step == step
        again.train_step()
    other = PathTrainer(umls, SMALL, replace(SHORT, seed=4))
    other.train()
    assert all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(again), strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(other), strict=True))


def test_training_goes_on_where_it_was_left(umls: FewShotDataset, trainer: PathTrainer) -> None:
    first = PathTrainer(umls, SMALL, SHORT)
    for _ in range(3):
        first.train_step()
    torch.rand(7)  # whatever happens in between
    second = PathTrainer(umls, SMALL, SHORT)
    load_optimizer(second.optimizer, {name: part.clone() for name, part in optimizer_tensors(first.optimizer).items()})
    second.network.load_state_dict(first.network.state_dict())
    second.averaged_network.load_state_dict(first.averaged_network.state_dict())
    second.step = first.step
    second.train()
    trainer.train()
    assert second.step == SHORT.steps
    assert all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(second), strict=True))


def test_negatives_are_false_and_stand_for_all_others(umls: FewShotDataset, trainer: PathTrainer) -> None:
    tasks = trainer.tasks
    generator = np.random.default_rng(0)
    for number, task in enumerate(tasks.tasks[:8]):
        drawn = tasks.draw(generator, number)
        pairs = {(int(head), int(tail)) for head, tail in task.pairs}
        for head, tails, weights in zip(drawn.heads, drawn.tails, drawn.stands_for, strict=True):
            assert (int(head), int(tails[0])) in pairs
            negatives = tails[1:][weights[1:] > NEVER]
            assert not any((int(head), int(tail)) in pairs for tail in negatives)
            assert len(set(negatives.tolist())) == len(negatives)
            false = len(task.candidates) - sum(one == head for one, _ in pairs)
            assert np.exp(weights[1:][weights[1:] > NEVER]).sum() == pytest.approx(false, rel=1e-4)
        reference_pairs = {(int(head), int(tail)) for head, tail in drawn.evidence.pairs}
        assert reference_pairs <= pairs
        assert drawn.evidence.hidden == task.relation % len(umls.graph.relations)


def test_too_few_facts_are_told(umls: FewShotDataset) -> None:
    with pytest.raises(HireError, match="no relation has 5005 triples"):
        PathTrainer(umls, SMALL, replace(SHORT, shots=(5000,)))


def test_it_learns(umls: FewShotDataset) -> None:
    trainer = PathTrainer(umls, SMALL, replace(SHORT, steps=15, rate=2e-2, averaging=5))
    before = evaluate(trainer.model(), umls, "dev", 3)["realistic"]["mrr"]
    trainer.train()
    assert evaluate(trainer.model(), umls, "dev", 3)["realistic"]["mrr"] > before + 0.2


def test_a_small_graph_takes_no_more_than_one_pass(umls: FewShotDataset) -> None:
    settings = PathTrainingSettings()
    trainer = PathTrainer(umls, SMALL, settings)
    assert (trainer.steps - 1) * settings.tasks * settings.queries < len(trainer.tasks) < settings.steps * 64
    assert PathTrainer(umls, SMALL, PathTrainingSettings(steps=3)).steps == 3
