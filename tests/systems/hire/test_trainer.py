from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.optim.tables import DenseTable
from hire.sampling.episodes import EpisodeBatch
from hire.systems.episodic.losses import LossName
from hire.systems.hire.context import info_nce
from hire.systems.hire.entity import MetaRelation, Vectors
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireModelSettings, HireSettings, HireTrainingSettings
from hire.systems.hire.trainer import HireTrainer, _Rows
from hire.training.settings import preset
from tests.systems.within_margin import tasks_kept

MODEL = HireModelSettings(dimension=16, inner_negatives=32)
TRAINING = HireTrainingSettings(steps=150, tasks=8, queries=16, negatives=32, inner_negatives=16, context_references=4)
SETTINGS = HireSettings(MODEL, TRAINING)


@pytest.fixture(scope="module")
def embeddings(umls: FewShotDataset) -> Embeddings:
    generator = torch.Generator().manual_seed(0)
    return Embeddings(
        torch.randn(len(umls.graph.entities), 16, generator=generator),
        torch.randn(2 * len(umls.graph.relations), 16, generator=generator),
    )


def state_of(trainer: HireTrainer) -> dict[str, torch.Tensor]:
    tables = {name: table.weights for name, table in trainer.tables.items()}
    return tables | trainer.network.state_dict()


def test_training_helps_with_unseen_relations(umls: FewShotDataset, embeddings: Embeddings) -> None:
    trainer = HireTrainer(umls, embeddings, SETTINGS)
    untrained = evaluate(trainer.system(), umls, "dev", 3)["realistic"]["mrr"]
    losses = [trainer.train_step() for _ in range(TRAINING.steps)]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
    trained = evaluate(trainer.system(), umls, "dev", 3)["realistic"]["mrr"]
    assert trained > 1.5 * untrained > 0


@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_negatives_of_each_pair_count_as_shared_ones_do(loss: LossName) -> None:
    torch.manual_seed(0)
    network = HireNetwork(replace(MODEL, loss=loss)).eval()
    relation = MetaRelation(*torch.randn(4, 2, 16))
    heads, tails, negatives = (Vectors(*torch.randn(2, 2, count, 16)) for count in (3, 3, 5))
    shared = network.losses(relation, heads, tails, negatives)
    own = Vectors(*(part[:, None].expand(-1, 3, -1, -1) for part in negatives))
    assert torch.allclose(network.losses(relation, heads, tails, own), shared, atol=1e-5)
    none_left_out = torch.ones(2, 3, 5, dtype=torch.bool)
    assert torch.allclose(network.losses(relation, heads, tails, negatives, none_left_out), shared, atol=1e-5)


def test_the_papers_episodes_train(umls: FewShotDataset, embeddings: Embeddings) -> None:
    chosen = preset("paper").changed({"model.dimension": 16, "training.tasks": 32, "training.shots": 2})
    trainer = HireTrainer(umls, embeddings, chosen.settings)
    losses = [trainer.train_step() for _ in range(60)]
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
    batch = trainer.batch(0).episodes
    assert batch.references.shape == (32, 2, 2)
    assert batch.query_negatives.shape == (32, 3, 1) and batch.query_false is None
    assert isinstance(trainer.entities, DenseTable)  # as by dense Adam


def test_more_references_than_facts_are_refused(umls: FewShotDataset, embeddings: Embeddings) -> None:
    for batches in ("pooled", "episodes"):
        training = replace(TRAINING, shots=(9_000,), batches=batches)
        with pytest.raises(HireError, match=r"900[01]"):
            HireTrainer(umls, embeddings, replace(SETTINGS, training=training))


def test_the_system_is_the_average(umls: FewShotDataset, embeddings: Embeddings) -> None:
    optimizer = replace(SETTINGS.optimizer, ema=0.1)  # over 4 steps
    trainer = HireTrainer(umls, embeddings, HireSettings(MODEL, replace(TRAINING, steps=40), optimizer))
    weight = "learner.mlp.0.weight"
    average = trainer.network.state_dict()[weight].clone()
    of_entities = trainer.entities.weights.clone()
    for _ in range(3):
        trainer.train_step()
        average = 0.75 * average + 0.25 * trainer.network.state_dict()[weight]
        of_entities = 0.75 * of_entities + 0.25 * trainer.entities.weights
    found = trainer.system()
    assert torch.allclose(found.network.state_dict()[weight], average, atol=1e-7)
    assert not torch.equal(found.network.state_dict()[weight], trainer.network.state_dict()[weight])
    assert torch.allclose(found.entities, of_entities, atol=1e-6)


