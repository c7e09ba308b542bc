"""Conventional embeddings: their scores, the vector of a relation that is taught, and references in training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.scores import widths
from hire.errors import HireError
from hire.evaluation.ranking import evaluate, evaluate_draws
from hire.systems.base import Support
from hire.systems.conventional import Conventional, ConventionalTrainer, Learned
from hire.systems.registry import describe, system_class
from hire.training.settings import RunSettings
from tests.embeddings.test_trainer import DIMENSION, slow

NAMES = ["transe", "transh", "distmult", "complex", "complex-n3"]
SHORT = {"training.dimension": 16, "training.batch_size": 256, "training.negatives": 64, "training.steps": 60}
PAIRS = np.array([[0, 1], [2, 3], [4, 1]])


def kind_of(name: str) -> type[Conventional]:
    kind = system_class(name)
    assert issubclass(kind, Conventional)
    return kind


def tiny(name: str, references: list[list[int]] | None = None, **fitting: Any) -> Conventional:
    """A system over ten entities and four relations with random vectors."""
    generator = torch.Generator().manual_seed(0)
    entity_width, relation_width = widths(kind_of(name).model, DIMENSION)
    entities, relations = (
        torch.randn(rows, width, generator=generator) for rows, width in ((10, entity_width), (8, relation_width))
    )
    prior = torch.stack([relations.mean(dim=0), relations.std(dim=0)])
    changes = {"training.dimension": DIMENSION, **{f"fitting.{field}": value for field, value in fitting.items()}}
    settings = RunSettings.of(name).changed(changes).settings
    trained = torch.tensor(references or [], dtype=torch.int64).reshape(-1, 3)
    return kind_of(name)(settings, Learned(entities, relations, prior, trained))


def new_trainer(dataset: FewShotDataset, name: str, **changes: Any) -> ConventionalTrainer:
    settings = RunSettings.of(name).changed({**SHORT, **{f"training.{field}": v for field, v in changes.items()}})
    return ConventionalTrainer(kind_of(name), dataset, settings.settings)


def trained(dataset: FewShotDataset, name: str, **changes: Any) -> Conventional:
    trainer = new_trainer(dataset, name, **changes)
    while trainer.step < trainer.steps:
        trainer.train_step()
    return trainer.system()


@pytest.mark.parametrize("name", NAMES)
def test_scores_equal_those_of_the_paper(name: str) -> None:
    system = tiny(name)
    state = system.learned.relations[2]
    heads, tails = np.array([3, 0]), np.array([9, 1, 4])
    found = system.score(state, heads, tails)
    for i, head in enumerate(heads):
        for j, tail in enumerate(tails):
            expected = slow(system.model, system.learned.entities[head], state, system.learned.entities[tail])
            assert found[i, j].item() == pytest.approx(expected, abs=1e-4)


def objective(system: Conventional, relation: Tensor, candidates: range) -> float:
    """What a fitted relation minimizes, one triple at a time."""
    entities, (mean, spread) = system.learned.entities, system.learned.prior
    negatives = [c for c in candidates if c not in PAIRS[:, 1]]
    value = system.settings.fitting.prior * float(((relation - mean) / spread).square().sum()) / 2
    for head, tail in PAIRS:
        true = slow(system.model, entities[head], relation, entities[tail])
        others = [slow(system.model, entities[head], relation, entities[c]) for c in negatives]
        correction = math.log(len(candidates) / len(negatives))
        value += math.log(math.exp(true) + sum(math.exp(other + correction) for other in others)) - true
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_fitted_relation_minimizes_the_plain_objective(name: str) -> None:
    system = tiny(name, steps=400, learning_rate=0.05, prior=0.3)
    found = system.adapt(Support(PAIRS))
    mean, spread = system.learned.prior
    best = objective(system, found, range(10))
    assert best < objective(system, mean, range(10)) - 0.1
    for dimension in range(len(found)):
        for step in (-0.1, 0.1):
            nearby = found.clone()
            nearby[dimension] += step * spread[dimension]
            assert objective(system, nearby, range(10)) > best - 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_stronger_prior_stays_nearer_to_the_trained_relations(name: str) -> None:
    def shift(prior: float) -> float:
        system = tiny(name, prior=prior)
        mean, spread = system.learned.prior
        return float(((system.adapt(Support(PAIRS)) - mean) / spread).norm())

    assert shift(10.0) < shift(1.0) < shift(0.1)


def test_candidates_serve_as_negatives() -> None:
    system = tiny("distmult", prior=0.1)

    def lead(*candidates: int) -> float:
        """How far the references are before candidate 7."""
        state = system.adapt(Support(PAIRS, np.array(candidates)))
        scores = system.score(state, PAIRS[:, 0], np.append(PAIRS[:, 1], 7))  # [references, tails and 7]
        return float((scores[:, :3].diagonal() - scores[:, 3]).sum())

    assert lead(1, 3, 7) > lead(1, 3, 8) + 1
    alone = system.adapt(Support(PAIRS[:1], np.array([1])))  # with no other candidate
    assert torch.allclose(alone, system.learned.prior[0], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_training_and_teaching_beat_chance(umls: FewShotDataset, name: str) -> None:
    found = evaluate(trained(umls, name, steps=300), umls, "dev", 5)["realistic"]["mrr"]
    assert found > 0.2  # by chance, 0.04


def test_the_graph_of_training(umls: FewShotDataset) -> None:
    known = [umls.graph.triples, umls.task_triples("train")]
    assert np.array_equal(new_trainer(umls, "transe").graph.triples, np.concatenate(known))
    with_references = new_trainer(umls, "transe", shots=[2])
    known += [umls.task_triples("dev", 2), umls.task_triples("test", 2)]
    assert np.array_equal(with_references.graph.triples, np.concatenate(known))
    assert with_references.shots == (2,) and new_trainer(umls, "transe").shots == (1, 3, 5)
    queries = {(h, task.relation, t) for task in umls.split("test") for h, t in task.pairs[2:].tolist()}
    assert not queries & set(map(tuple, with_references.graph.triples.tolist()))


def test_the_prior_is_that_of_relations_with_facts(umls: FewShotDataset) -> None:
    for shots in (None, [3]):
        system = new_trainer(umls, "distmult", shots=shots).system()
        relations = sorted({r for triples in (umls.graph.triples, umls.task_triples("train")) for r in triples[:, 1]})
        rows = torch.stack([system.learned.relations[r + i] for i in (0, len(umls.graph.relations)) for r in relations])
        assert torch.allclose(system.learned.prior, torch.stack([rows.mean(dim=0), rows.std(dim=0)]))


def test_a_relation_of_training_has_its_trained_vector() -> None:
    system = tiny("transe", references=[[0, 3, 1], [2, 3, 3], [4, 3, 1], [5, 2, 6]])
    own = system.learned.relations[3]
    assert torch.equal(system.adapt(Support(PAIRS, relation=3)), own)
    assert torch.equal(system.adapt(Support(PAIRS[[2, 0, 1]], relation=3)), own)
    fitted = system.adapt(Support(PAIRS))
    for relation in (0, None):
        assert torch.equal(system.adapt(Support(PAIRS, relation=relation)), fitted)
    more = np.concatenate([PAIRS, [[7, 8]]])
    assert torch.equal(system.adapt(Support(more, relation=3)), system.adapt(Support(more)))  # more than was seen
    for others in (PAIRS[:2], np.array([[0, 1], [2, 3], [7, 8]])):
        with pytest.raises(HireError, match="trained with 3 references") as raised:
            system.adapt(Support(others, relation=3))
        assert "--shots 3" in str(raised.value.problems[0].remedy)


def test_references_in_training_are_ranked_with_their_own_number_only(umls: FewShotDataset) -> None:
    system = trained(umls, "transe", shots=[3])
    assert evaluate(system, umls, "dev", 3)["realistic"]["mrr"] > 0.1
    assert evaluate(system, umls, "dev", 5)["realistic"]["mrr"] > 0.1
    with pytest.raises(HireError, match="facts it has seen"):
        evaluate(system, umls, "dev", 1)
    with pytest.raises(HireError, match="facts it has seen"):
        evaluate_draws(system, umls, "dev", 3, 2)


def test_settings_that_make_no_sense_are_refused(umls: FewShotDataset) -> None:
    with pytest.raises(HireError, match=r"training.model is 'transe', but the system is 'transh'"):
        new_trainer(umls, "transh", model="transe")
    with pytest.raises(HireError, match=r"training.shots has 2 numbers"):
        new_trainer(umls, "transe", shots=[1, 3])
    with pytest.raises(HireError, match="3 dimensions are odd"):
        new_trainer(umls, "complex", dimension=3)


def test_the_command_line(run: Callable[..., Result], tmp_path: Path) -> None:
    short = [word for path, value in SHORT.items() for word in ("--set", f"{path}={value}")]
    command = ["train", "umls-one", "--system", "distmult", *short, "--json"]
    found = json.loads(run(*command, "--shots", "3", "-o", tmp_path / "run").stdout)
    assert found["steps"] == 60 and found["dev"].keys() == {"3-shot", "mean"} and found["calibrated"]
    assert run("evaluate", tmp_path / "run", "--shots", "1").exit_code == 2
    assert run("evaluate", tmp_path / "run", "--shots", "3").exit_code == 0
    several = run(*command, "--shots", "1", "--shots", "3", "-o", tmp_path / "several")
    assert several.exit_code == 2 and not (tmp_path / "several").exists()


def test_every_setting_says_what_it_is() -> None:
    for name in NAMES:
        about = describe(name)
        assert all(about["about_settings"][path] for path in about["settings"])
        assert about["settings"]["training.model"] == name
