from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.data.facts import Facts, first_occurrences
from hire.errors import HireError
from hire.util.arrays import IntArray
from tests.data.test_graph import ENTITIES, RELATIONS, triple
from tests.support import ranked_keys

Triples = list[tuple[int, int, int]]
FORMS = pytest.mark.parametrize("form", ["plain", "ranked"])
MANY, KINDS = 200_000_000, 3_000  # entities and relations whose plain keys would need 67 bits
near = st.one_of(st.integers(0, 2), st.integers(MANY - 3, MANY - 1), st.integers(0, MANY - 1))
far_triple = st.tuples(near, st.one_of(st.integers(0, 2), st.integers(KINDS - 3, KINDS - 1)), near)


def keys_in(form: str) -> AbstractContextManager[None]:
    return ranked_keys() if form == "ranked" else nullcontext()


def array_of(triples: Triples) -> IntArray:
    return np.array(triples, np.int64).reshape(-1, 3)


def everything(entities: int, relations: int) -> Iterator[tuple[int, int, int]]:
    yield from np.ndindex(entities, relations, entities)


@FORMS
@given(st.lists(triple))
def test_facts_equal_a_set_of_triples(form: str, triples: Triples) -> None:
    with keys_in(form):
        facts = Facts.of(array_of(triples), ENTITIES, RELATIONS)
        some = facts.of_relations(np.array([0, 2]))
    assert (facts.pairs is None) == (some.pairs is None) == (form == "plain")
    known = set(triples)
    heads, relations, tails = np.meshgrid(*map(np.arange, (ENTITIES, RELATIONS, ENTITIES)), indexing="ij")
    found = facts.contain(heads, relations, tails)
    for h, r, t in everything(ENTITIES, RELATIONS):
        assert found[h, r, t] == ((h, r, t) in known)
    for r in range(RELATIONS):
        for h in range(ENTITIES):
            assert facts.tails(h, r).tolist() == sorted(t for a, b, t in known if (a, b) == (h, r))
        rows, of_all = facts.all_tails(np.arange(ENTITIES), r)
        assert list(zip(rows.tolist(), of_all.tolist(), strict=True)) == sorted((h, t) for h, b, t in known if b == r)
    assert facts.triples().tolist() == sorted(map(list, known))
    assert (some.contain(heads, relations, tails) == (found & (relations != 1))).all()
    assert some.triples().tolist() == sorted(list(fact) for fact in known if fact[1] != 1)


@FORMS
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 3)))
def test_saturated_heads(form: str, triples: Triples) -> None:
    with keys_in(form):
        facts = Facts.of(array_of(triples), 2, 2)
    expected = [(h, r) for h in (0, 1) for r in (0, 1) if {(h, r, 0), (h, r, 1)} <= set(triples)]
    assert list(zip(*(column.tolist() for column in facts.saturated_heads()), strict=True)) == expected


@FORMS
@given(st.lists(triple), st.lists(triple))
def test_extended_is_as_if_made_at_once(form: str, triples: Triples, more: Triples) -> None:
    with keys_in(form):
        facts = Facts.of(array_of(triples), ENTITIES, RELATIONS)
        wider = facts.extended(array_of(more), ENTITIES + 2)
        at_once = Facts.of(array_of(triples + more), ENTITIES + 2, RELATIONS)
    assert (wider.entity_count, wider.relation_count) == (ENTITIES + 2, RELATIONS)
    assert wider.keys.tolist() == at_once.keys.tolist()
    if form == "plain":
        assert wider.pairs is at_once.pairs is None
    else:
        assert wider.pairs is not None and at_once.pairs is not None
        assert wider.pairs.tolist() == at_once.pairs.tolist()


@FORMS
@given(st.lists(triple))
def test_first_occurrences(form: str, triples: Triples) -> None:
    with keys_in(form):
        found = first_occurrences(array_of(triples), ENTITIES, RELATIONS)
    assert found.tolist() == [triples.index(each) for each in triples]


def test_facts_that_grow_get_ranks_when_they_must() -> None:
    facts = Facts.of(array_of([(1, 2, 3), (4, 5, 6)]), 1_000, KINDS)
    wider = facts.extended(array_of([(MANY - 1, 7, 8)]), MANY)
    assert facts.pairs is None and wider.pairs is not None
    assert wider.triples().tolist() == [[1, 2, 3], [4, 5, 6], [MANY - 1, 7, 8]]


@given(st.lists(far_triple), st.lists(far_triple), st.lists(far_triple))
def test_facts_of_many_entities_equal_a_set_of_triples(triples: Triples, more: Triples, others: Triples) -> None:
    facts, known = Facts.of(array_of(triples), MANY, KINDS), set(triples)
    assert facts.pairs is not None
    asked = triples + more + others
    assert facts.contain(*array_of(asked).T).tolist() == [fact in known for fact in asked]
    rows, tails = facts.all_tails(*array_of(asked).T[:2])
    expected = [(row, t) for row, (h, r, _) in enumerate(asked) for a, b, t in sorted(known) if (a, b) == (h, r)]
    assert list(zip(rows.tolist(), tails.tolist(), strict=True)) == expected
    assert facts.triples().tolist() == sorted(map(list, known))
    some = facts.of_relations(np.array([0, 2, KINDS - 1]))
    kept = sorted(fact for fact in known if fact[1] in (0, 2, KINDS - 1))
    assert some.triples().tolist() == list(map(list, kept))
    assert some.pairs is not None and some.pairs.tolist() == sorted({h * KINDS + r for h, r, _ in kept})
    assert facts.extended(array_of(more), MANY + 1).triples().tolist() == sorted(map(list, known | set(more)))
    assert first_occurrences(array_of(asked), MANY, KINDS).tolist() == [asked.index(fact) for fact in asked]
    assert [len(part) for part in facts.saturated_heads()] == [0, 0]


def test_what_no_form_can_number_is_refused() -> None:
    assert Facts.of(array_of([(0, 0, 0), (0, 0, 1)]), 2**62, 1).tails(0, 0).tolist() == [0, 1]
    for entities, relations in ((2**62, 1), (10**11, 10**9)):
        with pytest.raises(HireError, match="too many for 64-bit keys"):
            Facts.of(array_of([(0, 0, 0), (1, 0, 0)]), entities, relations)
