"""What every few-shot system must do, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from hire.datasets import FewShotDataset
from hire.errors import HireError
from hire.models.base import FewShotModel
from hire.models.hire import Hire, HireNetwork, HireSettings
from hire.models.popularity import Popularity
from hire.models.translation import MeanTranslation

DIMENSION = 8


def _hire(dataset: FewShotDataset, **settings: object) -> Hire:
    network = HireNetwork(HireSettings(dimension=DIMENSION, inner_negatives=20, **settings))  # type: ignore[arg-type]
    entities, projections = torch.randn(2, len(dataset.graph.entities), DIMENSION)
    return Hire(network, entities, projections)


MODELS: dict[str, Callable[[FewShotDataset], FewShotModel]] = {
    "popularity": lambda dataset: Popularity(dataset.graph),
    "transe": lambda dataset: MeanTranslation(torch.randn(len(dataset.graph.entities), DIMENSION)),
    "hire": _hire,
    "hire, margin loss": lambda dataset: _hire(dataset, loss="margin"),
    "hire, MTransE": lambda dataset: _hire(dataset, decoder="mtranse"),
    "hire, MTransH": lambda dataset: _hire(dataset, decoder="mtransh"),
    "hire, without MAML": lambda dataset: _hire(dataset, inner_steps=0),
    "hire, AVG": lambda dataset: _hire(dataset, learner="mean"),
    "hire, LSTM": lambda dataset: _hire(dataset, learner="lstm"),
    "hire, without context": lambda dataset: _hire(dataset, context_weight=0.0),
}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str, umls: FewShotDataset) -> FewShotModel:
    torch.manual_seed(0)
    return MODELS[name](umls)


@pytest.mark.parametrize("shots", [1, 2, 3, 5, 20])
def test_any_number_of_references(model: FewShotModel, umls: FewShotDataset, shots: int) -> None:
    pairs = umls.split("train")[0].pairs
    relation = model.adapt(pairs[:shots])
    scores = model.score(relation, pairs[:7, 0], np.arange(50))
    assert scores.shape == (7, 50) and scores.dtype == torch.float32 and scores.isfinite().all()


def test_the_order_of_references_does_not_matter(name: str, model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = np.asarray(umls.split("train")[0].pairs)[:5]
    candidates = np.arange(60)

    def scores(references: np.ndarray[tuple[int, int], np.dtype[np.int32]]) -> torch.Tensor:
        return model.score(model.adapt(references, candidates), pairs[:, 0], candidates)

    same = torch.allclose(scores(pairs), scores(pairs[[3, 1, 4, 0, 2]]), atol=1e-5)
    assert same != (name == "hire, LSTM")  # the ablation that is there to show it


def test_neither_adapting_nor_scoring_changes_the_model(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = umls.split("train")[1].pairs
    before = deepcopy(model)
    first = model.score(model.adapt(pairs[:3]), pairs[:4, 0], np.arange(30))
    for _ in range(3):
        model.score(model.adapt(pairs[5:8]), pairs[:4, 0], np.arange(30))
    assert torch.equal(model.score(model.adapt(pairs[:3]), pairs[:4, 0], np.arange(30)), first)
    assert torch.equal(before.score(before.adapt(pairs[:3]), pairs[:4, 0], np.arange(30)), first)


def test_a_score_does_not_depend_on_its_company(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = umls.split("train")[2].pairs
    relation = model.adapt(pairs[:3])
    together = model.score(relation, pairs[:5, 0], np.arange(40))
    alone = model.score(relation, pairs[2:3, 0], np.array([17]))
    assert alone[0, 0].item() == pytest.approx(together[2, 17].item(), abs=1e-4)


def test_rejected_pairs_never_count_for(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = np.asarray(umls.split("train")[0].pairs, np.int64)
    rejected = np.array([[pairs[0, 0], 7], [3, 9]])

    def scores(relation: object) -> torch.Tensor:
        return torch.stack([model.score(relation, head[None], tail[None])[0, 0] for head, tail in rejected])

    before, after = scores(model.adapt(pairs[:3])), scores(model.adapt_against(pairs[:3], None, rejected))
    assert (after.mean() < before.mean()) == ("hire" in model.name and not _without_maml(model))
    assert after.mean() <= before.mean() + 1e-6


def _without_maml(model: FewShotModel) -> bool:
    return isinstance(model, Hire) and model.network.settings.inner_steps == 0


def test_entities_are_added_or_refused(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = np.asarray(umls.split("train")[1].pairs, np.int64)
    graph = umls.graph.extended(["new"], np.array([[len(umls.graph.entities), int(umls.graph.triples[0, 1]), 5]]))
    if not isinstance(model, Hire):
        with pytest.raises(HireError, match="only the entities it was trained with"):
            model.extended(graph)
        return
    wider = model.extended(graph)
    scores = wider.score(wider.adapt(pairs[:3]), np.array([len(umls.graph.entities)]), np.arange(len(graph.entities)))
    assert scores.isfinite().all() and wider.vectors(np.arange(5)).equal(model.vectors(np.arange(5)))
