"""What every few-shot system must do, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.systems.base import FewShotModel
from hire.systems.ensemble import HirePath
from hire.systems.hire.model import Hire
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireSettings
from hire.systems.mean_translation import MeanTranslation
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.popularity import Popularity
from tests.systems.path.test_model import path_network

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
    "path": lambda dataset: PathModel(path_network(), EvidenceGraph.of(dataset)),
    "hire-path": lambda dataset: HirePath(_hire(dataset), PathModel(path_network(), EvidenceGraph.of(dataset))),
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


def test_what_is_rejected_falls_behind_the_references(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = np.asarray(umls.split("train")[0].pairs, np.int64)[:3]
    first = model.score(model.adapt(pairs), pairs[:1, 0], np.arange(135))[0]
    first[pairs[:, 1]] = -torch.inf
    rejected = np.array([[pairs[0, 0], int(first.argmax())]])

    def lead(relation: object) -> float:
        scores = [float(model.score(relation, h[None], t[None])[0, 0]) for h, t in np.concatenate([rejected, pairs])]
        return scores[0] - sum(scores[1:]) / 3

    before, after = lead(model.adapt(pairs)), lead(model.adapt_against(pairs, None, rejected))
    if isinstance(model, Hire | HirePath) and not _without_maml(model):
        assert after < before
    else:
        assert after == before


def _without_maml(model: FewShotModel) -> bool:
    return isinstance(model, Hire) and model.network.settings.inner_steps == 0


def test_entities_are_added_or_refused(model: FewShotModel, umls: FewShotDataset) -> None:
    pairs = np.asarray(umls.split("train")[1].pairs, np.int64)
    graph = umls.graph.extended(["new"], np.array([[len(umls.graph.entities), int(umls.graph.triples[0, 1]), 5]]))
    if isinstance(model, Popularity | MeanTranslation):
        with pytest.raises(HireError, match="only the entities it was trained with"):
            model.extended(graph)
        return
    wider = model.extended(graph)
    scores = wider.score(wider.adapt(pairs[:3]), np.array([len(umls.graph.entities)]), np.arange(len(graph.entities)))
    assert scores.isfinite().all()
    before, after = model.vectors(np.arange(5)), wider.vectors(np.arange(5))
    assert (before is None and after is None) or (before is not None and after is not None and before.equal(after))
