from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.settings import EvidenceSettings
from hire.systems.path.stored import stored_at
from tests.systems.path.test_model import path_network


@pytest.fixture
def opened(tmp_path: Path, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> FewShotDataset:
    """A dataset that was opened from files, with an empty cache."""
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    umls.save(tmp_path / "umls")
    return FewShotDataset.open(tmp_path / "umls")


def scores(graph: EvidenceGraph, dataset: FewShotDataset) -> list[float]:
    model, pairs = PathModel(path_network(), graph), np.asarray(dataset.split("dev")[0].pairs)
    found: list[float] = model.score(model.adapt(Support(pairs[:3])), pairs[3:6, 0], np.arange(60)).flatten().tolist()
    return found


def test_a_stored_graph_answers_as_the_one_that_was_counted(opened: FewShotDataset, umls: FewShotDataset) -> None:
    path = stored_at(opened, EvidenceSettings())
    assert path is not None and not path.exists()
    counted = EvidenceGraph.of(opened)
    assert path.exists()
    stored = EvidenceGraph.of(opened)
    assert scores(stored, opened) == scores(counted, opened) == scores(EvidenceGraph.of(umls), umls)
    before, after = counted.arrays(), stored.arrays()
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def test_names_are_stored_too(opened: FewShotDataset) -> None:
    graph = EvidenceGraph(np.array([[0, 0, 1], [2, 0, 1]]), 4, 1, groups=np.array([0, -1, -1, 0]))
    again = EvidenceGraph._stored(graph.arrays(), None, graph.task_facts, graph.settings)
    assert graph.same_names is not None and again.same_names is not None
    facts = np.array([[0, 0, 1]])
    assert np.array_equal(again.same_names.gone_with(facts), graph.same_names.gone_with(facts))


def test_other_settings_other_data_and_damage_are_counted_anew(opened: FewShotDataset, umls: FewShotDataset) -> None:
    EvidenceGraph.of(opened)
    path = stored_at(opened, EvidenceSettings())
    assert path is not None and stored_at(umls, EvidenceSettings()) is None
    assert stored_at(opened, EvidenceSettings(max_degree=3)) != path
    assert stored_at(replace(opened, name="changed"), EvidenceSettings()) is None
    content, expected = path.read_bytes(), scores(EvidenceGraph.of(umls), umls)
    middle = len(content) // 2
    for damage in (b"", content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
        path.write_bytes(damage)
        assert scores(EvidenceGraph.of(opened), opened) == expected
        assert path.read_bytes() == content


def test_without_a_cache_it_is_counted_every_time(opened: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", "/dev/null/nowhere")
    assert len(EvidenceGraph.of(opened).targets)
