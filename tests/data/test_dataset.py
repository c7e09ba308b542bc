from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hire.data.dataset import MANIFEST, CandidateSets, FewShotDataset
from hire.errors import HireError
from tests.support import ranked_facts


def test_equal_candidate_sets_are_stored_once() -> None:
    sets = CandidateSets()
    assert [sets.id_of(np.array(members)) for members in ([1, 2], [3], [1, 2], [])] == [0, 1, 0, 2]
    assert sets.offsets().tolist() == [0, 2, 3, 3]


def test_saved_and_mapped_is_the_same(umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.util.files.LARGEST_IN_MEMORY", 0)
    umls.save(tmp_path / "umls")
    again = FewShotDataset.open(tmp_path / "umls")
    assert (
        again.name == umls.name
        and again.split_sizes == umls.split_sizes
        and again.origin == json.loads(json.dumps(umls.origin))
    )
    for one, other in zip(umls.tasks, again.tasks, strict=True):
        assert (one.name, one.split, one.relation) == (other.name, other.split, other.relation)
        assert np.array_equal(one.pairs, other.pairs)
    assert isinstance(again.facts.keys, np.memmap) and np.array_equal(again.facts.keys, umls.facts.keys)


def test_ranked_pairs_are_saved_too(umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hire.util.files.LARGEST_IN_MEMORY", 0)
    ranked = replace(umls, facts=ranked_facts(umls))
    assert ranked.facts.pairs is not None and ranked.facts.keys[-1] < umls.facts.keys[-1]
    ranked.save(tmp_path / "ranked")
    again = FewShotDataset.open(tmp_path / "ranked")
    assert isinstance(again.facts.pairs, np.memmap) and np.array_equal(again.facts.pairs, ranked.facts.pairs)
    assert np.array_equal(again.facts.keys, ranked.facts.keys)
    assert np.array_equal(again.facts.triples(), umls.facts.triples())
    again.mapped.check()
    (tmp_path / "ranked" / "fact_pairs.npy").touch()
    with pytest.raises(HireError, match=r"fact_pairs\.npy: a file of the dataset was changed"):
        again.mapped.check()


def test_the_format_tells_older_versions_that_pairs_have_ranks(umls: FewShotDataset, tmp_path: Path) -> None:
    for facts, form in ((umls.facts, 2), (ranked_facts(umls), 3)):
        replace(umls, facts=facts).save(tmp_path / str(form))
        assert json.loads((tmp_path / str(form) / MANIFEST).read_text())["format"] == form
        assert (tmp_path / str(form) / "fact_pairs.npy").exists() == (form == 3)


def test_an_existing_dataset_is_replaced_only_on_demand(umls: FewShotDataset, tmp_path: Path) -> None:
    target = tmp_path / "umls"
    umls.save(target)
    (target / "facts.npy").unlink()
    with pytest.raises(HireError, match="already exists"):
        umls.save(target)
    umls.save(target, overwrite=True)
    assert FewShotDataset.open(target).name == "umls-one"
    assert [path.name for path in tmp_path.iterdir()] == ["umls"]


def test_what_is_not_a_dataset_is_never_replaced(umls: FewShotDataset, tmp_path: Path) -> None:
    target = tmp_path / "home"
    target.mkdir()
    umls.save(target, overwrite=True)  # an empty directory may be
    (target / MANIFEST).unlink()
    (target / "precious").write_text("mine")
    with pytest.raises(HireError, match="is not a dataset"):
        umls.save(target, overwrite=True)
    assert (target / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    "manifest",
    ["", "{", "[]", "{}", '{"format": 1}', '{"format": 99, "files": {}, "splits": {}, "name": "", "origin": {}}'],
)
def test_a_damaged_manifest(umls: FewShotDataset, tmp_path: Path, manifest: str) -> None:
    umls.save(tmp_path / "umls")
    (tmp_path / "umls" / MANIFEST).write_text(manifest)
    with pytest.raises(HireError, match=MANIFEST) as caught:
        FewShotDataset.open(tmp_path / "umls")
    assert "build the dataset again" in str(caught.value.problems[0].remedy)


def test_a_truncated_array(umls: FewShotDataset, tmp_path: Path) -> None:
    umls.save(tmp_path / "umls")
    path = tmp_path / "umls" / "graph" / "neighbors.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(HireError, match=r"neighbors\.npy: is missing or has the wrong size"):
        FewShotDataset.open(tmp_path / "umls")


def test_a_flipped_bit_in_any_file_is_told(umls: FewShotDataset, tmp_path: Path) -> None:
    replace(umls, facts=ranked_facts(umls)).save(tmp_path / "umls")
    for path in sorted((tmp_path / "umls").rglob("*.npy")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(HireError, match=f"{path.name}: is damaged") as caught:
            FewShotDataset.open(tmp_path / "umls")
        assert caught.value.problems[0].remedy == "build the dataset again"
        path.write_bytes(whole)
    assert FewShotDataset.open(tmp_path / "umls").name == "umls-one"


def test_a_mapped_file_that_changes_is_told_and_one_in_memory_does_not_matter(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    umls.save(tmp_path / "umls")
    in_memory = FewShotDataset.open(tmp_path / "umls")
    monkeypatch.setattr("hire.util.files.LARGEST_IN_MEMORY", 0)
    mapped = FewShotDataset.open(tmp_path / "umls")
    extended = mapped.extended(["new"], np.zeros((1, 3), np.int32))
    for dataset in (in_memory, mapped, extended):
        dataset.mapped.check()
    os.truncate(tmp_path / "umls" / "facts.npy", 0)
    in_memory.mapped.check()
    assert np.array_equal(in_memory.facts.keys, umls.facts.keys)
    for dataset in (mapped, extended):
        with pytest.raises(HireError, match=r"facts\.npy: a file of the dataset was changed or removed"):
            dataset.mapped.check()


def test_splits(umls: FewShotDataset) -> None:
    assert [len(umls.split(split)) for split in ("train", "dev", "test")] == list(umls.split_sizes.values())
    with pytest.raises(HireError, match="unknown split"):
        umls.split("valid")
    with pytest.raises(HireError, match="references and a query need 100"):
        umls.split("train", 99)


def test_extended_is_as_if_made_at_once(umls: FewShotDataset) -> None:
    graph, count = umls.graph, len(umls.graph.entities)
    more = np.array([[count, 0, 3], [5, 1, count + 1], [count, 0, count + 1]], np.int32)
    wider = umls.extended(["new", "newer"], more)
    assert wider.graph.entities.id("newer") == count + 1 and len(umls.graph.entities) == count
    assert wider.graph.neighbors_of(count).tolist() == [[0, 3], [0, count + 1]]
    assert wider.graph.neighbors_of(7).tolist() == graph.neighbors_of(7).tolist()
    assert wider.facts.contain(*more.T).all() and not wider.facts.contain(count, 0, 4)
    heads, relations, tails = graph.triples.T
    assert wider.facts.contain(heads, relations, tails).all()
    assert len(wider.facts.keys) == len(umls.facts.keys) + 3
    assert [task.name for task in wider.tasks] == [task.name for task in umls.tasks]


def test_the_triples_of_tasks(umls: FewShotDataset) -> None:
    for split in ("train", "dev"):
        tasks = umls.split(split)
        everything = [[h, task.relation, t] for task in tasks for h, t in task.pairs.tolist()]
        assert umls.task_triples(split).tolist() == everything
        references = [[h, task.relation, t] for task in tasks for h, t in task.pairs[:2].tolist()]
        assert umls.task_triples(split, 2).tolist() == references
    with pytest.raises(HireError, match="need 1001"):
        umls.task_triples("dev", 1000)
