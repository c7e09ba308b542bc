from __future__ import annotations

import numpy as np

from hire.data.dataset import FewShotDataset
from hire.systems.path.features import ReferenceEvidence
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.settings import EvidenceSettings, PathTrainingSettings
from hire.systems.path.tasks import DEGREE, IS_TAIL, POPULARITY, PathTasks


def test_candidates_near_the_head_are_the_hard_ones(umls: FewShotDataset) -> None:
    graph = EvidenceGraph.of(umls, EvidenceSettings(max_degree=150))
    tasks = PathTasks(umls, graph, PathTrainingSettings())
    task = umls.split("train")[0]
    evidence = ReferenceEvidence(graph, task.pairs[:3], task.relation)
    heads, pool = np.asarray(task.pairs[3:6, 0]), np.arange(0, 135, 3)

    def ends(node: int) -> list[int]:
        edges = graph.leaving(np.array([node]), task.relation)
        return [int(target) for target in graph.targets[edges.ids]]

    features = evidence.entity_features(pool)
    alone = 3 * features[:, IS_TAIL] + 1.5 * features[:, POPULARITY] + features[:, DEGREE]
    passed = {node: bool(graph.passable(np.array([node]), task.relation)[0]) for node in range(135)}
    assert any(passed.values()) and not all(passed.values())
    for head, found in zip(heads, tasks._difficulty(evidence, heads, pool), strict=True):
        near = ends(int(head))
        far = [end for node in near if passed[node] for end in ends(node)]
        expected = [2 * np.log1p(near.count(entity)) + np.log1p(far.count(entity)) for entity in pool.tolist()]
        np.testing.assert_allclose(found, expected + alone, rtol=1e-5)
