from __future__ import annotations

import numpy as np
import torch

from hire.data.dataset import FewShotDataset
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.network import DEGREE, PathNetwork
from hire.systems.path.settings import PathModelSettings
from hire.systems.path.walks import TailInputs, Tails, Walks, walks
from tests.systems.path.test_model import path_network


def inputs_of(umls: FewShotDataset) -> tuple[torch.Tensor, list[TailInputs], list[Walks], int]:
    graph = EvidenceGraph.of(umls)
    features, tails, walked = [], [], []
    for task in umls.split("dev"):
        evidence = ReferenceEvidence(graph, task.pairs[:3])
        block = Tails.of(evidence, np.arange(20))
        features.append(torch.from_numpy(evidence.edge_features))
        tails.append(block.inputs)
        walked.append(walks(evidence, np.asarray(task.pairs[3:5, 0]), block))
    return torch.stack(features), tails, walked, graph.edge_type_count


def test_tasks_are_scored_together_as_alone(umls: FewShotDataset) -> None:
    features, tails, walked, edge_types = inputs_of(umls)
    network = path_network().eval()
    together = network(features, TailInputs.joined(tails, edge_types), Walks.joined(walked, [20, 20], edge_types))
    alone = [network(features[i : i + 1], tails[i], walked[i]) for i in range(2)]
    assert together.shape == (2, 80)
    assert torch.allclose(together, torch.cat(alone, dim=1), atol=1e-4)


def test_every_parameter_is_learned(umls: FewShotDataset) -> None:
    features, tails, walked, edge_types = inputs_of(umls)
    network = path_network()
    network(
        features, TailInputs.joined(tails, edge_types), Walks.joined(walked, [20, 20], edge_types)
    ).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_relations_are_dropped_only_in_training(umls: FewShotDataset) -> None:
    features, tails, walked, _ = inputs_of(umls)
    torch.manual_seed(0)
    network = PathNetwork(PathModelSettings(channels=4, dropout=0.0, relation_dropout=1.0))
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    other = features[:1] + 1  # what is said of relations that are all dropped does not matter
    blind = network.train()(features[:1], tails[0], walked[0])
    assert torch.equal(blind, network(other, tails[0], walked[0]))
    assert not torch.allclose(network.eval()(features[:1], tails[0], walked[0]), blind)


def test_weights_are_prepared_again_after_training(umls: FewShotDataset) -> None:
    task, graph = umls.split("dev")[0], EvidenceGraph.of(umls)
    evidence = ReferenceEvidence(graph, task.pairs[:3])
    features, block = torch.from_numpy(evidence.edge_features), Tails.of(evidence, np.arange(20))
    walked = walks(evidence, np.asarray(task.pairs[3:4, 0]), block)
    network = path_network().eval()

    def scores() -> tuple[torch.Tensor, torch.Tensor]:
        weights = network.weigh(features)
        described, degrees = network.describe(weights, block.inputs), block.inputs.features[:, DEGREE]
        tiled = network.mean_scores(weights, network.tiled(described, degrees), walked)
        return network.score(weights, described, degrees, walked).mean(dim=0), tiled

    with torch.no_grad():
        before = scores()
        network.train()
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        network.eval()
        after = scores()
    for old, new in zip(before, after, strict=True):
        assert not torch.allclose(old, new, atol=1e-3)
    assert torch.allclose(*after, atol=1e-5)
