"""The score functions against those of PyKEEN, where it is installed: `pip install 'hire[pykeen]'`."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from hire.embeddings.scores import TRANSLATIONAL, EmbeddingName, logits, widths

DIMENSION = 6
MARGIN = 9.0


@pytest.fixture(scope="module")
def interactions() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of its own imports
        try:
            return importlib.import_module("pykeen.nn.modules")
        except ModuleNotFoundError:
            pytest.skip("PyKEEN is not installed: pip install 'hire[pykeen]'")


def halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    first, second = vectors.chunk(2, dim=-1)
    return first, second


def theirs(interactions: Any, model: EmbeddingName, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """PyKEEN's scores of every head with every tail, from the same vectors in the form that it expects."""
    heads, relations, tails = heads[:, None], relations[:, None], tails[None]
    if model == "transe":
        found = interactions.TransEInteraction(p=2)(heads, relations, tails)
    elif model == "transh":
        translation, direction = halves(relations)
        normal = direction / direction.norm(dim=-1, keepdim=True)
        found = interactions.TransHInteraction(p=2, power_norm=False)(heads, (normal, translation), tails)
    elif model == "transd":
        relation, projection = halves(relations)
        interaction = interactions.TransDInteraction(p=2, power_norm=False)
        found = interaction(halves(heads), (relation, projection), halves(tails))
    elif model == "distmult":
        found = interactions.DistMultInteraction()(heads, relations, tails)
    else:
        found = interactions.ComplExInteraction()(*(torch.complex(*halves(v)) for v in (heads, relations, tails)))
    scores: Tensor = found
    return scores


@pytest.mark.parametrize("model", get_args(EmbeddingName))
def test_scores_equal_those_of_pykeen(interactions: Any, model: EmbeddingName) -> None:
    generator = torch.Generator().manual_seed(0)
    entity_width, relation_width = widths(model, DIMENSION)
    # Short vectors: PyKEEN's TransD brings projections that are longer than 1 back to length 1.
    heads, relations, tails = (
        0.2 * torch.randn(count, width, generator=generator, dtype=torch.float64)
        for count, width in ((4, entity_width), (4, relation_width), (7, entity_width))
    )
    expected = theirs(interactions, model, heads, relations, tails) + (MARGIN if model in TRANSLATIONAL else 0)
    assert torch.allclose(logits(model, MARGIN, heads, relations, tails), expected, atol=1e-6)
