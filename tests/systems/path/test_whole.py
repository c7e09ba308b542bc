"""All entities as tails: the same bits as tails that are asked about one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hire.data.types import Types
from hire.data.vocabulary import Vocabulary
from hire.systems.base import Support
from hire.systems.path import model as path_model
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import EvidenceSettings, PathModelSettings
from hire.systems.path.whole import Arrivals, Kinds
from hire.util.arrays import IntArray

ENTITIES, RELATIONS, TYPES = 700, 5, 3


def sparse_graph(*, types: bool = True, max_fan_out: int = 300) -> EvidenceGraph:
    """Most entities have one or two facts, a few are hubs."""
    random = np.random.default_rng(5)
    heads = random.integers(0, ENTITIES, 600)
    tails = (ENTITIES * random.random(600) ** 4).astype(np.int64)
    triples = np.unique(np.stack([heads, random.integers(0, RELATIONS, 600), tails], axis=1), axis=0)
    names = Vocabulary.of([f"type {number}" for number in range(TYPES)], "type")
    typed = random.permutation(ENTITIES)[: ENTITIES // 2]
    of_entities = Types.of(names, typed, random.integers(0, TYPES, len(typed)), ENTITIES) if types else None
    settings = EvidenceSettings(max_fan_out=max_fan_out)
    return EvidenceGraph(triples, ENTITIES, RELATIONS, of_entities, settings)


def model_of(graph: EvidenceGraph) -> PathModel:
    torch.manual_seed(3)
    network = PathNetwork(PathModelSettings(channels=4, edge_width=8, readout_width=8, members=2))
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return PathModel(network.eval(), graph)


def pairs_of(graph: EvidenceGraph, relation: int) -> IntArray:
    chosen = np.flatnonzero(graph.edge_types == relation)[:4]
    heads = np.searchsorted(graph.offsets, chosen, side="right") - 1
    return np.stack([heads, graph.targets[chosen]], axis=1)


@pytest.mark.parametrize("types", [True, False])
def test_kinds_are_those_of_a_dictionary(types: bool) -> None:
    graph = sparse_graph(types=types)
    numbers: dict[tuple[bytes, ...], int] = {}
    expected = []
    for entity in range(ENTITIES):
        row = slice(*graph.profile_offsets[entity : entity + 2])
        of_types = graph.types.of_entity(entity) if graph.types is not None else np.zeros(0)
        parts = graph.profile_edge_types[row], graph.profile_counts[row], of_types
        expected.append(numbers.setdefault(tuple(np.asarray(part).tobytes() for part in parts), len(numbers)))
    kinds = Kinds.in_graph(graph)
    assert kinds.of.tolist() == expected
    assert kinds.examples.tolist() == [expected.index(kind) for kind in range(len(numbers))]
    assert 20 < len(numbers) < ENTITIES / 2


def test_walks_arrive_where_an_edge_comes_from() -> None:
    graph = sparse_graph(max_fan_out=2)
    sources = np.repeat(np.arange(ENTITIES), np.diff(graph.offsets))
    arrivals = Arrivals.in_graph(graph)
    for node in range(ENTITIES):
        assert arrivals.after(np.array([node])).tolist() == sources[graph.targets == node].tolist()


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("max_fan_out", [300, 2])
@pytest.mark.parametrize("hidden", [None, 1])
def test_all_entities_have_the_bits_of_each_asked_about_alone(
    monkeypatch: pytest.MonkeyPatch, types: bool, max_fan_out: int, hidden: int | None
) -> None:
    graph = sparse_graph(types=types, max_fan_out=max_fan_out)
    model, pairs = model_of(graph), pairs_of(graph, 1)
    state = model.adapt(Support(pairs[:3], relation=hidden))
    heads = np.array([pairs[3, 0], pairs[0, 0], 0, 17, ENTITIES - 1])
    everything = np.arange(ENTITIES)
    one_by_one = model.score_many(state, heads, everything)
    monkeypatch.setattr(path_model, "MOST_ASKED", 100)
    assert torch.equal(model.score_many(state, heads, everything), one_by_one)
    (whole,) = state.whole
    assert 0 < len(whole.alike) < len(whole.scores) < ENTITIES
    assert all(len(whole.linked(int(head))) < 0.8 * ENTITIES for head in heads)
    assert len(np.unique(one_by_one.numpy())) > 40
    some = np.array([5, 600, 3, 5, *range(200, 400)])
    assert torch.equal(model.score_many(state, heads[:1], some), one_by_one[:1, some])
    few = np.array([600, 2])
    assert torch.equal(model.score(state, heads, few), one_by_one[:, few])


def test_blocks_of_linked_entities_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sparse_graph()
    model, pairs = model_of(graph), pairs_of(graph, 2)
    state, everything = model.adapt(Support(pairs[:2])), np.arange(ENTITIES)
    expected = model.score(state, pairs[2:, 0], everything)
    monkeypatch.setattr(path_model, "MOST_ASKED", 100)
    monkeypatch.setattr(path_model, "TAILS_AT_ONCE", 7)
    assert torch.equal(model.score(state, pairs[2:, 0], everything), expected)


def test_the_relations_asked_about_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_model, "MOST_ASKED", 100)
    graph = sparse_graph()
    model, everything = model_of(graph), np.arange(ENTITIES)
    states = [model.adapt(Support(pairs_of(graph, relation))) for relation in range(3)]
    scores = [model.score(state, np.array([3]), everything) for state in states]
    assert [len(state.whole) for state in states] == [0, 1, 1]
    kept = states[2].whole[0]
    assert torch.equal(model.score(states[2], np.array([3]), everything), scores[2]) and states[2].whole == [kept]
    assert torch.equal(model.score(states[0], np.array([3]), everything), scores[0])
    assert [len(state.whole) for state in states] == [1, 0, 1]
