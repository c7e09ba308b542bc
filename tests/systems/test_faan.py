from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.faan import Faan, FaanModelSettings, FaanNetwork, TransformerLayer
from tests.systems.plain import neighbors, random_system, weighted

DIMENSION = 6
MODEL = FaanModelSettings(dimension=DIMENSION, max_neighbors=7, layers=2, heads=3, hidden=8)


def network_of(system: Faan) -> FaanNetwork:
    assert isinstance(system.network, FaanNetwork)
    return system.network


def adapted(system: Faan, entity: int, relation: Tensor, hidden: int) -> Tensor:
    """f(e) of an entity in a pair (adaptive neighbor encoder)."""
    of, near = network_of(system).encoder, neighbors(system, entity, hidden)
    around = weighted([relation @ of.attention.weight.T @ kind for kind, _ in near], [other for _, other in near])
    own = system.entities[entity]
    found: Tensor = of.norm(own + torch.relu(of.own.weight @ own + of.around.weight @ around))
    return found


def transformed(layer: nn.Module, places: list[Tensor]) -> list[Tensor]:
    """A layer of the transformer, head by head and place by place."""
    assert isinstance(layer, TransformerLayer)
    size = DIMENSION // layer.heads
    outputs: list[Tensor] = []
    for place in places:
        seen = []
        for head in range(layer.heads):
            part = slice(head * size, (head + 1) * size)
            query = layer.query(place)[part]
            keys = [layer.key_value(other)[:DIMENSION][part] for other in places]
            values = [layer.key_value(other)[DIMENSION:][part] for other in places]
            seen.append(weighted([query @ key / math.sqrt(size) for key in keys], values))
        middle = layer.norms[0](place + layer.output(torch.cat(seen)))
        outputs.append(layer.norms[1](middle + layer.feed_forward(middle)))
    return outputs


def pair_vector(system: Faan, head: int, tail: int, hidden: int) -> Tensor:
    """The slot between head and tail (transformer encoder for entity pairs)."""
    relation = system.entities[tail] - system.entities[head]
    of = network_of(system).transformer
    ends = [adapted(system, end, relation, hidden) for end in (head, tail)]
    slots = torch.stack([ends[0], of.slot, ends[1]]) + of.positions
    places: list[Tensor] = list(slots)
    for layer in of.layers:
        places = transformed(layer, places)
    return places[1]


@pytest.mark.parametrize("shots", [1, 3])
def test_it_computes_the_equations_of_its_paper(umls: FewShotDataset, shots: int) -> None:
    system, hidden = random_system(Faan, umls, MODEL), int(umls.graph.background_relations[3])
    candidates, pairs = np.arange(5, 30), np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    references = [pair_vector(system, int(head), int(tail), hidden) for head, tail in pairs]
    state = system.adapt(Support(pairs, candidates, relation=hidden))
    assert torch.allclose(state.relation[0], torch.stack(references), atol=1e-5)
    scores = system.score(state, np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            query = pair_vector(system, head, int(tail), hidden)
            expected = query @ weighted([query @ pair / math.sqrt(DIMENSION) for pair in references], references)
            assert scores[row, column].item() == pytest.approx(expected.item(), abs=1e-4)
