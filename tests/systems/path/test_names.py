from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.graph import KnowledgeGraph
from hire.data.vocabulary import StringTable, Vocabulary
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.names import SameNames, same_name_groups
from hire.systems.path.reduced import ReducedGraph
from tests.support import ranked_keys

ENTITIES, RELATIONS = 7, 2
TRIPLES = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=20
)
GROUPS = st.lists(st.sampled_from([-1, 0, 1]), min_size=ENTITIES, max_size=ENTITIES)


def groups_of(
    names: list[str], triples: list[tuple[int, int, int]], relations: list[str], labels: list[str] | None = None
) -> list[list[str]]:
    """The names of each group."""
    graph = KnowledgeGraph.of(
        Vocabulary.of(names, "entity"),
        Vocabulary.of(relations, "relation"),
        np.array(triples).reshape(-1, 3),
        None if labels is None else StringTable.of(labels),
    )
    groups = same_name_groups(graph, 3)
    if groups is None:
        return []
    return [[names[i] for i in np.flatnonzero(groups == group)] for group in np.unique(groups[groups >= 0])]


def test_the_last_part_of_an_id_is_a_name() -> None:
    names = ["concept:coach:Pat_Riley", "concept:person:pat_riley", "http://a/x#Paris", "http://b/paris", "rome"]
    assert groups_of(names, [], ["r"]) == [names[:2], names[2:4]]


def test_numbers_and_short_codes_are_no_names() -> None:
    assert groups_of(["a/12", "b/12", "a/x1", "b/x1", "a/Q42", "b/Q42"], [], ["r"]) == []


def test_labels_count_where_there_are_any() -> None:
    names = ["a/paris", "b/paris", "c/1", "d/2"]
    assert groups_of(names, [], ["r"], ["Paris, France", "Paris, Texas", "Rome", "rome"]) == [names[2:]]


def test_a_word_that_many_share_is_no_identity() -> None:
    assert groups_of([f"{letter}:john" for letter in "abcd"], [], ["r"]) == []


def test_what_the_graph_says_to_be_the_same() -> None:
    names = ["a/one", "b/two", "c/three", "d/four"]
    same = "http://www.w3.org/2002/07/owl#sameAs"
    assert groups_of(names, [(0, 1, 1), (2, 1, 1), (0, 0, 3)], ["r", same]) == [names[:3]]


@pytest.mark.parametrize("keys", [nullcontext, ranked_keys])
@settings(max_examples=100, deadline=None)
@given(TRIPLES, GROUPS)
def test_facts_by_name_are_those_of_plain_loops(
    keys: Callable[[], AbstractContextManager[None]], triples: list[tuple[int, int, int]], groups: list[int]
) -> None:
    same = {
        (a, b) for a, b in product(range(ENTITIES), repeat=2) if a != b and groups[a] == groups[b] and groups[a] >= 0
    }
    expected = {(a, 2 * RELATIONS, b) for a, b in same if a < b}
    for head, relation, tail in triples:
        expected |= {(b, relation + RELATIONS, tail) for a, b in same if a == head and b != tail}
        expected |= {(head, relation + RELATIONS, b) for a, b in same if a == tail and b != head}
    if not same:
        return
    with keys():
        found = SameNames(np.array(groups), RELATIONS).twins(np.array(triples, np.int64).reshape(-1, 3))
    assert list(map(tuple, found.tolist())) == sorted(expected)


def test_facts_by_name_are_told_apart_in_graphs_of_any_size() -> None:
    many = 2**56  # relations: 8 * (2 * many + 1) * 16 entities is as good as 8 * 16 in 64 bits
    names = SameNames(np.array([-1] * 5 + [0, 0] + [-1] * 9), many)
    facts = np.array([[0, 8, 5], [8, 0, 5]])
    assert names.twins(facts).tolist() == [[0, 8 + many, 6], [5, 2 * many, 6], [8, many, 6]]
    assert names.gone_with(facts[1:]).tolist() == [[8, 0, 5], [8, many, 6]]


def test_a_hidden_relation_hides_its_twin() -> None:
    triples = np.array([[0, 0, 1], [2, 1, 1], [0, 1, 3]])
    graph = EvidenceGraph(triples, 5, 2, groups=np.array([0, -1, -1, -1, 0]))  # 0 and 4 have the same name
    assert graph.relation_count == 5

    def edges(hidden: int | None) -> set[tuple[int, int, int]]:
        found = graph.leaving(np.arange(5), hidden)
        kinds, targets = graph.edge_types[found.ids].tolist(), graph.targets[found.ids].tolist()
        return set(zip(found.owners.tolist(), kinds, targets, strict=True))

    assert edges(None) - edges(0) == {(0, 0, 1), (1, 5, 0), (4, 2, 1), (1, 7, 4)}
    assert {(0, 4, 4), (4, 9, 0)} <= edges(0)  # that names are the same is no fact of the relation
    assert graph.visible_degrees(np.arange(5), 0).tolist() == [
        len([edge for edge in edges(0) if edge[0] == node]) for node in range(5)
    ]
    evidence = ReferenceEvidence(graph, np.array([[0, 1]]), 0)
    assert not evidence.edge_features[[0, 2, 5, 7]].any()
    assert evidence.edge_features[[1, 4]].any(axis=1).all()
    assert evidence.edge_features[:, -1].tolist() == pytest.approx([0, 0, 0, 1, 1, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("keys", [nullcontext, ranked_keys])
@settings(max_examples=60, deadline=None)
@given(TRIPLES.filter(len), GROUPS, st.data())
def test_a_fact_is_removed_with_its_twins_as_from_a_graph_that_never_had_it(
    keys: Callable[[], AbstractContextManager[None]],
    triples: list[tuple[int, int, int]],
    groups: list[int],
    data: st.DataObject,
) -> None:
    if max(groups) < 0:
        return
    facts = np.array(sorted(set(triples)), np.int64)
    gone = data.draw(st.lists(st.sampled_from(facts.tolist()), min_size=1, max_size=3))
    with keys():
        whole = EvidenceGraph(facts, ENTITIES, RELATIONS, groups=np.array(groups))
    left = np.array([fact for fact in facts.tolist() if fact not in gone], np.int64).reshape(-1, 3)
    rest = EvidenceGraph(left, ENTITIES, RELATIONS, groups=np.array(groups))

    def edges(graph: EvidenceGraph) -> set[tuple[int, int, int]]:
        found = graph.leaving(np.arange(ENTITIES))
        return set(zip(found.owners.tolist(), graph.edge_types[found.ids], graph.targets[found.ids], strict=True))

    with keys():
        without = ReducedGraph(whole, np.array(gone))
    assert edges(without) == edges(rest)
    twins = [edge for edge in edges(whole) - edges(rest) if RELATIONS <= edge[1] < 2 * RELATIONS]
    if twins:  # without a twin, the facts that it stands for are gone
        reduced = ReducedGraph(whole, np.array(twins[:1]))
        assert twins[0] not in edges(reduced) and any(edge[1] < RELATIONS for edge in edges(whole) - edges(reduced))
