"""A path network that was trained on several graphs, for any graph: weights, settings and calibration are files here.

`tools/pretrained.py` makes them anew. README.md beside them is the model card.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.systems.path.model import PathModel
from hire.systems.path.network import PathNetwork
from hire.systems.path.refit import refitted
from hire.systems.path.settings import PathSettings
from hire.util.checksums import read_record
from hire.util.processes import told_tensors
from hire.util.settings import from_plain
from hire.util.tensors import load_tensors, recorded_checksum

WEIGHTS, ABOUT = "path.safetensors", "path.json"
INSTALL_AGAIN = "install HiRe again"


@cache
def about() -> dict[str, Any]:
    """Settings, graphs, versions and calibration of the shipped weights."""
    with as_file(files(__package__) / ABOUT) as path:
        return read_record(path, INSTALL_AGAIN)


@cache
def _tensors() -> dict[str, Tensor]:
    with as_file(files(__package__) / WEIGHTS) as path:
        try:
            return load_tensors(path)
        except HireError as error:
            raise HireError(error.problems[0].message, file=path, remedy=INSTALL_AGAIN) from error


def pretrained(dataset: FewShotDataset, device: torch.device | str = "cpu", *, refit: bool = True) -> PathModel:
    """The pre-trained path network over a dataset's facts, fitted to them unless it is to stay as it ships."""
    return on_graph(dataset, from_plain(PathSettings, about()["settings"]), _tensors(), device, refit=refit)


def on_graph(
    dataset: FewShotDataset,
    settings: PathSettings,
    tensors: dict[str, Tensor],
    device: torch.device | str = "cpu",
    *,
    refit: bool = True,
) -> PathModel:
    """A path network that was trained on other graphs, over a dataset's facts; where it can be, fitted to them."""
    system = PathModel.restore(dataset, settings, tensors, device)
    if refit:
        fitted, _ = told_tensors(lambda: (refitted(system.network, dataset, system.graph, settings.training), {}))
        for weights in fitted.values():
            system.network.last_weights = weights.to(system.device)
    return system


def load_pretrained(network: PathNetwork) -> None:
    """Give a network the pre-trained weights; of members beyond those that ship, the initial weights stay."""
    own = network.state_dict()
    for name, shipped in _tensors().items():
        if own[name].shape[1:] != shipped.shape[1:]:
            raise HireError(
                f"the pre-trained weights have other sizes than these settings ask for ({name})",
                remedy="train from the beginning with --set training.start=random",
            )
        members = min(len(shipped), len(own[name]))  # the first axis of all weights
        own[name][:members] = shipped[:members]
    network.load_state_dict(own)


def fingerprint() -> str:
    """A checksum of the shipped weights."""
    with as_file(files(__package__) / WEIGHTS) as path:
        return recorded_checksum(path)
