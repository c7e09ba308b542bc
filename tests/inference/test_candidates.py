from __future__ import annotations

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.inference.candidates import CandidateFinder
from tests.data.test_graph import graph_of


def test_the_most_similar_entities_have_the_edge_types_of_the_examples() -> None:
    # People 0 to 5 live in 6, 7 or 8; everybody knows 0. Asked for cities, it finds cities.
    lives = [(0, 0, 6), (1, 0, 6), (2, 0, 7), (3, 0, 7), (4, 0, 8)]
    graph = graph_of(lives + [(person, 1, 0) for person in range(1, 6)], entities=10)
    finder, everything = CandidateFinder(graph), np.arange(10)
    assert finder.most_similar(everything, np.array([6]), 3).tolist() == [6, 7, 8]
    assert finder.most_similar(everything, np.array([6]), 10) is everything
    assert finder.most_similar(np.array([1, 5, 7, 9]), np.array([6]), 1).tolist() == [7]
    assert finder.most_similar(everything, np.array([9]), 2).tolist() == [0, 9]  # only the degree is left to compare
    hidden = finder.most_similar(everything, np.array([6]), 3, hidden=0)
    assert 6 in hidden and not {7, 8} <= set(hidden.tolist())


def _typed() -> KnowledgeGraph:
    """People 0 and 1, children 2 and 3, cities 4 and 5, a village 6, and something 7 that has no edge."""
    graph = graph_of([(0, 0, 4), (1, 0, 5), (2, 0, 4), (3, 0, 6), (0, 1, 2), (1, 1, 3)], entities=9)
    names = Vocabulary.of(["person", "child", "city", "village", "thing"], "type")
    graph.types = Types.of(names, np.arange(8), np.array([0, 0, 1, 1, 2, 2, 3, 4]), 9)
    return graph


def test_types_are_similar_if_their_entities_have_the_same_edge_types() -> None:
    finder = CandidateFinder(_typed())
    assert finder.types(np.array([2])).tolist() == [2, 3]  # cities and villages
    assert finder.types(np.array([4])).tolist() == [4]
    assert finder.types(np.array([0, 4])).tolist() == [0, 4]  # parents are not similar to children
    assert finder.entities(np.array([4]), 100).tolist() == [4, 5, 6]
    assert finder.entities(np.array([4, 8]), 100).tolist() == [4, 5, 6, 8]  # without a type, but an example
    assert finder.entities(np.array([6]), 2).tolist() in ([4, 6], [5, 6])


def test_the_cosines_are_those_of_plain_loops() -> None:
    graph = _typed()
    assert graph.types is not None
    rows = np.zeros((5, 6))
    has = {(entity, int(edge_type)) for entity in range(9) for edge_type in graph.neighbors_of(entity, None)[:, 0]}
    for edge_type in range(6):
        having = [entity for entity, other in has if other == edge_type]
        for type_ in range(5):
            count = sum(type_ in graph.types.of_entity(entity) for entity in having)
            rows[type_, edge_type] = np.log1p(count) * np.log(10 / (len(having) + 1))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    found = CandidateFinder(graph)._profiles
    made = np.zeros((5, 6))
    made[found.types, found.edge_types] = found.values
    assert np.allclose(made, rows)
