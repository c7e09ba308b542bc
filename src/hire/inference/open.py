"""One way to a model: a run that was trained, or any graph with the pre-trained model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from hire.data.open import open_graph
from hire.evaluation.calibration import calibrations_in
from hire.inference.ahead import start_compiling
from hire.inference.model import TrainedModel, load
from hire.systems.path.pretrained import about, fingerprint, pretrained
from hire.training.run import CONFIG, check_processes, read_config, weights_fingerprint
from hire.util.checksums import checksum_of
from hire.util.processes import in_turn
from hire.util.tensors import device_named


def open_model(
    source: str | Path,
    dataset: str | Path | None = None,
    *,
    device: torch.device | str = "auto",
    refit: bool | None = None,
) -> TrainedModel:
    """The model of a run, or of any graph without training.

    A graph is a dataset, a file of triples (TSV, CSV, RDF, plain or compressed), or the address of a SPARQL endpoint.
    It is answered by the pre-trained model, whose confidence was calibrated across other graphs. Its last layer is
    fitted to the graph (docs/paths.md) unless `refit` is False, or not given and $HIRE_REFIT is 0.
    """
    if (Path(source) / CONFIG).exists():
        return load(source, dataset, device=device)
    start_compiling()
    opened = in_turn(lambda: open_graph(source if dataset is None else dataset))
    check_processes(opened)
    calibrations = calibrations_in(about()["calibration"])
    system = pretrained(opened, device_named(device), refit=_refits() if refit is None else refit)
    return TrainedModel(system, opened, calibrations, across_graphs=True)


def _refits() -> bool:
    return os.environ.get("HIRE_REFIT") != "0"


def fingerprint_of_model(source: str | Path) -> str:
    """Which weights answer, with which settings: those of a run, or the pre-trained ones."""
    if not (Path(source) / CONFIG).exists():
        return checksum_of([fingerprint().encode(), b"refit"]) if _refits() else fingerprint()
    config = read_config(Path(source))
    settings = json.dumps([config["system"], config["settings"], config["teaching"]], sort_keys=True)
    return checksum_of([weights_fingerprint(Path(source)).encode(), settings.encode()])
