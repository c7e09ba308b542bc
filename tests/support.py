"""Helpers that several tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.data.facts import Facts
from hire.errors import HireError
from hire.inference.model import TrainedModel
from hire.systems.hire.model import Hire
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireModelSettings
from hire.training.settings import RunSettings, preset
from hire.util.files import partial_beside

SMALL: dict[str, Any] = {  # as far as a system has such settings
    "model.dimension": 8,
    "model.hidden": 16,
    "model.inner_negatives": 16,
    "model.max_neighbors": 6,
    "model.members": 2,
    "embedding.dimension": 8,
    "embedding.batch_size": 64,
    "embedding.negatives": 16,
    "embedding.steps": 20,
    "training.steps": 3,
    "training.tasks": 2,
    "training.queries": 4,
    "training.negatives": 16,
    "training.inner_negatives": 8,
    "training.context_references": 2,
}


@contextmanager
def ranked_keys() -> Iterator[None]:
    """While keys have the ranks of rows in place of rows, as in a graph of 100 million entities."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hire.util.keys.PLAIN", 0)
        yield


def ranked_facts(dataset: FewShotDataset) -> Facts:
    """The facts of a dataset, with such keys."""
    with ranked_keys():
        return Facts.of(dataset.facts.triples(), len(dataset.graph.entities), len(dataset.graph.relations))


def small_settings(system: str, **changes: Any) -> RunSettings:
    """Settings of a system for a training of a second; changes have `__` for the dots of their paths."""
    settings = preset("levels") if system == "ensemble" else RunSettings.of(system)
    for path, value in SMALL.items():
        try:
            settings = settings.changed({path: value})
        except HireError:  # this system has no such setting
            continue
    return settings.changed({path.replace("__", "."): value for path, value in changes.items()})


def random_model(dataset: FewShotDataset, dimension: int = 8) -> TrainedModel:
    """A HiRe that has learned nothing, over a dataset."""
    torch.manual_seed(0)
    entities, projections = torch.randn(2, len(dataset.graph.entities), dimension)
    network = HireNetwork(HireModelSettings(dimension=dimension))
    return TrainedModel(Hire(network, entities, projections), dataset)


SECONDS = 120  # on a busy machine; a service that hangs is ended then


@contextmanager
def serving(
    run: Path | str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    limits: str = "true",
    seconds: float = SECONDS,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address; `limits` is what the shell does before, such as ulimit."""
    shell = ["sh", "-c", f'{limits} && exec "$0" "$@"']
    process = subprocess.Popen(
        [*shell, sys.executable, "-m", "hire", "serve", str(run), "--port", "0", *options],
        env=dict(environment or os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " at http://127.0.0.1:" in line, line + process.stdout.read()
        yield process, line.split(" at ")[1].split("/  ")[0]
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def request(address: str, body: Any = None) -> Any:
    """The JSON that a service answers; with a body it is posted."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
        return json.load(answer)


def ended_process() -> int:
    """The id of a process that is no more."""
    return int(subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout)


def leftover_of(process: int, target: Path) -> Path:
    """The name under which a process would have written a target."""
    own = partial_beside(target)
    return own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{process}-"))
