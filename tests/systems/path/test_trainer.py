from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.systems.path.pretrained import pretrained
from hire.systems.path.settings import PathModelSettings, PathSettings, PathTrainingSettings
from hire.systems.path.tasks import NEVER
from hire.systems.path.trainer import PathTrainer
from hire.training.loop import Stage, train

SMALL = PathModelSettings(channels=4, edge_width=8, readout_width=8, members=2)
SHORT = PathTrainingSettings("random", steps=6, tasks=2, queries=4, hard_negatives=6, random_negatives=5, seed=3)
SETTINGS = PathSettings(model=SMALL, training=SHORT)


def weights_of(trainer: PathTrainer) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in trainer.system().network.state_dict().values()]


def trained(trainer: PathTrainer) -> PathTrainer:
    """The same after all its steps, with batches that are drawn ahead."""
    finished, _ = train(trainer, Stage("Training"))
    assert finished
    return trainer


@pytest.fixture
def trainer(umls: FewShotDataset) -> PathTrainer:
    return PathTrainer(umls, SETTINGS)


def test_the_same_seed_gives_the_same_model_bit_for_bit(umls: FewShotDataset, trainer: PathTrainer) -> None:
    trained(trainer)
    again = PathTrainer(umls, SETTINGS)
    for step in range(SHORT.steps):  # drawn one by one instead of ahead
        assert again.step == step
        again.train_step()
    other = trained(PathTrainer(umls, replace(SETTINGS, training=replace(SHORT, seed=4))))
    assert all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(again), strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(other), strict=True))


def test_training_goes_on_where_it_was_left(umls: FewShotDataset, trainer: PathTrainer) -> None:
    first = PathTrainer(umls, SETTINGS)
    for _ in range(3):
        first.train_step()
    torch.rand(7)  # whatever happens in between
    second = PathTrainer(umls, SETTINGS)
    second.load_state({name: part.clone() for name, part in first.state().items()})
    assert second.step == 3
    trained(second)
    trained(trainer)
    assert second.step == SHORT.steps
    assert all(torch.equal(one, two) for one, two in zip(weights_of(trainer), weights_of(second), strict=True))


def test_negatives_are_false_and_stand_for_all_others(umls: FewShotDataset, trainer: PathTrainer) -> None:
    tasks = trainer.tasks
    generator = np.random.default_rng(0)
    for index, task in enumerate(tasks.tasks[:8]):
        drawn = tasks.draw(generator, index)
        pairs = {(int(head), int(tail)) for head, tail in task.pairs}
        for head, tails, weights in zip(drawn.heads, drawn.tails, drawn.stands_for, strict=True):
            assert (int(head), int(tails[0])) in pairs
            negatives = tails[1:][weights[1:] > NEVER]
            assert not any((int(head), int(tail)) in pairs for tail in negatives)
            assert len(set(negatives.tolist())) == len(negatives)
            false = len(task.candidates()) - sum(one == head for one, _ in pairs)
            assert np.exp(weights[1:][weights[1:] > NEVER]).sum() == pytest.approx(false, rel=1e-4)
        reference_pairs = {(int(head), int(tail)) for head, tail in drawn.evidence.pairs}
        assert reference_pairs <= pairs
        assert drawn.evidence.hidden == task.relation % len(umls.graph.relations)


def test_too_few_facts_are_told(umls: FewShotDataset) -> None:
    with pytest.raises(HireError, match="no relation has 5005 triples"):
        PathTrainer(umls, replace(SETTINGS, training=replace(SHORT, shots=(5000,))))


def test_it_learns(umls: FewShotDataset) -> None:
    optimizer = replace(SETTINGS.optimizer, learning_rate=2e-2, ema=5.0)
    trainer = PathTrainer(umls, PathSettings(SMALL, training=replace(SHORT, steps=15), optimizer=optimizer))
    before = evaluate(trainer.system(), umls, "dev", 3)["realistic"]["mrr"]
    trained(trainer)
    assert evaluate(trainer.system(), umls, "dev", 3)["realistic"]["mrr"] > before + 0.2


def test_a_small_graph_takes_no_more_than_one_epoch(umls: FewShotDataset) -> None:
    settings = PathTrainingSettings()
    trainer = PathTrainer(umls, PathSettings())
    assert (trainer.steps - 1) * settings.tasks * settings.queries < len(trainer.tasks) < settings.steps * 64
    assert PathTrainer(umls, PathSettings(SMALL, training=PathTrainingSettings("random", steps=3))).steps == 3


def test_training_starts_from_the_weights_that_ship(umls: FewShotDataset) -> None:
    settings = PathSettings(training=replace(SHORT, start="pretrained"))
    shipped = pretrained(umls, refit=False)
    trainer = PathTrainer(umls, settings)
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(weights_of(trainer), shipped.network.state_dict().values(), strict=True)
    )
    scores = evaluate(trainer.system(), umls, "dev", 3)
    assert scores == evaluate(shipped, umls, "dev", 3)
    fewer, more = (
        PathTrainer(umls, replace(settings, model=replace(settings.model, members=members))) for members in (2, 4)
    )
    for name, tensor in shipped.network.state_dict().items():
        assert torch.equal(fewer.network.state_dict()[name], tensor[:2])
        assert torch.equal(more.network.state_dict()[name][:3], tensor)  # the fourth starts at random


def test_each_member_is_clipped_on_its_own(trainer: PathTrainer) -> None:
    for parameter in trainer.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trainer.network.start.grad = torch.zeros_like(trainer.network.start)
    trainer.network.start.grad[0, 0, 0], trainer.network.start.grad[1, 0, 0] = 5.0, 0.5
    trainer.clip(1.0)
    assert trainer.network.start.grad[:, 0, 0].tolist() == pytest.approx([1.0, 0.5])


def test_weights_of_another_size_are_not_started_from(umls: FewShotDataset) -> None:
    with pytest.raises(HireError, match="other sizes") as caught:
        PathTrainer(umls, PathSettings(SMALL))
    assert "training.start=random" in str(caught.value.problems[0].remedy)
