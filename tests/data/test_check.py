from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hire.data.check import check_arrays
from hire.data.dataset import FewShotDataset
from hire.data.facts import Facts
from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError
from tests.support import ranked_facts


def changed(dataset: FewShotDataset, **parts: Any) -> FewShotDataset:
    graph = copy(dataset.graph)
    of_graph = {name: parts.pop(name) for name in list(parts) if hasattr(graph, name)}
    for name, value in of_graph.items():
        setattr(graph, name, value)
    return replace(dataset, graph=graph, **parts)


def with_value(array: Any, index: Any, value: int) -> Any:
    other = np.array(array)
    other[index] = value
    return other


def other_names(names: Vocabulary, **parts: Any) -> Vocabulary:
    own: dict[str, Any] = {"text": names.text, "offsets": names.offsets, "order": names.order} | parts
    return Vocabulary(own["text"], own["offsets"], own["order"], names.kind)


def with_pairs(dataset: FewShotDataset, change: Callable[[Any], Any]) -> Facts:
    """The facts with keys that have the ranks of pairs, and the pairs changed."""
    ranked = ranked_facts(dataset)
    return Facts(ranked.keys, ranked.entity_count, ranked.relation_count, change(ranked.pairs))


WRONG: dict[str, Callable[[FewShotDataset], dict[str, Any]]] = {
    "graph/triples.npy": lambda d: {"triples": with_value(d.graph.triples, (0, 2), 10**6)},
    "graph/triples.npy: relation": lambda d: {"triples": with_value(d.graph.triples, (3, 1), 500)},
    "graph/triples.npy: negative": lambda d: {"triples": with_value(d.graph.triples, (0, 0), -1)},
    "graph/triples.npy: shape": lambda d: {"triples": np.zeros((5, 2), np.int32)},
    "graph/triples.npy: type": lambda d: {"triples": np.zeros((5, 3), np.float32)},
    "graph/offsets.npy": lambda d: {"offsets": with_value(d.graph.offsets, 3, 10**9)},
    "graph/offsets.npy: end": lambda d: {"offsets": with_value(d.graph.offsets, -1, 7)},
    "graph/neighbors.npy": lambda d: {"neighbors": with_value(d.graph.neighbors, (0, 1), 10**6)},
    "graph/neighbors.npy: edge type": lambda d: {"neighbors": with_value(d.graph.neighbors, (-1, 0), 500)},
    "graph/entities.order.npy": lambda d: {
        "entities": other_names(d.graph.entities, order=with_value(d.graph.entities.order, 0, 1))
    },
    "graph/entities.text.npy": lambda d: {
        "entities": other_names(d.graph.entities, text=with_value(d.graph.entities.text, 0, 0xFF))
    },
    "graph/relations.offsets.npy": lambda d: {
        "relations": other_names(d.graph.relations, offsets=with_value(d.graph.relations.offsets, 0, -4))
    },
    "graph/labels.offsets.npy": lambda d: {"labels": StringTable.of(["a"])},
    "task_relations.npy": lambda d: {"task_relations": with_value(d.task_relations, 0, 999)},
    "task_offsets.npy": lambda d: {"task_offsets": d.task_offsets[:-1]},
    "task_pairs.npy": lambda d: {"task_pairs": with_value(d.task_pairs, (0, 0), 10**6)},
    "task_candidates.npy": lambda d: {"task_candidates": with_value(d.task_candidates, 0, 17)},
    "candidate_members.npy": lambda d: {"candidate_members": np.array([10**6]), "candidate_offsets": np.array([0, 1])},
    "candidate_offsets.npy": lambda d: {"candidate_offsets": np.zeros(0, np.int64)},
    "facts.npy": lambda d: {"facts": Facts(d.facts.keys[::-1], d.facts.entity_count, d.facts.relation_count)},
    "facts.npy: between blocks": lambda d: {
        "facts": Facts(with_value(d.facts.keys, 6, d.facts.keys[5]), d.facts.entity_count, d.facts.relation_count)
    },
    "facts.npy: range": lambda d: {"facts": Facts(np.array([-3, 5]), d.facts.entity_count, d.facts.relation_count)},
    "facts.npy: more ranks than pairs": lambda d: {"facts": with_pairs(d, lambda pairs: pairs[:-1])},
    "fact_pairs.npy": lambda d: {"facts": with_pairs(d, lambda pairs: pairs[::-1])},
    "fact_pairs.npy: twice": lambda d: {"facts": with_pairs(d, lambda pairs: with_value(pairs, 6, pairs[5]))},
    "fact_pairs.npy: range": lambda d: {"facts": with_pairs(d, lambda pairs: with_value(pairs, -1, 10**6))},
    "fact_pairs.npy: shape": lambda d: {"facts": with_pairs(d, lambda pairs: pairs[:, None])},
}


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr("hire.data.check.ROWS_AT_ONCE", 6)
        monkeypatch.setattr("hire.data.check.SIDE_BY_SIDE", 3)


@pytest.mark.usefixtures("blocks")
def test_a_dataset_that_is_right_passes(umls: FewShotDataset) -> None:
    check_arrays(umls, Path("umls"))
    check_arrays(replace(umls, facts=ranked_facts(umls)), Path("umls"))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_told_with_its_file(umls: FewShotDataset, wrong: str) -> None:
    with pytest.raises(HireError) as caught:
        check_arrays(changed(umls, **WRONG[wrong](umls)), Path("umls"))
    (problem,) = caught.value.problems
    assert problem.file == f"umls/{wrong.partition(':')[0]}" and problem.remedy == "build the dataset again"
