"""A run as a folder: settings, weights, everything needed to go on, metrics, a picture and a model card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hire import __version__
from hire.data.dataset import FewShotDataset
from hire.embeddings.trainer import Embeddings
from hire.errors import HireError
from hire.evaluation.calibration import Calibration
from hire.systems.base import FewShotModel
from hire.systems.ensemble import HirePath
from hire.systems.hire.model import Hire
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireSettings
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.settings import PathSettings
from hire.training.settings import RunSettings
from hire.util.files import explain_os_errors
from hire.util.tensors import load_tensors, save_tensors, write_json

CONFIG, MODEL, STATE, METRICS = "config.json", "model.safetensors", "state.safetensors", "metrics.jsonl"
PATH_MODEL, PATH_STATE, CALIBRATION = "path.safetensors", "path-state.safetensors", "calibration.json"
PARTS = ("model", "training", "embedding", "fit", "path", "path_training")  # of the settings
FORMAT = 3
SAMPLES, SAMPLE_BYTES = 64, 1 << 16  # of a file of weights: millions of entities are too much to read for a checksum


def fingerprint(dataset: FewShotDataset) -> str:
    """What a model's numbers mean: the names of entities and relations, and the graph between them."""
    digest = hashlib.sha256()
    graph = dataset.graph
    for array in (graph.entities.text, graph.entities.offsets, graph.relations.text, graph.triples):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save_model(run: Path, model: Hire) -> None:
    """Write the weights of a model into a run."""
    network = {f"network.{name}": tensor for name, tensor in model.network.state_dict().items()}
    save_tensors(run / MODEL, {"entities": model.entities, "projections": model.projections, **network})


def save_embeddings(path: Path, embeddings: Embeddings, dataset: FewShotDataset) -> None:
    """Write embeddings, and of which graph they are."""
    tensors = {"entities": embeddings.entities, "relations": embeddings.relations}
    save_tensors(path, tensors, {"fingerprint": fingerprint(dataset)})


def load_embeddings(path: Path, dataset: FewShotDataset, dimension: int) -> Embeddings:
    """Read embeddings that `save_embeddings` wrote; an error if they are of another graph, or too narrow."""
    from safetensors import safe_open

    tensors = load_tensors(path)
    with safe_open(path, "pt") as opened:
        of = (opened.metadata() or {}).get("fingerprint")
    if of != fingerprint(dataset) or not {"entities", "relations"} <= tensors.keys():
        raise HireError(f"has no embeddings of {dataset.name!r}", file=path, remedy="hire pretrain makes them")
    if min(tensors[name].shape[1] for name in ("entities", "relations")) < dimension:
        raise HireError(
            f"has {tensors['entities'].shape[1]} dimensions, not {dimension}", file=path, remedy="say --dimension"
        )
    return Embeddings(tensors["entities"], tensors["relations"])


def run_config(
    dataset: FewShotDataset, source: str, settings: RunSettings, embeddings: Path | None = None
) -> dict[str, Any]:
    """What a run is: its dataset, its settings, and where its embeddings came from."""
    parts = {part: asdict(getattr(settings, part)) for part in PARTS}
    if embeddings is not None:
        parts["embedding"] = {"file": str(embeddings), "dimension": settings.embedding.dimension}
    return {
        "format": FORMAT,
        "hire": __version__,
        "dataset": {"name": dataset.name, "source": source, "fingerprint": fingerprint(dataset)},
        **parts,
    }


def read_config(run: Path) -> dict[str, Any]:
    """What a run is."""
    path = run / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = config["format"] == FORMAT and {"dataset", *PARTS} <= config.keys()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HireError(f"is not a run ({error})", file=run, remedy="hire train makes one") from error
    if not known:
        raise HireError("was written by another version", file=path, remedy="train again with this version")
    return config


def load_model(run: Path, dataset: FewShotDataset) -> FewShotModel:
    """The model of a run, for the dataset it was trained on."""
    config = read_config(run)
    if config["dataset"]["fingerprint"] != fingerprint(dataset):
        raise HireError(
            f"was trained on another graph than {dataset.name!r} is now",
            file=run,
            remedy=f"its dataset was {config['dataset']['source']!r}",
        )
    tensors = load_tensors(run / MODEL)
    network = HireNetwork(HireSettings(**config["model"]))
    weights = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    with _explain_misfit(run / MODEL):
        network.load_state_dict(weights)
        hire = Hire(network.eval(), tensors["entities"], tensors["projections"], config["training"]["seed"])
    settings = PathSettings(**config["path"])
    if not settings.members or not (run / PATH_MODEL).exists():  # or training has not come to it yet
        return hire
    paths = PathNetwork(settings)
    with _explain_misfit(run / PATH_MODEL):
        paths.load_state_dict(load_tensors(run / PATH_MODEL))
    graph = EvidenceGraph.of(dataset, train_facts=config["path_training"]["train_facts"])
    return HirePath(hire, PathModel(paths.eval(), graph))


@contextmanager
def _explain_misfit(path: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, KeyError) as error:
        raise HireError("does not fit the settings of the run", file=path, remedy="train again") from error


def weights_fingerprint(run: Path) -> str:
    """Which weights a run has: a checksum of evenly spaced samples of their files."""
    digest = hashlib.sha256()
    for path in (run / MODEL, run / PATH_MODEL):
        if path.name == PATH_MODEL and not path.exists():
            continue
        with explain_os_errors(path), path.open("rb") as stream:
            size = path.stat().st_size
            digest.update(str(size).encode())
            for place in np.linspace(0, max(0, size - SAMPLE_BYTES), SAMPLES).astype(int).tolist():
                stream.seek(place)
                digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def write_calibration(run: Path, calibrations: dict[int, Calibration], about: dict[str, Any]) -> None:
    """Write what scores mean, for each number of references, and how it was found out."""
    content = {str(shots): calibration.to_dict() for shots, calibration in calibrations.items()}
    write_json(run / CALIBRATION, {"weights": weights_fingerprint(run), "shots": content, **about})


def read_calibration(run: Path) -> dict[int, Calibration]:
    """What scores mean, for each number of references; nothing if that was not found out for these weights."""
    path = run / CALIBRATION
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["weights"] != weights_fingerprint(run):
            return {}
        return {int(shots): Calibration.from_dict(found) for shots, found in content["shots"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HireError(f"is no calibration ({error})", file=path, remedy="hire calibrate makes it anew") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of Adam, as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"adam.{number}.{name}": tensor for number, of_one in state.items() for name, tensor in of_one.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Go on with a state of Adam."""
    whole = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("adam."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({**whole, "state": state})
