from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.cian import Cian, CianModelSettings, CianNetwork, NeighborAttention
from tests.systems.plain import neighbors, random_system, weighted

DIMENSION = 6
MODEL = CianModelSettings(dimension=DIMENSION, max_neighbors=7)


def network_of(system: Cian) -> CianNetwork:
    assert isinstance(system.network, CianNetwork)
    return system.network


def aware(system: Cian, entity: int, attention: NeighborAttention, query: Tensor, by: str, hidden: int) -> Tensor:
    """An entity after a query has attended to its neighbors, by their relations or by the entities themselves."""
    of, near = network_of(system), neighbors(system, entity, hidden)
    values = [torch.relu(of.neighbor(torch.cat(pair))) for pair in near]
    keys = [kind if by == "relations" else other for kind, other in near]
    around = attention.value(weighted([attention.query.weight @ query @ key for key in keys], values))
    own = system.entities[entity]
    found: Tensor = of.fusion.norm(own + torch.relu(of.fusion.own.weight @ own + of.fusion.around.weight @ around))
    return found


def pair_vector(system: Cian, head: int, tail: int, hidden: int) -> Tensor:
    """What head and tail are to each other."""
    of, vectors = network_of(system), system.entities
    both = torch.stack([vectors[head] @ of.relation.weight[:, i] @ vectors[tail] for i in range(2 * DIMENSION)])
    forward, backward = both.chunk(2)
    aware_head = aware(system, head, of.within, forward, "relations", hidden)
    aware_tail = aware(system, tail, of.within, backward, "relations", hidden)
    seen_head = aware(system, head, of.between, aware_tail, "entities", hidden)
    seen_tail = aware(system, tail, of.between, aware_head, "entities", hidden)
    pair = torch.cat([seen_head, seen_tail])
    found: Tensor = of.pair.norm(pair + of.pair.output.weight @ torch.relu(of.pair.hidden(pair)))
    return found


@pytest.mark.parametrize("shots", [1, 3])
def test_it_computes_the_equations_of_its_paper(umls: FewShotDataset, shots: int) -> None:
    system, hidden = random_system(Cian, umls, MODEL), int(umls.graph.background_relations[3])
    candidates, pairs = np.arange(5, 30), np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    references = [pair_vector(system, int(head), int(tail), hidden) for head, tail in pairs]
    state = system.adapt(Support(pairs, candidates, relation=hidden))
    assert torch.allclose(state.relation[0], torch.stack(references), atol=1e-5)
    scores = system.score(state, np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            query = pair_vector(system, head, int(tail), hidden)
            expected = query @ weighted([query @ pair / math.sqrt(2 * DIMENSION) for pair in references], references)
            assert scores[row, column].item() == pytest.approx(expected.item(), abs=1e-4)
