from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.cli import hire
from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.open import open_dataset
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.errors import HireError
from hire.systems.base import Support
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.settings import EvidenceSettings
from hire.systems.path.stored import cached_index, evidence_of, open_index, own_index, train_facts, write_index
from tests.support import ranked_keys
from tests.systems.path.test_model import path_network

SETTINGS = EvidenceSettings()
ENTITIES = [f"a:{name}" for name in ["abc", "Anna", "Berta", "a-hub", "d"]] + ["b:anna", "c:anna", "b:berta", "empty"]
TRIPLES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.integers(0, 8)), min_size=12, max_size=60)


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


def assert_same(found: EvidenceGraph, expected: EvidenceGraph) -> None:
    before, after = expected.arrays(), found.arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.dtype == after[name].dtype, name
        assert np.array_equal(array, after[name]), name


def small(triples: list[tuple[int, int, int]], typed: bool) -> FewShotDataset:
    """Entities of the same name, one without facts, and relations that are no tasks."""
    entities, relations = Vocabulary.of(ENTITIES, "entity"), Vocabulary.of(list("xyz"), "relation")
    types = None
    if typed:
        types = Types.of(Vocabulary.of(["t", "u"]), np.array([0, 1, 1, 5]), np.array([0, 0, 1, 1]), len(entities))
    graph = KnowledgeGraph.of(entities, relations, np.unique(triples, axis=0), None, types)
    return FewShotDataset.of("small", graph, {"train": {}, "dev": {}, "test": {}}, {})


@settings(max_examples=12, deadline=None)
@given(TRIPLES, TRIPLES, st.integers(1, 40), st.booleans(), st.sampled_from([1, 2, 5]), st.sampled_from([2, 300]))
def test_blocks_of_any_size_give_what_is_counted_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    triples: list[tuple[int, int, int]],
    more: list[tuple[int, int, int]],
    edges_at_once: int,
    typed: bool,
    max_same_name: int,
    max_fan_out: int,
) -> None:
    folder, facts = tmp_path_factory.mktemp("small"), np.array(more)
    small(triples, typed).save(folder / "small")
    dataset = FewShotDataset.open(folder / "small")
    chosen = EvidenceSettings(max_same_name=max_same_name, max_fan_out=max_fan_out)
    write_index(folder / "index", dataset, chosen, facts, edges_at_once=edges_at_once)
    found = EvidenceGraph.stored(open_index(folder / "index", dataset), dataset.graph.types, facts, chosen)
    assert_same(found, EvidenceGraph.counted(dataset.graph, facts, chosen))


def test_a_stored_graph_answers_as_the_one_that_was_counted(opened: FewShotDataset, umls: FewShotDataset) -> None:
    path = cached_index(opened, SETTINGS)
    assert path is not None and not path.exists()
    made = EvidenceGraph.of(opened)
    assert path.exists()
    stored = EvidenceGraph.of(opened)
    assert scores(stored, opened) == scores(made, opened) == scores(EvidenceGraph.of(umls), umls)
    assert_same(stored, EvidenceGraph.counted(opened.graph, train_facts(opened, SETTINGS), SETTINGS))


@pytest.mark.parametrize("keys", [nullcontext, ranked_keys])
def test_names_are_stored_too(keys: Callable[[], AbstractContextManager[None]]) -> None:
    with keys():
        graph = EvidenceGraph(np.array([[2, 0, 1], [3, 0, 1]]), 4, 1, groups=np.array([0, -1, 0, 0]))
        again = EvidenceGraph.stored(graph.arrays(), None, graph.task_facts, graph.settings)
        assert graph.same_names is not None and again.same_names is not None
        for names in (graph.same_names, again.same_names):  # the twin of entity 0 stands for the other fact, too
            assert names.gone_with(np.array([[3, 0, 1]])).tolist() == [[3, 0, 1], [2, 1, 1]]


