from __future__ import annotations

import numpy as np
import pytest

from hire.data.graph import KnowledgeGraph
from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError
from hire.inference.search import EntityNames

ENTITIES = {
    "Q1": "Marie Curie",
    "Q2": "Pierre Curie",
    "Q3": "Curie",
    "concept:person:ada_lovelace": "",
    "Q5": "Berlin",
    "Q6": "berlin",
    "Q7": "Mercury",
    "Q8": "Mercury",
    "Q9": "Curium",
    "Q10": "Łódź",
}


@pytest.fixture(scope="module")
def names() -> EntityNames:
    entities = Vocabulary.of(list(ENTITIES), "entity")
    triples = np.array([[1, 0, 0], [1, 0, 2], [1, 0, 3]])
    labels = StringTable.of(list(ENTITIES.values()))
    return EntityNames(KnowledgeGraph.of(entities, Vocabulary.of(["r"], "relation"), triples, labels))


def found(names: EntityNames, text: str, k: int = 10) -> list[str]:
    return [names.graph.entities[entity] for entity in names.search(text, k)]


def test_an_entity_is_known_by_id_or_label(names: EntityNames) -> None:
    assert names.id("Q2") == names.id("Pierre Curie") == names.id("pierre curie") == 1
    assert names.id("Berlin") == 4 and names.id("berlin") == 5  # as written, before any other case
    assert names.ids(["Q1", "Curium", "Q1"]).tolist() == [0, 8, 0]


def test_what_is_unknown_or_unclear_is_told_with_a_remedy(names: EntityNames) -> None:
    with pytest.raises(HireError, match="several entities have the label 'Mercury'") as caught:
        names.id("Mercury")
    assert "'Q7' or 'Q8'" in str(caught.value.problems[0].remedy)
    with pytest.raises(HireError, match="unknown entity 'Marie Cuire'") as caught:
        names.id("Marie Cuire")
    assert "'Q1'" in str(caught.value.problems[0].remedy)
    with pytest.raises(HireError, match="unknown entity 'zzzzzz'") as caught:
        names.id("zzzzzz")
    assert caught.value.problems[0].remedy == "use the id or label of an entity"
    with pytest.raises(HireError, match="unknown entity ''"):
        names.id("")


def test_the_whole_comes_before_the_beginning_of_names_then_of_words(names: EntityNames) -> None:
    assert found(names, "curie") == ["Q3", "Q2", "Q1"]  # among words, the better connected first
    assert found(names, "curi") == ["Q3", "Q9", "Q2", "Q1"]
    assert found(names, "curi", 2) == ["Q3", "Q9"]
    assert found(names, "URIE") == ["Q2", "Q1", "Q3"]
    assert found(names, "łÓ") == ["Q10"]
    assert found(names, "Ada Love") == found(names, "ada_love") == ["concept:person:ada_lovelace"]
    assert found(names, "") == found(names, " \n") == found(names, "curie", 0) == []


@pytest.mark.parametrize("slip", ["ada lovelcae", "adda lovelace", "da lovelac", "ava lovelece"])
def test_slips_are_forgiven(names: EntityNames, slip: str) -> None:
    assert found(names, slip)[:1] == ["concept:person:ada_lovelace"]


def test_a_slip_in_one_word_of_a_name_is_forgiven(names: EntityNames) -> None:
    assert found(names, "Piere") == ["Q2"] and found(names, "lovelcae") == ["concept:person:ada_lovelace"]
    assert found(names, "Cuire")[0] == "Q3"  # the whole name before a word of others


def test_among_many_matches_none_that_begins_with_the_text_is_lost() -> None:
    strings = [f"x{i}ab" for i in range(2_000)] + ["abc", "ab"]
    graph = KnowledgeGraph.of(Vocabulary.of(strings), Vocabulary.of(["r"]), np.zeros((0, 3), np.int32))
    assert found(EntityNames(graph), "ab", 3) == ["ab", "abc", "x0ab"]


def test_names_may_hold_anything() -> None:
    strings = ["", "a\nb", "İstanbul", "a"]
    names = EntityNames(KnowledgeGraph.of(Vocabulary.of(strings), Vocabulary.of(["r"]), np.zeros((0, 3), np.int32)))
    assert found(names, "a b") == ["a\nb"]
    assert found(names, "stanbul") == ["İstanbul"]
    assert found(names, "\ud800") == []
