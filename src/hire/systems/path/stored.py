"""The graph of evidence in the cache, so that the next start does not count again what has been counted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hire import __version__
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.systems.path.settings import EvidenceSettings
from hire.util.files import cache_directory
from hire.util.settings import to_plain
from hire.util.tensors import load_tensors, save_tensors

if TYPE_CHECKING:
    from hire.systems.path.graph import EvidenceGraph

FORMAT = 2
LARGEST = 4_000_000  # facts: of more, the file would be as large as the graph itself


def stored_at(dataset: FewShotDataset, settings: EvidenceSettings) -> Path | None:
    """Where the graph of evidence of a dataset is kept; nowhere, if it is not a dataset as it was opened."""
    if dataset.identity is None or len(dataset.graph.triples) > LARGEST:
        return None
    parts = [FORMAT, __version__, dataset.identity, to_plain(settings)]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory() / f"evidence-{digest}.safetensors"


def load_evidence(path: Path | None) -> dict[str, Any] | None:
    """The arrays of a graph of evidence; None if there are none, or if they are damaged and have to be made anew."""
    if path is None or not path.exists():
        return None
    try:
        return {name: tensor.numpy() for name, tensor in load_tensors(path).items()}
    except HireError:
        return None


def keep_evidence(path: Path | None, graph: EvidenceGraph) -> None:
    """Write the arrays of a graph of evidence; without a cache, the next start takes a little longer."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(path, {name: torch.tensor(np.asarray(array)) for name, array in graph.arrays().items()})
    except (HireError, OSError):
        return
