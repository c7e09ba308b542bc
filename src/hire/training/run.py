"""A run as a folder: config.json, weights, everything needed to resume, metrics, curves, a model card.

A system that is made of others has each of them in a folder of its own below `members`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Iterator
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
from hire.optim.storage import kept_apart
from hire.systems.base import FewShotSystem
from hire.systems.registry import package_of, system_class
from hire.training.schema import check_config
from hire.training.settings import RunSettings
from hire.util.checksums import checksum_of, read_record, write_record
from hire.util.files import explain_os_errors, make_directory
from hire.util.locks import locked
from hire.util.processes import check_equal, share, told_tensors
from hire.util.settings import items
from hire.util.tensors import (
    TRAIN_AGAIN,
    load_tensors_and_metadata,
    map_tensors_and_metadata,
    recorded_checksum,
    save_tensors,
)

CONFIG, MODEL, CALIBRATION, MEMBERS = "config.json", "model.safetensors", "calibration.json", "members"
LOCK = ".lock"
FORMAT = 5
Loader = Callable[[Path], tuple[dict[str, Tensor], dict[str, str]]]
CALIBRATE_AGAIN = "delete it; hire calibrate makes it anew"


def fingerprint(dataset: FewShotDataset) -> str:
    """What a system's ids mean: the names of entities and relations, and the graph between them."""
    digest = hashlib.sha256()
    graph = dataset.graph
    for array in (graph.entities.text, graph.entities.offsets, graph.relations.text, graph.triples):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@contextmanager
def exclusive_run(run: Path) -> Iterator[None]:
    """Make the folder of a run, if it is not there, and be the only one who writes into it.

    Of several processes that work together, the first one writes, whatever it is.
    """
    if not share().first:
        yield
        return
    if run.exists() and not run.is_dir():
        raise HireError("is a file", file=run, remedy="choose another folder for the run")
    with explain_os_errors(run):
        make_directory(run)
    with locked(run / LOCK, run):
        yield


def run_config(
    dataset: FewShotDataset, source: str, settings: RunSettings, embeddings: Path | None = None
) -> dict[str, Any]:
    """What a run is: its system, every setting, its dataset, and the versions it was made with."""
    return {
        "format": FORMAT,
        "versions": _versions(settings),
        "commit": commit(),
        **settings.to_plain(),
        "dataset": {"name": dataset.name, "source": source, "fingerprint": fingerprint(dataset)},
        "embeddings": None if embeddings is None else str(embeddings),
        "processes": share().processes,
    }


def check_processes(dataset: FewShotDataset, settings: RunSettings | None = None, **more: str) -> None:
    """Raise, on all processes that work together, unless they have the same program, dataset and settings."""
    if share().processes == 1:
        return
    plain: dict[str, Any] = {} if settings is None else json.loads(json.dumps(settings.to_plain()))
    check_equal(
        {
            "the fingerprint of the dataset": fingerprint(dataset),
            "the commit": commit(),
            **{f"the version of {name}": version for name, version in _versions(settings).items()},
            **dict(items(plain)),
            **more,
        }
    )


def _versions(settings: RunSettings | None) -> dict[str, str]:
    return {
        "hire": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        **({} if settings is None else _packages(settings.system, settings.settings)),
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
    if not path.exists():
        raise HireError("is not a run", file=run, remedy="hire train makes one")
    config = read_record(path, TRAIN_AGAIN, FORMAT)
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
    if kept_apart(settings):
        tensors = _tensors(folder, kind, settings, map_tensors_and_metadata)
    else:
        tensors, _ = told_tensors(lambda: (_tensors(folder, kind, settings, load_tensors_and_metadata), {}))
    with _explain_misfit(folder / MODEL):
        return kind.restore(dataset, settings, tensors, device)


def _tensors(folder: Path, kind: type[FewShotSystem], settings: Any, load: Loader) -> dict[str, Tensor]:
    """The tensors of a folder, and those of its members with their names before them."""
    path = folder / MODEL
    if not path.exists():
        raise HireError("has no weights yet", file=folder, remedy="finish its training: hire train ... --resume")
    tensors, _ = load(path)
    for name, (system, of_part) in kind.parts(settings).items():
        own = _tensors(folder / MEMBERS / name, system_class(system), of_part, load)
        tensors |= {f"{name}.{part}": tensor for part, tensor in own.items()}
    return tensors


def save_system(folder: Path, system: FewShotSystem, settings: Any) -> None:
    """Write the weights of a system into a folder, but those of its members, which are in theirs."""
    if not share().first:
        return
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
    """Which weights a run has: the checksum of the checksums that their files carry."""
    paths = sorted(run.rglob(MODEL))
    if not paths:
        raise HireError("has no weights yet", file=run, remedy="finish its training: hire train ... --resume")
    return checksum_of(recorded_checksum(path).encode() for path in paths)


def write_calibration(run: Path, calibrations: dict[int, Calibration], about: dict[str, Any]) -> None:
    """Write what scores mean, for each number of references, and how it was found out."""
    if not share().first:
        return
    content = {str(shots): calibration.to_dict() for shots, calibration in calibrations.items()}
    write_record(run / CALIBRATION, {"weights": weights_fingerprint(run), "shots": content, **about})


def read_calibration(run: Path) -> dict[int, Calibration]:
    """What scores mean, for each number of references; nothing if that was not found out for these weights."""
    path = run / CALIBRATION
    if not path.exists():
        return {}
    content = read_record(path, CALIBRATE_AGAIN)
    try:
        if content["weights"] != weights_fingerprint(run):
            return {}
        return calibrations_in(content["shots"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HireError(f"is not a calibration ({error})", file=path, remedy=CALIBRATE_AGAIN) from error