def test_the_same_seed_gives_the_same_run_bit_for_bit(umls: FewShotDataset, embeddings: Embeddings) -> None:
    first, second, third = (
        HireTrainer(umls, embeddings, HireSettings(MODEL, replace(TRAINING, seed=seed))) for seed in (3, 3, 4)
    )
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
    model = replace(MODEL, **changes)  # type: ignore[arg-type]
    trainer = HireTrainer(umls, embeddings, HireSettings(model, TRAINING))
    before = {name: value.clone() for name, value in state_of(trainer).items()}
    losses = [trainer.train_step() for _ in range(3)]
    assert all(loss == loss and loss > 0 for loss in losses)
    moved = {name for name, value in state_of(trainer).items() if not torch.equal(value, before[name])}
    assert "entities" in moved
    assert ("relations" in moved) == (changes.get("context_weight") != 0.0)
    assert ("projections" in moved) == (changes.get("decoder", "mtransd") == "mtransd")
    assert not any(value.isnan().any() for value in state_of(trainer).values())


def test_every_reference_is_held_against_its_own_context(umls: FewShotDataset, embeddings: Embeddings) -> None:
    training = replace(TRAINING, context_references=None, shots=(5,))
    trainer = HireTrainer(umls, embeddings, HireSettings(replace(MODEL, false_contexts=2), training))
    batch = trainer.batch(0).episodes
    twice = {name: torch.cat([part, part.flip(0)]) for name, part in vars(batch).items()}  # each is there again
    batch = EpisodeBatch(**twice)
    drawn = trainer._draw_contexts(batch.relations.numpy(), batch.references.numpy(), np.random.default_rng(0))
    assert len(drawn.own) >= 2 * len(set(drawn.own.tolist()))
    rows = _Rows(trainer.entities, trainer.projections, [drawn.pairs], drawn.tuples.entities)
    found, _ = trainer._context_loss(rows.vectors[0].embeddings.flatten(1), drawn, rows)
    encoder = trainer.network.context
    assert encoder is not None
    encoded = encoder(drawn.tuples, trainer.relations.weights, trainer.entities.weights)
    true = trainer.contexts.true(drawn.pairs, batch.relations.repeat_interleave(5)).tuples()
    of_true = encoder(true, trainer.relations.weights, trainer.entities.weights)
    of_false = encoded[-2 * len(drawn.pairs) :].view(len(drawn.pairs), 2, -1)
    triplets = trainer.entities.weights[drawn.pairs].flatten(1)
    expected = info_nce(triplets, of_true, of_false, MODEL.context_temperature).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_training_goes_on_where_it_was_left(umls: FewShotDataset, embeddings: Embeddings) -> None:
    whole, first, second = (HireTrainer(umls, embeddings, SETTINGS) for _ in range(3))
    losses = [whole.train_step() for _ in range(6)]
    for _ in range(3):
        first.train_step()
    second.load_state({name: part.clone() for name, part in first.state().items()})
    assert [second.train_step() for _ in range(3)] == losses[3:]
    one, other = whole.state(), second.state()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_learner_that_starts_at_nothing_leaves_the_gated_mean_of_t_minus_h() -> None:
    network = HireNetwork(replace(MODEL, learner_start=0.0)).eval()
    heads, tails = torch.randn(2, 3, 4, 16)
    expected = torch.sigmoid(torch.tensor(2.0)) * (tails - heads).mean(dim=1)
    assert torch.allclose(network.meta_relation(heads, tails).translation, expected, atol=1e-6)


def test_the_loss_on_the_references_joins_the_objective_with_its_weight(
    umls: FewShotDataset, embeddings: Embeddings
) -> None:
    def loss(weight: float) -> float:
        model = replace(MODEL, reference_weight=weight, drop_path=0.0, context_weight=0.0)
        trainer = HireTrainer(umls, embeddings, replace(SETTINGS, model=model))
        return trainer.loss(trainer.batch(0)).value.item()

    without, once, twice = (loss(weight) for weight in (0.0, 1.0, 2.0))
    assert once > without + 0.01
    assert twice - once == pytest.approx(once - without, rel=1e-4)


def test_a_step_is_the_same_without_the_tasks_within_the_margin(
    umls: FewShotDataset, embeddings: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"model.dimension": 16, "model.margin": 0.05}
    small |= {"training.tasks": 24, "training.shots": 1, "training.queries": 1}
    trainer = HireTrainer(umls, embeddings, preset("paper").changed(small).settings)
    assert 0 < min(tasks_kept(trainer, HireTrainer, monkeypatch, 24)) < 16


def test_a_step_in_which_all_tasks_are_within_the_margin(
    umls: FewShotDataset, embeddings: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = preset("paper").changed({"model.dimension": 16, "training.tasks": 8, "model.context_weight": 0.0})
    trainer = HireTrainer(umls, embeddings, chosen.settings)
    losses = HireNetwork.losses
    monkeypatch.setattr(HireNetwork, "losses", lambda *given: 0 * losses(*given))
    before = trainer.system().entities.clone()
    assert [trainer.train_step() for _ in range(3)] == [0, 0, 0]
    assert torch.equal(trainer.system().entities, before)
