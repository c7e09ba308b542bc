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
from hire.optim.storage import StorageSettings
from hire.training.loop import Stage, train
from hire.training.needs import check_embeddings
from hire.training.run import fingerprint
from hire.util.files import cache_directory
from hire.util.processes import any_of, one_at_a_time, share, told_tensors
from hire.util.settings import to_plain
from hire.util.tensors import device_named, load_tensors_and_metadata, map_tensors_and_metadata, save_tensors


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
    with one_at_a_time(str(path)):  # another process that needs the same ones will find them in the cache
        cached = _from_cache(path, dataset, settings)
        return _learned(path, dataset, settings, device, threads) if cached is None else cached


def _learned(
    path: Path, dataset: FewShotDataset, settings: EmbeddingSettings, device: torch.device | str, threads: int
) -> Embeddings:
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


def _from_cache(path: Path, dataset: FewShotDataset, settings: EmbeddingSettings) -> Embeddings | None:
    """Nothing if there are none, or if they are damaged and made anew."""

    def found() -> dict[str, Tensor]:
        with suppress(HireError):
            return vars(load_embeddings(path, dataset, settings))
        return {}

    tensors = found() if settings.storage.apart else told_tensors(lambda: (found(), {}))[0]
    return None if any_of(not tensors)[0] else Embeddings(**tensors)


def embeddings_in(path: Path, dataset: FewShotDataset, settings: EmbeddingSettings) -> Embeddings:
    """The embeddings of a file: what the first process reads, unless they are to be mapped by every process."""
    if settings.storage.apart:
        return load_embeddings(path, dataset, settings)
    return Embeddings(**told_tensors(lambda: (vars(load_embeddings(path, dataset, settings)), {}))[0])


def _usable(state: Path) -> Path | None:
    """The file of a state, unless it cannot be written; one that cannot be read is removed."""
    if not share().first:
        return state
    if not state.parent.is_dir():
        return None
    if state.exists():
        try:
            map_tensors_and_metadata(state)
        except HireError:
            state.unlink(missing_ok=True)
    return state


def embeddings_path(dataset: FewShotDataset, settings: EmbeddingSettings) -> Path:
    """Where embeddings are kept."""
    plain = to_plain(settings)
    storage = plain.pop("storage")
    if storage["precision"] != StorageSettings().precision:  # where they are learned does not matter
        plain["precision"] = storage["precision"]
    content = json.dumps([plain, fingerprint(dataset)])
    return cache_directory() / f"embeddings-{hashlib.sha256(content.encode()).hexdigest()[:16]}.safetensors"


def save_embeddings(path: Path, embeddings: Embeddings, dataset: FewShotDataset) -> None:
    """Write embeddings, and of which graph they are; of several processes, the first one does."""
    if not share().first:
        return
    tensors = {"entities": embeddings.entities, "relations": embeddings.relations}
    save_tensors(path, tensors, {"fingerprint": fingerprint(dataset)})


def load_embeddings(path: Path, dataset: FewShotDataset, settings: EmbeddingSettings) -> Embeddings:
    """Read embeddings that `save_embeddings` wrote; an error if they are of another graph, or too narrow."""
    load, dimension = load_tensors_and_metadata, settings.dimension
    if settings.storage.apart:
        load = map_tensors_and_metadata
    tensors, about = load(path)
    if about.get("fingerprint") != fingerprint(dataset) or not {"entities", "relations"} <= tensors.keys():
        raise HireError(f"has no embeddings of {dataset.name!r}", file=path, remedy="hire pretrain makes them")
    if min(tensors[name].shape[1] for name in ("entities", "relations")) < dimension:
        raise HireError(
            f"has {tensors['entities'].shape[1]} dimensions, not {dimension}",
            file=path,
            remedy="set model.dimension and embedding.dimension to that, or pre-train with more",
        )
    return Embeddings(tensors["entities"], tensors["relations"])
