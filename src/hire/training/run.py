"""A run as a folder: config.json, weights, everything needed to resume, metrics, curves, a model card.

A system that is made of others has each of them in a folder of its own below `members`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import hire
from hire import __version__
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.evaluation.calibration import Calibration, calibrations_in
from hire.systems.base import FewShotSystem
from hire.systems.registry import package_of, system_class
from hire.training.schema import check_config
from hire.training.settings import RunSettings
from hire.util.files import explain_os_errors
from hire.util.tensors import load_tensors, save_tensors, write_json

CONFIG, MODEL, CALIBRATION, MEMBERS = "config.json", "model.safetensors", "calibration.json", "members"
FORMAT = 4
SAMPLES, SAMPLE_BYTES = 64, 1 << 16  # of a file of weights: millions of entities are too much to read for a checksum


def fingerprint(dataset: FewShotDataset) -> str:
    """What a system's ids mean: the names of entities and relations, and the graph between them."""
    digest = hashlib.sha256()
    graph = dataset.graph
    for array in (graph.entities.text, graph.entities.offsets, graph.relations.text, graph.triples):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def run_config(
    dataset: FewShotDataset, source: str, settings: RunSettings, embeddings: Path | None = None
) -> dict[str, Any]:
    """What a run is: its system, every setting, its dataset, and the versions it was made with."""
    return {
        "format": FORMAT,
        "versions": {
            "hire": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            **_packages(settings.system, settings.settings),
        },
        "commit": commit(),
        **settings.to_plain(),
        "dataset": {"name": dataset.name, "source": source, "fingerprint": fingerprint(dataset)},
        "embeddings": None if embeddings is None else str(embeddings),
    }


def _packages(system: str, settings: Any) -> dict[str, str]:
    """The packages of systems that are not of this one, by the system's name."""
    package = package_of(system)
    found = {} if package is None else {system: package}
    for part, of_part in system_class(system).parts(settings).values():
        found |= _packages(part, of_part)
    return found


def commit() -> str | None:
    """The commit of this program's source, where it is run from a checkout."""
    place = Path(hire.__file__).parent
    if not any((parent / ".git").exists() for parent in place.parents):
        return None
    try:
        command = ["git", "-C", str(place), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def read_config(run: Path) -> dict[str, Any]:
    """What a run is."""
    path = run / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8"))
        number = config["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HireError(f"is not a run ({error})", file=run, remedy="hire train makes one") from error
    if number != FORMAT:
        raise HireError(
            f"has format {number!r}; this version reads format {FORMAT}",
            file=path,
            remedy="train again with this version, or use the version that wrote it",
        )
    check_config(config, path)
    return config


def read_run_settings(run: Path) -> RunSettings:
    """The system and the settings of a run."""
    config = read_config(run)
    try:
        return RunSettings.from_plain(config)
    except HireError as error:
        problem = error.problems[0]
        raise HireError(problem.message, file=run / CONFIG, remedy=problem.remedy) from error


def load_system(run: Path, dataset: FewShotDataset, device: torch.device | str = "cpu") -> FewShotSystem:
    """The system of a run, for the dataset it was trained on."""
    config = read_config(run)
    if config["dataset"]["fingerprint"] != fingerprint(dataset):
        raise HireError(
            f"was trained on another graph than {dataset.name!r} is now",
            file=run,
            remedy=f"its dataset was {config['dataset']['source']!r}",
        )
    settings = read_run_settings(run)
    return restore(run, settings.system, settings.settings, dataset, device)


def restore(
    folder: Path, system: str, settings: Any, dataset: FewShotDataset, device: torch.device | str = "cpu"
) -> FewShotSystem:
    """The system whose weights a folder holds."""
    kind = system_class(system)
    tensors = _tensors(folder, kind, settings)
    with _explain_misfit(folder / MODEL):
        return kind.restore(dataset, settings, tensors, device)


def _tensors(folder: Path, kind: type[FewShotSystem], settings: Any) -> dict[str, Tensor]:
    """The tensors of a folder, and those of its members with their names before them."""
    path = folder / MODEL
    if not path.exists():
        raise HireError("has no weights yet", file=folder, remedy="finish its training: hire train ... --resume")
    tensors = load_tensors(path)
    for name, (system, of_part) in kind.parts(settings).items():
        own = _tensors(folder / MEMBERS / name, system_class(system), of_part)
        tensors |= {f"{name}.{part}": tensor for part, tensor in own.items()}
    return tensors


def save_system(folder: Path, system: FewShotSystem, settings: Any) -> None:
    """Write the weights of a system into a folder, but those of its members, which are in theirs."""
    members = tuple(f"{name}." for name in type(system).parts(settings))
    tensors = {name: tensor for name, tensor in system.tensors().items() if not name.startswith(members)}
    save_tensors(folder / MODEL, tensors)


@contextmanager
def _explain_misfit(path: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        raise HireError("does not fit the settings of the run", file=path, remedy="train again") from error


def weights_fingerprint(run: Path) -> str:
    """Which weights a run has: a checksum of evenly spaced samples of their files."""
    digest = hashlib.sha256()
    paths = sorted(run.rglob(MODEL))
    if not paths:
        raise HireError("has no weights yet", file=run, remedy="finish its training: hire train ... --resume")
    for path in paths:
        with explain_os_errors(path), path.open("rb") as stream:
            size = path.stat().st_size
            digest.update(str(size).encode())
            for start in np.linspace(0, max(0, size - SAMPLE_BYTES), SAMPLES).astype(int).tolist():
                stream.seek(start)
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
        return calibrations_in(content["shots"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HireError(f"is not a calibration ({error})", file=path, remedy="hire calibrate makes it anew") from error
