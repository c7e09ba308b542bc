from __future__ import annotations

import numpy as np
import torch

from hire.data.dataset import FewShotDataset
from hire.evaluation.ranking import rank_task
from hire.systems.base import Support
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import PathModelSettings
from hire.util.arrays import IntArray


def path_network(members: int = 2) -> PathNetwork:
    """A network whose every part counts: what starts at zero is random."""
    torch.manual_seed(1)
    network = PathNetwork(PathModelSettings(channels=4, edge_width=8, readout_width=8, members=members))
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return network


def scores_of(graph: EvidenceGraph, references: IntArray, heads: IntArray, hidden: int | None = None) -> torch.Tensor:
    model = PathModel(path_network(), graph)
    return model.score(model.adapt(Support(references, relation=hidden)), heads, np.arange(graph.entity_count))


def test_adding_or_removing_a_tasks_own_facts_changes_no_score(umls: FewShotDataset) -> None:
    task = umls.split("train")[0]
    references, heads = np.asarray(task.pairs[:3]), np.asarray(task.pairs[3:9, 0])
    facts = np.insert(task.pairs, 1, task.relation, axis=1)
    relations = len(umls.graph.relations)
    others = np.asarray(umls.graph.triples)
    made_up = np.stack([np.arange(60), np.full(60, task.relation), np.arange(60, 120)], axis=1)
    scores = [
        scores_of(EvidenceGraph(np.concatenate([others, *more]), 135, relations), references, heads, task.relation)
        for more in ([], [facts], [facts[:3]], [facts[::2], made_up])
    ]
    for changed in scores[1:]:
        assert torch.allclose(changed, scores[0], atol=1e-4)
    seen = scores_of(EvidenceGraph(np.concatenate([others, facts]), 135, relations), references, heads)
    assert not torch.allclose(seen, scores[0], atol=1e-2)


def test_more_members_are_averaged(umls: FewShotDataset) -> None:
    graph = EvidenceGraph.of(umls)
    pairs = np.asarray(umls.split("dev")[0].pairs)
    network = path_network(members=3)

    def scores(*chosen: int) -> torch.Tensor:
        part = PathNetwork(PathModelSettings(channels=4, edge_width=8, readout_width=8, members=len(chosen)))
        part.load_state_dict({name: tensor[list(chosen)] for name, tensor in network.state_dict().items()})
        model = PathModel(part, graph)
        return model.score(model.adapt(Support(pairs[:2])), pairs[2:5, 0], np.arange(30))

    assert torch.allclose(scores(0, 1, 2), (scores(0) + scores(1) + scores(2)) / 3, atol=1e-5)


def test_many_heads_have_the_bits_of_each_alone(umls: FewShotDataset) -> None:
    model = PathModel(path_network(), EvidenceGraph.of(umls))
    pairs = np.asarray(umls.split("dev")[0].pairs)
    state = model.adapt(Support(pairs[:3]))
    heads = pairs[[9, 4, 9, 5, 6, 7], 0]
    together = model.score(state, heads, np.arange(90))
    for head, row in zip(heads, together, strict=True):
        assert torch.equal(model.score(state, head[None], np.arange(90))[0], row)


def test_tails_in_any_order_and_again(umls: FewShotDataset) -> None:
    model = PathModel(path_network(), EvidenceGraph.of(umls))
    pairs = np.asarray(umls.split("dev")[1].pairs)
    state = model.adapt(Support(pairs[:3]))
    tails = np.array([30, 7, 99, 7])
    scores = model.score(state, pairs[:2, 0], tails)
    assert torch.allclose(scores, model.score(state, pairs[:2, 0], np.arange(135))[:, tails], atol=1e-4)


def test_a_head_and_a_tail_without_any_fact_have_a_score() -> None:
    graph = EvidenceGraph(np.array([(0, 0, 1), (2, 0, 3)]), 6, 2)
    model = PathModel(path_network(), graph)
    support = Support(np.array([(0, 1)]))
    assert model.score(model.adapt(support), np.array([4, 5]), np.array([5, 1])).isfinite().all()
    empty = PathModel(path_network(), EvidenceGraph(np.zeros((0, 3), np.int64), 6, 2))
    assert empty.score(empty.adapt(support), np.array([4]), np.arange(6)).isfinite().all()


def test_evaluation_hides_the_relation_that_is_asked_for(umls: FewShotDataset) -> None:
    task = umls.split("train")[0]
    whole = EvidenceGraph.of(umls)
    triples = np.concatenate([np.insert(t.pairs, 1, t.relation, axis=1) for t in umls.split("train")[1:]])
    known = np.concatenate([umls.graph.triples, triples])
    without = EvidenceGraph(known, whole.entity_count, whole.relation_count)
    seen, blind = (rank_task(PathModel(path_network(), graph), umls, task, 3).realistic for graph in (whole, without))
    assert np.allclose(seen, blind)
    model = PathModel(path_network(), whole)
    references, heads = np.asarray(task.pairs[:3]), task.pairs[3:6, 0]
    told = model.score(model.adapt(Support(references)), heads, np.arange(20))
    hidden = model.score(model.adapt(Support(references, relation=task.relation)), heads, np.arange(20))
    assert not torch.allclose(told, hidden)
