from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hire.data.build import BuildSettings, build
from hire.data.dataset import FewShotDataset
from hire.data.published.read import inspect, read_published
from hire.data.published.write import write_published
from hire.errors import HireError
from tests.data.test_build import table_of


def test_what_is_exported_is_read_again(umls: FewShotDataset, tmp_path: Path) -> None:
    write_published(umls, tmp_path / "umls")
    assert inspect(tmp_path / "umls")[1].problems == []
    again = read_published(tmp_path / "umls")
    assert list(again.graph.entities) == list(umls.graph.entities)
    for one, other in zip(umls.tasks, again.tasks, strict=True):
        assert (one.name, one.split) == (other.name, other.split)
        assert np.array_equal(one.pairs, other.pairs)
    assert len(again.facts.keys) == len(umls.facts.keys)


def test_nell_one_survives_the_round_trip(nell_one: FewShotDataset, tmp_path: Path) -> None:
    write_published(nell_one, tmp_path / "nell")
    again = read_published(tmp_path / "nell")
    for name in ("task_pairs", "candidate_members", "candidate_offsets", "task_candidates"):
        assert np.array_equal(getattr(again, name), getattr(nell_one, name))
    assert np.array_equal(again.graph.neighbors, nell_one.graph.neighbors)
    assert np.array_equal(again.facts.keys, nell_one.facts.keys)


def test_a_relation_named_like_an_inverse_is_refused(tmp_path: Path) -> None:
    triples = [("a", relation, f"e{i}") for relation in ("p", "q", "s") for i in range(3)]
    dataset, _ = build([table_of([*triples, ("a", "r", "b"), ("a", "r_inv", "b")])], BuildSettings("x", more_than=2))
    with pytest.raises(HireError, match="'r_inv' has the name of the inverse of another relation"):
        write_published(dataset, tmp_path / "out")


def test_keys_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    triples = [(head, relation, f"e{i}") for head, relation in (("a", "br"), ("ab", "r"), ("a", "s")) for i in range(3)]
    dataset, _ = build([table_of([*triples, ("a", "x", "b")])], BuildSettings("x", more_than=2))
    with pytest.raises(HireError, match="the same key 'abr'"):
        write_published(dataset, tmp_path / "out")
    assert not (tmp_path / "out").exists()
