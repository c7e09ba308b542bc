"""What every few-shot system must do: whatever is registered is trained for a few steps and put to the same tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.systems.base import CAPABILITIES, FewShotSystem, Support, no_pairs
from hire.systems.ensemble import Ensemble
from hire.systems.hire.model import Hire
from hire.systems.registry import system_class, system_names
from hire.training.pipeline import Workshop
from hire.training.run import restore
from hire.training.settings import RunSettings
from tests.support import small_settings

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in system_names()},
    "hire, margin loss": ("hire", {"model.loss": "margin"}),
    "hire, MTransE": ("hire", {"model.decoder": "mtranse"}),
    "hire, MTransH": ("hire", {"model.decoder": "mtransh"}),
    "hire, without MAML": ("hire", {"model.inner_steps": 0}),
    "hire, AVG": ("hire", {"model.learner": "mean"}),
    "hire, LSTM": ("hire", {"model.learner": "lstm"}),
    **{
        f"{name}, margin loss": (name, {"model.loss": "margin", "training.batches": "episodes"})
        for name in ("gmatching", "metar", "fsrl", "faan", "gana", "cian")
    },
    "hire, without context": ("hire", {"model.context_weight": 0.0}),
}


@pytest.fixture(scope="module", params=VARIANTS)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, umls: FewShotDataset
) -> tuple[str, FewShotSystem, RunSettings, Path]:
    """A variant's name, the system after a few steps, its settings, and the folder of its weights."""
    name, changes = VARIANTS[request.param]
    settings = small_settings(name).changed(changes)
    folder = tmp_path_factory.mktemp("systems") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        assert Workshop(umls, torch.device("cpu")).train(folder, name, settings.settings)["finished"]
    return request.param, restore(folder, name, settings.settings, umls), settings, folder


@pytest.fixture
def variant(trained: tuple[str, FewShotSystem, RunSettings, Path]) -> str:
    return trained[0]


@pytest.fixture
def system(trained: tuple[str, FewShotSystem, RunSettings, Path]) -> FewShotSystem:
    return trained[1]


