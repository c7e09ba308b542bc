from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.systems.path.features import EDGE_FEATURES, ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.settings import EvidenceSettings
from hire.systems.path.walks import HOPS, PAIR_FEATURES, TailInputs, Tails, Walks, walks
from tests.systems.path.test_graph import ENTITIES, TRIPLES, edges_of, graph_of

Path = tuple[tuple[int, ...], tuple[int, ...]]  # edge types, and the node before each


def paths_of(walked: Walks, query: int, pair: int) -> set[Path]:
    """All walks from a query's head to a pair's tail, whether they wait or not."""
    found: set[Path] = set()

    def back(hop: int, position: int, edge_types: tuple[int, ...], nodes: tuple[int, ...]) -> None:
        if hop < 0:
            if position == query:
                found.add((edge_types, nodes))
            return
        layer = walked.layers[hop]
        if walked.stays[hop][position] >= 0:
            back(hop - 1, int(walked.stays[hop][position]), edge_types, nodes)
        for edge in (layer.targets == position).nonzero()[:, 0].tolist():
            source = int(layer.sources[edge])
            node = int(walked.nodes[hop][source])
            back(hop - 1, source, (int(layer.edge_types[edge]), *edge_types), (node, *nodes))

    for position in (walked.reached == pair).nonzero()[:, 0].tolist():
        back(HOPS - 1, position, (), ())
    return found


def plain_paths(edges: set[tuple[int, int, int]], head: int, tail: int) -> set[Path]:
    """The same, by plain recursion."""
    found: set[Path] = set()

    def on(node: int, edge_types: tuple[int, ...], nodes: tuple[int, ...]) -> None:
        if node == tail:
            found.add((edge_types, nodes))
        if len(edge_types) < HOPS:
            for source, edge_type, target in edges:
                if source == node:
                    on(target, (*edge_types, edge_type), (*nodes, node))

    on(head, (), ())
    return found


@settings(max_examples=30, deadline=None)
@given(TRIPLES.map(lambda triples: triples[:14]), st.booleans(), st.integers(1, 2))
def test_walks_are_all_paths_of_three_hops_or_fewer(
    triples: list[tuple[int, int, int]], some: bool, queries: int
) -> None:
    hidden = 2
    edges = edges_of(triples, hidden)
    evidence = ReferenceEvidence(graph_of(triples), np.array([(0, 1), (2, 3)]), hidden)
    heads, tails = np.array([0, 4])[-queries:], np.array([1, 3, 4, 7])
    chosen = np.array([[0, 3], [2, 1]])[:queries] if some else np.broadcast_to(np.arange(4), (queries, 4))
    walked = walks(evidence, heads, Tails.of(evidence, tails), chosen if some else None)
    assert (walked.layers[-1].targets.diff() >= 0).all()  # in order
    width = chosen.shape[1]
    for query, head in enumerate(heads):
        for column in range(width):
            pair = query * width + column
            tail = int(tails[chosen[query, column]])
            plain = plain_paths(edges, int(head), tail)
            assert paths_of(walked, query, pair) == plain
            features = dict(zip(PAIR_FEATURES, walked.pairs[pair].tolist(), strict=True))
            assert features["is the head"] == (head == tail)
            links = {path for path in plain if len(path[0]) == 1}
            assert features["links"] == pytest.approx(np.log1p(len(links)))
            rules = [
                (evidence.rules.support[i], evidence.rules.confidence[i])
                for edge_types, _ in plain
                if len(edge_types) == 2
                for i in np.flatnonzero(
                    evidence.rules.keys == edge_types[0] * evidence.graph.edge_type_count + edge_types[1]
                )
            ]
            assert features["rule support"] == pytest.approx(max([support for support, _ in rules], default=0))
            assert np.sinh(features["rule confidence, sum"]) == pytest.approx(
                sum(confidence for _, confidence in rules), abs=1e-5
            )


def test_chosen_tails_have_the_same_features_as_among_all(umls: FewShotDataset) -> None:
    task = umls.split("dev")[0]
    evidence = ReferenceEvidence(EvidenceGraph.of(umls), task.pairs[:3])
    block = Tails.of(evidence, np.arange(40))
    heads = task.pairs[5:8, 0]
    everything = walks(evidence, heads, block)
    chosen = np.array([[3, 9], [9, 39], [0, 1]])
    some = walks(evidence, heads, block, chosen)
    positions = (np.arange(3)[:, None] * 40 + chosen).ravel()
    assert torch.equal(some.pairs, everything.pairs[torch.from_numpy(positions)])


def test_concatenated_tasks_keep_their_walks() -> None:
    graph = graph_of([(0, 0, 1), (1, 1, 2), (2, 2, 3), (4, 0, 3), (3, 1, 5), (5, 2, 6), (6, 0, 0), (7, 1, 2)])
    parts, blocks = [], []
    for pairs in ([(0, 1), (2, 3)], [(4, 5), (6, 7)]):
        evidence = ReferenceEvidence(graph, np.array(pairs))
        blocks.append(Tails.of(evidence, np.array([1, 2, ENTITIES - 1, 5, 6])))  # one is reached by nothing
        parts.append(walks(evidence, np.array([0, 4]), blocks[-1]))
    both = Walks.joined(parts, [5, 5], graph.edge_type_count)
    assert both.tails.tolist() == [*range(5), *range(5), *range(5, 10), *range(5, 10)]
    inputs = TailInputs.joined([block.inputs for block in blocks], graph.edge_type_count)
    assert len(inputs.features) == 10 and inputs.profile_owners.max() == 9
    for pair in range(10):
        moved = {
            (tuple(edge_type - graph.edge_type_count for edge_type in edge_types), nodes)
            for edge_types, nodes in paths_of(both, 2 + pair // 5, 10 + pair)
        }
        assert moved == paths_of(parts[1], pair // 5, pair)


def test_a_hub_is_reached_but_not_passed_by_the_middle_hop() -> None:
    triples = [(0, 0, 4), (1, 0, 4), (4, 1, 2), (4, 1, 5), (5, 0, 3), (2, 0, 3)]
    graph = graph_of(triples, EvidenceSettings(max_degree=3))
    evidence = ReferenceEvidence(graph, np.array([(1, 3)]))
    walked = walks(evidence, np.array([0]), Tails.of(evidence, np.array([2, 3])))
    assert ((0, 1), (0, 4)) in paths_of(walked, 0, 0)  # over the hub to 2
    assert not paths_of(walked, 0, 1)  # over the hub and on to 3
    assert not evidence.edge_features[:, EDGE_FEATURES.index("middle of three")].any()


def test_an_entity_without_edges_is_reached_by_no_walk() -> None:
    evidence = ReferenceEvidence(graph_of([(0, 0, 1)]), np.array([(0, 1)]))
    walked = walks(evidence, np.array([ENTITIES - 1]), Tails.of(evidence, np.array([ENTITIES - 2])))
    assert not len(walked.layers[-1].edge_types)
    assert not len(walked.reached) and not len(walked.stays[-1])
