from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.episodic.matching import MatchingModelSettings, MatchingProcessor, PairLayer, Similarity
from hire.systems.gmatching import GMatching, GMatchingNetwork
from tests.systems.plain import neighbors, random_system

DIMENSION = 6
MODEL = MatchingModelSettings(dimension=DIMENSION, max_neighbors=7, matching_steps=3)


def network_of(system: GMatching) -> GMatchingNetwork:
    assert isinstance(system.network, GMatchingNetwork)
    return system.network


def encoded(system: GMatching, entity: int, hidden: int) -> Tensor:
    """f(N_e) = tanh(1 / |N_e| * sum of C), C = W_c [v_r; v_e] + b_c (neighbor encoder)."""
    tuples = [network_of(system).neighbor(torch.cat(pair)) for pair in neighbors(system, entity, hidden)]
    return torch.tanh(torch.stack(tuples).mean(dim=0))


def matched(processor: MatchingProcessor, query: Tensor, reference: Tensor) -> Tensor:
    """h of the last step, for one pair (matching processor)."""
    hidden = cell = torch.zeros_like(query)
    state = torch.cat([processor.state.weight, processor.relation.weight], dim=1)  # of [h_k; s]
    for _ in range(processor.steps):
        gates = processor.pair(query) + state @ torch.cat([hidden, reference])
        enter, forget, leave, new = gates.chunk(4)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        hidden = torch.sigmoid(leave) * torch.tanh(cell) + query
    return hidden


def passed(system: GMatching, pair: Tensor) -> Tensor:
    """A pair after the feed-forward layer of the authors' code, if the system has it."""
    layer = network_of(system).pair_layer
    if not isinstance(layer, PairLayer):
        return pair
    found = pair + layer.output(torch.relu(layer.hidden(pair)))
    normed = (found - found.mean()) / (found.var(unbiased=False) + layer.norm.eps).sqrt()
    scaled: Tensor = normed * layer.norm.weight + layer.norm.bias
    return scaled


@pytest.mark.parametrize("shots", [1, 3])
@pytest.mark.parametrize("pair_dropout", [None, 0.2])
@pytest.mark.parametrize("similarity", ["cosine", "product"])
def test_it_computes_the_equations_of_its_paper(
    umls: FewShotDataset, shots: int, pair_dropout: float | None, similarity: Similarity
) -> None:
    system = random_system(GMatching, umls, replace(MODEL, similarity=similarity, pair_dropout=pair_dropout))
    hidden, candidates = int(umls.graph.background_relations[3]), np.arange(5, 30)
    pairs = np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    references = [passed(system, torch.cat([encoded(system, int(end), hidden) for end in pair])) for pair in pairs]
    mean = torch.stack(references).mean(dim=0)  # of several references
    scores = system.score(system.adapt(Support(pairs, candidates, relation=hidden)), np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            query = passed(system, torch.cat([encoded(system, end, hidden) for end in (head, int(tail))]))
            last = matched(network_of(system).processor, query, mean)
            expected = last @ mean
            if similarity == "cosine":
                expected = expected / last.norm() / mean.norm()
            assert scores[row, column].item() == pytest.approx(expected.item(), abs=1e-4)


def test_an_entity_without_neighbors_is_the_bias_alone(umls: FewShotDataset) -> None:
    system = random_system(GMatching, umls, replace(MODEL, max_neighbors=1))
    (near,) = system._entities([np.array([[1]])], 0, neighbors=True)
    nothing = replace(near, around=replace(near.neighbors, mask=torch.zeros_like(near.neighbors.mask)))
    network = network_of(system)
    assert torch.allclose(network.encode(nothing)[0, 0], torch.tanh(network.neighbor.bias))


def test_the_layer_of_pairs_drops_only_in_training() -> None:
    layer = PairLayer(8, 0.5)
    pairs = torch.randn(50, 8)
    assert not torch.equal(layer(pairs), layer(pairs))
    assert torch.equal(layer.eval()(pairs), layer(pairs))