def pairs_of(dataset: FewShotDataset, task: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(dataset.split("train")[task].pairs, np.int64)


def test_it_says_what_it_is(variant: str, system: FewShotSystem) -> None:
    name = VARIANTS[variant][0]
    assert system.name == name and system_class(name) is type(system) and system.summary
    assert system.capabilities <= CAPABILITIES.keys() and type(system).capabilities <= CAPABILITIES.keys()


@pytest.mark.parametrize("shots", [1, 2, 3, 5, 20])
def test_any_number_of_references(system: FewShotSystem, umls: FewShotDataset, shots: int) -> None:
    pairs = pairs_of(umls)
    state = system.adapt(Support(pairs[:shots]))
    scores = system.score(state, pairs[:7, 0], np.arange(50))
    assert scores.shape == (7, 50) and scores.dtype == torch.float32 and scores.isfinite().all()
    assert scores.device.type == "cpu"


def test_the_order_of_references_does_not_matter(variant: str, system: FewShotSystem, umls: FewShotDataset) -> None:
    pairs, candidates = pairs_of(umls)[:5], np.arange(60)

    def scores(references: np.ndarray[Any, np.dtype[np.int64]]) -> torch.Tensor:
        return system.score(system.adapt(Support(references, candidates)), pairs[:, 0], candidates)

    same = torch.allclose(scores(pairs), scores(pairs[[3, 1, 4, 0, 2]]), atol=1e-4)
    assert same != (variant == "hire, LSTM")  # the ablation that is there to show it


def test_neither_adapting_nor_scoring_changes_the_system(system: FewShotSystem, umls: FewShotDataset) -> None:
    pairs, before = pairs_of(umls, 1), deepcopy(system)

    def scores(of: FewShotSystem) -> torch.Tensor:
        return of.score(of.adapt(Support(pairs[:3])), pairs[:4, 0], np.arange(30))

    first = scores(system)
    for _ in range(3):
        system.score(system.adapt(Support(pairs[5:8])), pairs[:4, 0], np.arange(30))
    assert torch.equal(scores(system), first) and torch.equal(scores(before), first)


def test_one_alone_scores_as_among_many(system: FewShotSystem, umls: FewShotDataset) -> None:
    pairs = pairs_of(umls, 2)
    state = system.adapt(Support(pairs[:3]))
    together = system.score(state, pairs[:5, 0], np.arange(40))
    alone = system.score(state, pairs[2:3, 0], np.array([17]))
    assert alone[0, 0].item() == pytest.approx(together[2, 17].item(), abs=1e-4)


def test_many_tails_are_scored_as_few(
    system: FewShotSystem, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, tails = pairs_of(umls, 2), np.arange(40)
    state = system.adapt(Support(pairs[:3]))
    expected = system.score(state, pairs[:5, 0], tails)
    monkeypatch.setattr("hire.systems.base.TAILS_AT_ONCE", 13)
    assert torch.allclose(system.score_many(state, pairs[:5, 0], tails), expected, atol=1e-4)


def test_saved_and_restored_it_scores_the_same_bits(
    trained: tuple[str, FewShotSystem, RunSettings, Path], umls: FewShotDataset
) -> None:
    _, system, settings, folder = trained
    tensors = {name: tensor.clone() for name, tensor in system.tensors().items()}
    again = type(system).restore(umls, settings.settings, tensors)
    from_disk = restore(folder, settings.system, settings.settings, umls)
    pairs = pairs_of(umls, 3)
    first, second, third = (
        of.score(of.adapt(Support(pairs[:3], np.arange(60))), pairs[:6, 0], np.arange(60))
        for of in (system, again, from_disk)
    )
    assert torch.equal(first, second) and torch.equal(first, third)


def test_facts_of_the_hidden_relation_change_no_score(
    trained: tuple[str, FewShotSystem, RunSettings, Path], umls: FewShotDataset
) -> None:
    _, system, settings, _ = trained
    graph = umls.graph
    sizes = np.bincount(graph.triples[:, 1], minlength=len(graph.relations))
    hidden = int(np.argsort(-sizes)[3])  # a large relation of the background graph
    facts = graph.triples[graph.triples[:, 1] == hidden]
    more = np.array([(head, hidden, (head + 7) % len(graph.entities)) for head in range(40)], np.int32)
    scores = []
    for triples in (
        graph.triples,
        graph.triples[graph.triples[:, 1] != hidden],
        np.concatenate([graph.triples, more]),
    ):
        changed = deepcopy(umls)
        changed.graph = KnowledgeGraph.of(graph.entities, graph.relations, triples, graph.labels, graph.types)
        of = type(system).restore(changed, settings.settings, system.tensors())
        state = of.adapt(Support(facts[:3, [0, 2]].astype(np.int64), np.arange(80), relation=hidden))
        scores.append(of.score(state, facts[:6, 0], np.arange(80)))
    assert torch.allclose(scores[0], scores[1], atol=1e-5) and torch.allclose(scores[0], scores[2], atol=1e-5)


def test_two_threads_at_once_score_as_one(system: FewShotSystem, umls: FewShotDataset) -> None:
    tasks = [pairs_of(umls, task) for task in range(6)]

    def scores(pairs: np.ndarray[Any, np.dtype[np.int64]]) -> torch.Tensor:
        state = system.adapt(Support(pairs[:3]))
        return system.score(state, pairs[:5, 0], np.arange(120))

    alone = [scores(pairs) for pairs in tasks]
    shared = system.adapt(Support(tasks[0][:3]))
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(scores, tasks * 3))
        of_one_state = list(
            pool.map(lambda start: system.score(shared, tasks[0][:5, 0], np.arange(start, 120)), [0, 10] * 6)
        )
    # Up to rounding: a matrix product depends on where its arrays lie in memory.
    assert all(torch.allclose(found, alone[i % 6], atol=1e-4) for i, found in enumerate(together))
    for i, found in enumerate(of_one_state):
        assert torch.allclose(found, alone[0][:, 10 * (i % 2) :], atol=1e-4)


def test_what_is_rejected_falls_behind_the_references_or_changes_nothing(
    variant: str, system: FewShotSystem, umls: FewShotDataset
) -> None:
    pairs = pairs_of(umls)[:3]
    first = system.score(system.adapt(Support(pairs)), pairs[:1, 0], np.arange(135))[0]
    first[pairs[:, 1]] = -torch.inf
    rejected = np.array([[pairs[0, 0], int(first.argmax())]])

    def lead(false: np.ndarray[Any, np.dtype[np.int64]]) -> float:
        state = system.adapt(Support(pairs, rejected=false))
        scores = [float(system.score(state, h[None], t[None])[0, 0]) for h, t in np.concatenate([rejected, pairs])]
        return scores[0] - sum(scores[1:]) / 3

    before, after = lead(no_pairs()), lead(rejected)
    learns = isinstance(system, Hire | Ensemble) and variant != "hire, without MAML"
    assert after < before if learns else after == before


def test_capabilities_are_there_or_refused(system: FewShotSystem, umls: FewShotDataset) -> None:
    pairs = pairs_of(umls, 1)
    count = len(umls.graph.entities)
    graph = umls.graph.extended(["new"], np.array([[count, int(umls.graph.triples[0, 1]), 5]]))
    state = system.adapt(Support(pairs[:3]))
    calls: dict[str, Callable[[], object]] = {
        "explain": lambda: system.explain(state, int(pairs[0, 0]), int(pairs[0, 1])),
        "vectors": lambda: system.vectors(np.arange(5)),
        "new-entities": lambda: system.extended(graph),
    }
    assert calls.keys() == CAPABILITIES.keys()
    for capability, call in calls.items():
        if capability not in system.capabilities:
            with pytest.raises(HireError, match=f"lacks the capability {capability!r}"):
                call()
    if "explain" in system.capabilities:
        evidence = system.explain(state, int(pairs[0, 0]), int(pairs[0, 1]))
        alone = system.score(state, pairs[:1, 0], pairs[:1, 1])
        assert evidence.score == pytest.approx(alone.item(), abs=1e-4)
    if "vectors" in system.capabilities:
        assert len(system.vectors(np.arange(5))) == 5
    if "new-entities" in system.capabilities:
        wider = system.extended(graph)
        scores = wider.score(wider.adapt(Support(pairs[:3])), np.array([count]), np.arange(count + 1))
        assert scores.isfinite().all()
        if "vectors" in system.capabilities:
            assert torch.equal(system.vectors(np.arange(5)), wider.vectors(np.arange(5)))
