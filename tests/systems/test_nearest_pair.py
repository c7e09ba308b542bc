from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hire.systems.base import Support
from hire.systems.nearest_pair import NearestPair


def test_scores_equal_the_best_cosine_of_concatenated_pairs() -> None:
    torch.manual_seed(0)
    entities = F.normalize(torch.randn(9, 4), dim=1)
    references = np.array([[0, 1], [2, 3], [4, 1]])
    system = NearestPair(entities)
    heads, tails = np.array([5, 0, 2]), np.array([1, 8, 3, 6])
    found = system.score(system.adapt(Support(references)), heads, tails)
    for i, head in enumerate(heads):
        for j, tail in enumerate(tails):
            pair = torch.cat([entities[head], entities[tail]])
            others = [torch.cat([entities[h], entities[t]]) for h, t in references]
            best = max(float(F.cosine_similarity(pair, other, dim=0)) for other in others)
            assert found[i, j].item() == pytest.approx(best, abs=1e-6)
    assert found[1, 0] == pytest.approx(1) and found[2, 2] == pytest.approx(1)  # a reference resembles itself
