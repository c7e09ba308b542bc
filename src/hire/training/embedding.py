"""Embeddings for the systems that start from them: from a file, from the cache, or learned first."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.errors import HireError
from hire.training.loop import Stage, train
from hire.training.needs import check_embeddings
from hire.training.run import fingerprint
from hire.util.files import cache_directory
from hire.util.processes import share, told_tensors
from hire.util.settings import to_plain
from hire.util.tensors import device_named, load_tensors, load_tensors_and_metadata, save_tensors


def embeddings_of(
    dataset: FewShotDataset,
    settings: EmbeddingSettings,
    device: torch.device | str = "cpu",
    threads: int = 1,
) -> Embeddings:
    """The embeddings of a dataset's background graph, from the cache if they were learned before.

    What was learned until an interruption is in the cache as well, and is resumed from.
    """
    path = embeddings_path(dataset, settings)
    cached, _ = told_tensors(lambda: (_from_cache(path, dataset, settings.dimension), {}))
    if cached:
        return Embeddings(**cached)
    together = share().processes  # the state has their rounding
    state = path.with_suffix(".state.safetensors" if together == 1 else f".{together}-processes.state.safetensors")
    with suppress(OSError):  # the cache is a convenience
        path.parent.mkdir(parents=True, exist_ok=True)
    check_embeddings(dataset, settings)
    trainer = EmbeddingTrainer(dataset.graph, settings, device_named(device))
    finished, _ = train(trainer, Stage(f"Embedding with {settings.model}", _usable(state), threads=threads))
    found = trainer.embeddings()
    if finished and share().first:
        with suppress(HireError, OSError):
            save_embeddings(path, found, dataset)
            state.unlink(missing_ok=True)
    return found


def _from_cache(path: Path, dataset: FewShotDataset, dimension: int) -> dict[str, Tensor]:
    """Nothing if there are none, or if they are damaged and made anew."""
    with suppress(HireError):
        return vars(load_embeddings(path, dataset, dimension))
    return {}


def _usable(state: Path) -> Path | None:
    """The file of a state, unless it cannot be written; one that cannot be read is removed."""
    if not share().first:
        return state
    if not state.parent.is_dir():
        return None
    if state.exists():
        try:
            load_tensors(state)
        except HireError:
            state.unlink(missing_ok=True)
    return state


def embeddings_path(dataset: FewShotDataset, settings: EmbeddingSettings) -> Path:
    """Where embeddings are kept."""
    content = json.dumps([to_plain(settings), fingerprint(dataset)])
    return cache_directory() / f"embeddings-{hashlib.sha256(content.encode()).hexdigest()[:16]}.safetensors"


def save_embeddings(path: Path, embeddings: Embeddings, dataset: FewShotDataset) -> None:
    """Write embeddings, and of which graph they are; of several processes, the first one does."""
    if not share().first:
        return
    tensors = {"entities": embeddings.entities, "relations": embeddings.relations}
    save_tensors(path, tensors, {"fingerprint": fingerprint(dataset)})


def load_embeddings(path: Path, dataset: FewShotDataset, dimension: int) -> Embeddings:
    """Read embeddings that `save_embeddings` wrote; an error if they are of another graph, or too narrow."""
    tensors, about = load_tensors_and_metadata(path)
    if about.get("fingerprint") != fingerprint(dataset) or not {"entities", "relations"} <= tensors.keys():
        raise HireError(f"has no embeddings of {dataset.name!r}", file=path, remedy="hire pretrain makes them")
    if min(tensors[name].shape[1] for name in ("entities", "relations")) < dimension:
        raise HireError(
            f"has {tensors['entities'].shape[1]} dimensions, not {dimension}",
            file=path,
            remedy="set model.dimension and embedding.dimension to that, or pre-train with more",
        )
    return Embeddings(tensors["entities"], tensors["relations"])
