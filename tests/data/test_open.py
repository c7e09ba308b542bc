from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset, open_graph
from hire.errors import HireError
from hire.util.files import OLD
from tests.conftest import write_layout
from tests.support import ended_process, leftover_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_bundled_dataset(umls: FewShotDataset) -> None:
    assert len(umls.graph.entities) == 135 and len(umls.graph.relations) == 46 and len(umls.facts.keys) == 6529
    assert umls.split_sizes == {"train": 16, "dev": 2, "test": 4}


def test_a_directory_goes_before_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write_layout(tmp_path / "umls-one")
    assert len(open_dataset("umls-one").graph.entities) == 4


def test_a_built_directory(tmp_path: Path, umls: FewShotDataset) -> None:
    umls.save(tmp_path / "mine")
    assert open_dataset(tmp_path / "mine").name == "umls-one"


@pytest.mark.parametrize("name", ["no-such", "."])
def test_something_else_is_an_error_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HireError) as caught:
        open_dataset(name)
    assert "umls-one" in str(caught.value.problems[0].remedy)


def test_a_published_layout_is_read_once_and_opened_afterwards(tmp_path: Path, cache: Path) -> None:
    directory = write_layout(tmp_path / "tiny")
    first = open_dataset(directory)
    (ready,) = cache.iterdir()
    stamp = (ready / "dataset.json").stat().st_mtime_ns
    second = open_dataset(directory)
    assert (ready / "dataset.json").stat().st_mtime_ns == stamp
    assert np.array_equal(first.facts.keys, second.facts.keys)


def test_a_changed_layout_is_read_again(tmp_path: Path, cache: Path) -> None:
    directory = write_layout(tmp_path / "tiny")
    open_dataset(directory)
    (directory / "path_graph").write_text("a\tlinks\tb\n")
    assert len(open_dataset(directory).graph.triples) == 1


def test_a_layout_of_the_same_size_and_time_but_other_bytes_is_read_again(tmp_path: Path, cache: Path) -> None:
    directory = write_layout(tmp_path / "tiny")
    path = directory / "path_graph"
    before, times = open_dataset(directory), path.stat()
    path.write_text(path.read_text().replace("c\tlikes\ta", "c\tlikes\tb"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not np.array_equal(open_dataset(directory).graph.triples, before.graph.triples)


def test_a_raw_graph_of_the_same_size_and_time_but_other_bytes_is_read_again(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text("a\tlinks\tb\nb\tlinks\tc\n")
    before, times = open_graph(path), path.stat()
    path.write_text("a\tlinks\tb\nb\tlinks\td\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "c" in before.graph.entities and "d" in open_graph(path).graph.entities


def test_a_dataset_caught_while_it_was_replaced_is_found_again(tmp_path: Path, umls: FewShotDataset) -> None:
    umls.save(tmp_path / "made")
    leftover = leftover_of(ended_process(), tmp_path / "made")
    (leftover / "made").mkdir(parents=True)
    (tmp_path / "made").rename(leftover / OLD)
    assert open_dataset(tmp_path / "made").name == umls.name and not leftover.exists()


def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path) -> None:
    directory = write_layout(tmp_path / "tiny")
    open_dataset(directory)
    (ready,) = cache.iterdir()
    (ready / "facts.npy").write_bytes(b"")
    assert len(open_dataset(directory).facts.keys) == 12
    assert (ready / "facts.npy").stat().st_size > 0


def test_without_a_place_for_the_cache_it_works_in_memory(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file where the cache should be")
    assert len(open_dataset(write_layout(tmp_path / "tiny")).tasks) == 3
    assert cache.read_text() == "a file where the cache should be"


def test_a_missing_home_for_the_cache_follows_the_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from hire.util.files import cache_directory

    monkeypatch.delenv("HIRE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "hire"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path(os.path.expanduser("~")) / ".cache" / "hire"  # noqa: PTH111


def test_nell_one_from_the_cache_is_the_same(nell_one_directory: Path, nell_one: FewShotDataset, cache: Path) -> None:
    for _ in range(2):
        again = open_dataset(nell_one_directory)
        assert np.array_equal(again.graph.neighbors, nell_one.graph.neighbors)
        assert np.array_equal(again.facts.keys, nell_one.facts.keys)
        assert list(again.graph.entities) == list(nell_one.graph.entities)
    shutil.rmtree(cache)