def test_other_settings_other_data_and_damage_are_counted_anew(opened: FewShotDataset, umls: FewShotDataset) -> None:
    EvidenceGraph.of(opened)
    path = cached_index(opened, SETTINGS)
    assert path is not None and cached_index(umls, SETTINGS) is None
    assert cached_index(opened, EvidenceSettings(max_fan_out=3)) != path
    assert cached_index(opened, EvidenceSettings(sharpness=3)) == path  # which changes nothing that is counted
    assert cached_index(replace(opened, name="changed"), SETTINGS) is None
    expected = scores(EvidenceGraph.of(umls), umls)
    for name in ("targets.npy", "index.json"):
        content = (path / name).read_bytes()
        middle = len(content) // 2
        for damage in (b"", content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
            (path / name).write_bytes(damage)
            assert scores(EvidenceGraph.of(FewShotDataset.open(opened.directory)), opened) == expected  # type: ignore[arg-type]
            assert (path / name).read_bytes() == content


def test_without_a_cache_it_is_counted_every_time(opened: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", "/dev/null/nowhere")
    assert len(EvidenceGraph.of(opened).targets)


def test_the_index_of_a_dataset_is_in_its_folder(opened: FewShotDataset, tmp_path: Path) -> None:
    path = own_index(opened)
    assert path == (tmp_path / "umls").resolve() / "evidence"
    done = CliRunner().invoke(hire, ["data", "index", str(tmp_path / "umls"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["edges"] == len(EvidenceGraph.of(opened).targets)
    assert not (tmp_path / "cache").exists()
    assert_same(EvidenceGraph.of(opened), EvidenceGraph.counted(opened.graph, opened.task_triples("train"), SETTINGS))
    EvidenceGraph.of(opened, EvidenceSettings(max_fan_out=7))  # counted with other settings: from the cache
    assert (tmp_path / "cache").exists()
    verified = CliRunner().invoke(hire, ["data", "verify", str(tmp_path / "umls")])
    assert verified.exit_code == 0 and "evidence/targets.npy" in verified.output


def test_an_index_is_not_replaced_unasked(opened: FewShotDataset, tmp_path: Path) -> None:
    command = ["data", "index", str(tmp_path / "umls")]
    assert CliRunner().invoke(hire, command).exit_code == 0
    with pytest.raises(HireError, match="already exists"):
        CliRunner().invoke(hire, command, catch_exceptions=False)
    assert CliRunner().invoke(hire, [*command, "--overwrite"]).exit_code == 0
    with pytest.raises(HireError, match="in the cache"):
        CliRunner().invoke(hire, ["data", "index", "umls-one"], catch_exceptions=False)


def test_a_damaged_index_in_a_dataset_is_an_error(opened: FewShotDataset, tmp_path: Path) -> None:
    path = own_index(opened)
    assert path is not None
    write_index(path, opened, SETTINGS, train_facts(opened, SETTINGS))
    content = (path / "levels.npy").read_bytes()
    (path / "levels.npy").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(HireError, match="damaged") as error:
        evidence_of(FewShotDataset.open(tmp_path / "umls"), SETTINGS)
    assert "hire data index" in str(error.value.problems[0].remedy)
    assert CliRunner().invoke(hire, ["data", "verify", str(tmp_path / "umls")]).exit_code == 2


def test_the_index_of_another_dataset_is_not_used(opened: FewShotDataset, tmp_path: Path) -> None:
    path = own_index(opened)
    assert path is not None
    write_index(path, opened, SETTINGS, train_facts(opened, SETTINGS))
    other = replace(opened, origin={"other": True})
    other.save(tmp_path / "other")
    shutil.copytree(path, tmp_path / "other" / "evidence")
    evidence_of(FewShotDataset.open(tmp_path / "other"), SETTINGS)
    assert (tmp_path / "cache").exists()


def test_a_build_ends_with_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    rows = [f"e{i}\tr{i % 3}\te{i * 7 % 40}\n" for i in range(40)]
    (tmp_path / "graph.tsv").write_text("".join(rows))
    command = ["data", "build", str(tmp_path / "graph.tsv"), "-o", str(tmp_path / "built"), "--more-than", "5"]
    done = CliRunner().invoke(hire, command)
    assert done.exit_code == 0, done.output
    dataset = open_dataset(tmp_path / "built")
    EvidenceGraph.of(dataset)
    assert not (tmp_path / "cache").exists()
