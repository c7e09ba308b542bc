from __future__ import annotations

import pytest
import torch

from hire.systems.hire.entity import Decoder, MetaRelation, Vectors, distances, own_distances, translated

DIMENSION = 5


def slow(decoder: Decoder, relation: MetaRelation, head: Vectors, tail: Vectors) -> float:
    """Eq. 9-11 for one head and one tail, with the projection matrices written out."""
    identity = torch.eye(DIMENSION)
    h, t = head.embeddings, tail.embeddings
    if decoder == "mtranse":
        matrices = identity, identity
    elif decoder == "mtransh":
        w = relation.direction / relation.direction.norm()
        matrices = (identity - torch.outer(w, w),) * 2
    else:
        matrices = (
            torch.outer(relation.direction, head.projections + relation.head_shift) + identity,
            torch.outer(relation.direction, tail.projections + relation.tail_shift) + identity,
        )
    return float((matrices[0] @ h + relation.translation - matrices[1] @ t).norm())


@pytest.mark.parametrize("decoder", ["mtransd", "mtransh", "mtranse"])
def test_distances_equal_the_projection_matrices_of_the_paper(decoder: Decoder) -> None:
    torch.manual_seed(0)
    relation = MetaRelation(*torch.randn(4, 2, DIMENSION))
    heads, tails = (Vectors(*torch.randn(2, 2, n, DIMENSION)) for n in (3, 4))
    moved = translated(decoder, relation, heads)
    found = distances(decoder, relation, moved, tails)
    assert found.shape == (2, 3, 4)
    own = Vectors(*(part[:, None].expand(-1, 3, -1, -1) for part in tails))
    assert torch.allclose(own_distances(decoder, relation, moved, own), found, atol=1e-4)
    for group in range(2):
        of_group = MetaRelation(*(part[group] for part in relation))
        for i in range(3):
            for j in range(4):
                head = Vectors(*(part[group, i] for part in heads))
                tail = Vectors(*(part[group, j] for part in tails))
                assert found[group, i, j].item() == pytest.approx(slow(decoder, of_group, head, tail), abs=1e-4)
