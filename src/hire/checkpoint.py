"""A run as a folder: settings, weights, everything needed to go on, metrics, a picture and a model card."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hire import __version__
from hire.datasets import FewShotDataset
from hire.errors import HireError
from hire.files import atomic_file, explain_os_errors
from hire.models.hire import Hire, HireNetwork, HireSettings

CONFIG, MODEL, STATE, METRICS = "config.json", "model.safetensors", "state.safetensors", "metrics.jsonl"
FORMAT = 1


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors, whole or not at all."""
    from safetensors.torch import save_file

    with atomic_file(path) as partial:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, partial)
        partial.chmod(0o644)  # the library writes files that only their owner may read


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with explain_os_errors(path):
        try:
            return load_file(path)
        except SafetensorError as error:
            raise HireError(f"is not a readable file of weights ({error})", file=path, remedy="train again") from error


def write_json(path: Path, content: Any) -> None:
    """Write plain data as JSON, whole or not at all."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


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


def save_config(run: Path, dataset: FewShotDataset, source: str, model: HireSettings, training: Any) -> None:
    """Write what a run is: its dataset and its settings."""
    content = {
        "format": FORMAT,
        "hire": __version__,
        "dataset": {"name": dataset.name, "source": source, "fingerprint": fingerprint(dataset)},
        "model": asdict(model),
        "training": asdict(training),
    }
    write_json(run / CONFIG, content)


def read_config(run: Path) -> dict[str, Any]:
    """What a run is."""
    path = run / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = config["format"] == FORMAT and {"dataset", "model", "training"} <= config.keys()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HireError(f"is not a run ({error})", file=run, remedy="hire train makes one") from error
    if not known:
        raise HireError("was written by another version", file=path, remedy="train again with this version")
    return config


def load_model(run: Path, dataset: FewShotDataset) -> Hire:
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
    try:
        network.load_state_dict(weights)
        return Hire(network.eval(), tensors["entities"], tensors["projections"], config["training"]["seed"])
    except (RuntimeError, KeyError) as error:
        raise HireError("does not fit the settings of the run", file=run / MODEL, remedy="train again") from error


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
