from __future__ import annotations

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.inference.candidates import Likeness
from tests.data.test_graph import graph_of


def test_the_most_alike_have_the_kinds_of_edges_that_examples_have() -> None:
    # People 0 to 5 live in 6, 7 or 8; everybody knows 0. Whoever is asked for places gets places.
    lives = [(0, 0, 6), (1, 0, 6), (2, 0, 7), (3, 0, 7), (4, 0, 8)]
    graph = graph_of(lives + [(person, 1, 0) for person in range(1, 6)], entities=10)
    likeness, everything = Likeness(graph), np.arange(10)
    assert likeness.most_alike(everything, np.array([6]), 3).tolist() == [6, 7, 8]
    assert likeness.most_alike(everything, np.array([6]), 10) is everything
    assert likeness.most_alike(np.array([1, 5, 7, 9]), np.array([6]), 1).tolist() == [7]
    assert likeness.most_alike(everything, np.array([9]), 2).tolist() == [0, 9]  # nothing to go by but the degree
    hidden = likeness.most_alike(everything, np.array([6]), 3, hidden=0)
    assert 6 in hidden and not {7, 8} <= set(hidden.tolist())


def _typed() -> KnowledgeGraph:
    """People 0 and 1, children 2 and 3, cities 4 and 5, a village 6, and something 7 that has no edge."""
    graph = graph_of([(0, 0, 4), (1, 0, 5), (2, 0, 4), (3, 0, 6), (0, 1, 2), (1, 1, 3)], entities=9)
    names = Vocabulary.of(["person", "child", "city", "village", "thing"], "type")
    graph.types = Types.of(names, np.arange(8), np.array([0, 0, 1, 1, 2, 2, 3, 4]), 9)
    return graph


def test_types_are_alike_whose_entities_have_the_same_kinds_of_edges() -> None:
    likeness = Likeness(_typed())
    assert likeness.types(np.array([2])).tolist() == [2, 3]  # cities and villages
    assert likeness.types(np.array([4])).tolist() == [4]
    assert likeness.types(np.array([0, 4])).tolist() == [0, 4]  # who has a child is not like one who is one
    assert likeness.entities(np.array([4]), 100).tolist() == [4, 5, 6]
    assert likeness.entities(np.array([4, 8]), 100).tolist() == [4, 5, 6, 8]  # without a type, but an example
    assert likeness.entities(np.array([6]), 2).tolist() in ([4, 6], [5, 6])


def test_the_cosines_are_those_of_plain_loops() -> None:
    graph = _typed()
    assert graph.types is not None
    rows = np.zeros((5, 6))
    has = {(entity, int(kind)) for entity in range(9) for kind in graph.neighbors_of(entity, None)[:, 0]}
    for kind in range(6):
        having = [entity for entity, other in has if other == kind]
        for type_ in range(5):
            count = sum(type_ in graph.types.of_entity(entity) for entity in having)
            rows[type_, kind] = np.log1p(count) * np.log(10 / (len(having) + 1))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    found = Likeness(graph)._profiles
    made = np.zeros((5, 6))
    made[found.types, found.edge_types] = found.values
    assert np.allclose(made, rows)
