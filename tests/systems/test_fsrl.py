from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.fsrl import Fsrl, FsrlModelSettings, FsrlNetwork, ReferenceAggregator
from tests.systems.plain import lstm_step, neighbors, random_system, weighted
from tests.systems.test_gmatching import matched

DIMENSION = 6
MODEL = FsrlModelSettings(dimension=DIMENSION, max_neighbors=7, similarity="product")


def network_of(system: Fsrl) -> FsrlNetwork:
    assert isinstance(system.network, FsrlNetwork)
    return system.network


def encoded(system: Fsrl, entity: int, hidden: int) -> Tensor:
    """f(h) = tanh(sum of a_i e_i) (heterogeneous neighbors)."""
    near = neighbors(system, entity, hidden)
    scores = [network_of(system).attention(torch.cat(pair))[0] for pair in near]
    return torch.tanh(weighted(scores, [other for _, other in near]))


def aggregated(aggregator: ReferenceAggregator, references: list[Tensor]) -> tuple[Tensor, Tensor]:
    """f(R) and L_re, reference by reference (few-shot reference set)."""
    lstm: Any = aggregator.encoder
    cellular = aggregator.decoder
    hidden = cell = torch.zeros_like(references[0])
    states = []
    for pair in references:
        gates = lstm.weight_ih_l0 @ pair + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0
        hidden, cell = lstm_step(gates, cell)  # m_k
        states.append(hidden)
    residual = [state + pair for state, pair in zip(states, references, strict=True)]  # m'_k
    loss = torch.zeros(())
    for pair in reversed(references):
        gates = cellular.weight_ih @ hidden + cellular.bias_ih + cellular.weight_hh @ hidden + cellular.bias_hh
        hidden, cell = lstm_step(gates, cell)  # d_k
        loss = loss + (hidden - pair).square().sum()
    return weighted([aggregator.attention(state)[0] for state in residual], residual), loss


@pytest.mark.parametrize("shots", [1, 3])
def test_it_computes_the_equations_of_its_paper(umls: FewShotDataset, shots: int) -> None:
    system, hidden = random_system(Fsrl, umls, MODEL), int(umls.graph.background_relations[3])
    candidates, pairs = np.arange(5, 30), np.array([(1, 7), (2, 9), (30, 11)])[:shots]
    network = network_of(system)
    references = [torch.cat([encoded(system, int(end), hidden) for end in pair]) for pair in pairs]
    relation, loss = aggregated(network.aggregator, references)
    found = network.aggregator(torch.stack(references)[None])
    assert torch.allclose(found[0][0], relation, atol=1e-5) and found[1].item() == pytest.approx(loss.item(), rel=1e-4)
    state = system.adapt(Support(pairs, candidates, relation=hidden))
    assert torch.allclose(state.relation[0], relation, atol=1e-5)
    scores = system.score(state, np.array([3, 4]), candidates)
    for row, head in enumerate((3, 4)):
        for column, tail in enumerate(candidates):
            query = torch.cat([encoded(system, end, hidden) for end in (head, int(tail))])
            expected = matched(network.processor, query, relation) @ relation
            assert scores[row, column].item() == pytest.approx(expected.item(), abs=1e-4)


def test_the_weight_of_attention_is_a_product_without_its_bias() -> None:
    """u (W x + b) and (u W) x differ by a constant, which a softmax does not see."""
    torch.manual_seed(0)
    inputs, inner, outer, bias = torch.randn(5, 8), torch.randn(4, 8), torch.randn(4), torch.randn(4)
    both = torch.softmax((inputs @ inner.T + bias) @ outer, dim=0)
    assert torch.allclose(both, torch.softmax(inputs @ (outer @ inner), dim=0), atol=1e-5)
