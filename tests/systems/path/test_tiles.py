from __future__ import annotations

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.systems.base import Support
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import DEGREE, PathNetwork
from hire.systems.path.settings import PathModelSettings
from hire.systems.path.tile_kernels import LANES
from hire.systems.path.tiles import _equal_rows
from hire.systems.path.walks import Tails, walks

ALONE = 60  # entities without a fact


def network_of(settings: PathModelSettings) -> PathNetwork:
    torch.manual_seed(2)
    network = PathNetwork(settings)
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return network.eval()


def graph_of(umls: FewShotDataset) -> EvidenceGraph:
    return EvidenceGraph(np.asarray(umls.graph.triples), 135 + ALONE, len(umls.graph.relations))


@pytest.mark.parametrize(
    "settings",
    [
        PathModelSettings(channels=4, edge_width=8, readout_width=8, members=2),
        PathModelSettings(channels=5, edge_width=7, readout_width=6, members=3),  # no multiples of what is unrolled
        PathModelSettings(channels=1, edge_width=2, readout_width=1, members=1),
    ],
)
def test_tiles_have_the_mean_scores_of_the_members(umls: FewShotDataset, settings: PathModelSettings) -> None:
    task, graph, network = umls.split("dev")[0], graph_of(umls), network_of(settings)
    evidence = ReferenceEvidence(graph, task.pairs[:3])
    # Some tails of the last tile are reached by a walk, but not all, and it is not full.
    entities = np.random.default_rng(0).permutation(graph.entity_count)
    block = Tails.of(evidence, entities)
    assert LANES < len(entities) < 2 * LANES
    for head in task.pairs[3:6, 0]:
        walked = walks(evidence, np.array([head]), block)
        assert 0 < len(walked.reached) < len(entities) and (walked.stays[-1] >= 0).any()
        with torch.no_grad():
            weights = network.weigh(torch.from_numpy(evidence.edge_features))
            described, degrees = network.describe(weights, block.inputs), block.inputs.features[:, DEGREE]
            members = network.score(weights, described, degrees, walked)
            tiled = network.mean_scores(weights, network.tiled(described, degrees), walked)
        assert members.shape == (settings.members, len(entities))
        torch.testing.assert_close(tiled, members.mean(dim=0), atol=2e-5, rtol=1e-5)
        assert tiled.std() > 0.01


def test_a_tail_has_the_same_bits_in_every_tile(umls: FewShotDataset) -> None:
    graph, pairs = graph_of(umls), np.asarray(umls.split("dev")[0].pairs)
    model = PathModel(network_of(PathModelSettings(channels=4, edge_width=8, readout_width=8)), graph)
    scores = model.score(model.adapt(Support(pairs[:3])), pairs[3:4, 0], np.arange(graph.entity_count))[0]
    assert len(set(scores[135:].tolist())) == 1  # entities without a fact differ in nothing
    assert len(set(scores[:135].tolist())) > 100


def test_tails_that_nothing_tells_apart_are_computed_once(umls: FewShotDataset) -> None:
    graph, pairs = graph_of(umls), np.asarray(umls.split("dev")[0].pairs)
    model = PathModel(network_of(PathModelSettings(channels=4, edge_width=8, readout_width=8)), graph)
    state, entities = model.adapt(Support(pairs[:3])), np.arange(graph.entity_count)
    with torch.no_grad():
        asked = model._asked(state, entities)
    assert asked.tiled is not None
    kinds = asked.tiled.kinds
    assert asked.tiled.units.shape[1] == len(set(kinds.tolist())) <= 136  # all without a fact are of one kind
    assert len(set(kinds[135:].tolist())) == 1
    # Each tail asked about alone has the score that it has among the others.
    together = model.score(state, pairs[3:4, 0], entities)[0]
    alone = torch.cat([model.score(state, pairs[3:4, 0], entities[i : i + 1])[0] for i in range(0, len(entities), 7)])
    torch.testing.assert_close(alone, together[::7], atol=1e-5, rtol=1e-5)


def test_the_score_of_an_unlinked_kind_is_kept_for_all_heads(umls: FewShotDataset) -> None:
    graph, pairs = graph_of(umls), np.asarray(umls.split("dev")[0].pairs)
    model = PathModel(network_of(PathModelSettings(channels=4, edge_width=8, readout_width=8)), graph)
    state, entities = model.adapt(Support(pairs[:3])), np.arange(graph.entity_count)
    first, again = (model.score(state, pairs[3:4, 0], entities)[0] for _ in range(2))
    assert torch.equal(first, again)
    tiled = state.blocks.get(entities, lambda _: pytest.fail("not kept")).tiled
    assert tiled is not None
    without_facts = tiled.kinds[-1]
    assert np.flatnonzero(~np.isnan(tiled.unlinked)).tolist() == [without_facts]  # all others are linked
    assert tiled.unlinked[without_facts] == first[-1]
    tiled.unlinked[without_facts] = 7  # what is kept is not computed again
    other = model.score(state, pairs[4:5, 0], entities)[0]
    assert (other[135:] == 7).all() and not (other[:135] == 7).any()


def test_rows_are_equal_if_all_their_bits_are() -> None:
    rows = np.array([[1, 2], [0, 1], [1, 2], [1, 3], [0, 1], [1, 2], [-0.0, 1]], np.float32)
    firsts, kinds = _equal_rows(rows, np.array([0, 0, 0, 0, 0, 4, 0], np.float32))
    assert firsts.tolist() == [0, 1, 3, 5, 6] and kinds.tolist() == [0, 1, 0, 2, 1, 3, 4]


def test_sets_of_equal_rows_are_those_of_a_dictionary() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (2_000, 5)).astype(np.float32)
    firsts, kinds = _equal_rows(rows, rows[:, 0].copy())
    numbers: dict[bytes, int] = {}
    assert kinds.tolist() == [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    assert firsts.tolist() == [kinds.tolist().index(kind) for kind in range(len(numbers))]
