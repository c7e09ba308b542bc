"""What is wrong with an installation, a dataset or a run, and how to fix it: each check is one finding."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from re import match
from typing import Literal, NamedTuple

from hire.data.dataset import SPLITS, FewShotDataset
from hire.data.open import open_dataset, open_graph
from hire.data.verify import verify
from hire.errors import HireError
from hire.inference.ahead import machine_code_folder
from hire.training.run import (
    CALIBRATION,
    CONFIG,
    MEMBERS,
    MODEL,
    fingerprint,
    load_system,
    read_calibration,
    read_config,
    read_run_settings,
)
from hire.util.files import cache_directory
from hire.util.memory import MIB, available_memory

Status = Literal["ok", "note", "problem"]
LEAST_DISK, LEAST_MEMORY = 1 << 30, 1 << 30  # bytes
LEAST_FILES = 256
VERIFIED_BYTES = 2 << 30  # of a dataset; a larger one is left to hire data verify


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    status: Status
    message: str
    remedy: str | None = None


Findings = Iterator[Finding]


def diagnose(subject: str | None = None) -> list[Finding]:
    """Check the installation and, if it is given, a run, a dataset or a graph."""
    found = list(_guarded("installation", _installation))
    if subject is None:
        return found
    if (Path(subject) / CONFIG).exists():
        return found + list(_guarded("run", lambda: _run(Path(subject))))
    return found + list(_guarded("dataset", lambda: _dataset(subject)))


def _guarded(name: str, check: Callable[[], Findings]) -> Findings:
    """The findings of a check; an error ends it as one of them."""
    try:
        yield from check()
    except HireError as error:
        for problem in error.problems:
            yield Finding(name, "problem", str(problem), problem.remedy)


def _installation() -> Findings:
    yield _python()
    yield from _packages()
    yield from _guarded("tensor library", _tensors)
    yield _writable("cache folder", cache_directory(), "set HIRE_CACHE to a folder that can be written")
    yield _compiled_code()
    yield _space(cache_directory())
    available = available_memory()
    enough = available.bytes_ >= LEAST_MEMORY
    message = f"{available.bound} leaves {available.bytes_ // MIB:,} MiB"
    yield Finding("memory", "ok" if enough else "problem", message, None if enough else "free at least 1 GiB of memory")
    yield from _service()


def _python() -> Finding:
    message = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    right = sys.version_info >= (3, 11)
    return Finding("Python", "ok" if right else "problem", message, None if right else "install Python 3.11 or newer")


def _packages() -> Findings:
    """The packages that are needed, in the least versions that are declared."""
    names = []
    for line in requires("hire") or []:
        wanted = match(r"([A-Za-z0-9._-]+)>=([0-9.]+)$", line.partition(";")[0].strip())
        if wanted is None or "extra ==" in line:
            continue
        try:
            found = version(wanted[1])
        except PackageNotFoundError:
            yield Finding(wanted[1], "problem", "is not installed", f"pip install '{wanted[0]}'")
            continue
        if _numbers(found) < _numbers(wanted[2]):
            yield Finding(wanted[1], "problem", f"{found} is older than {wanted[2]}", f"pip install '{wanted[0]}'")
        names.append(f"{wanted[1]} {found}")
    if names:
        yield Finding("packages", "ok", ", ".join(names))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:3] if part.isdecimal())


def _tensors() -> Findings:
    import torch

    from hire.systems.path.pretrained import about

    right = torch.equal(torch.eye(3) @ torch.ones(3), torch.ones(3))
    device = "with CUDA" if torch.cuda.is_available() else "on the CPU"
    remedy = None if right else "install torch again"
    yield Finding("tensor library", "ok" if right else "problem", f"torch {torch.__version__} {device}", remedy)
    yield Finding("pre-trained model", "ok", f"calibrated for {', '.join(about()['calibration'])} references")


def _writable(name: str, folder: Path, remedy: str) -> Finding:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=nearest):
            return Finding(name, "ok", f"{folder} can be written")
    except OSError as error:
        return Finding(
            name, "problem", f"{nearest} cannot be written ({(error.strerror or str(error)).lower()})", remedy
        )


def _compiled_code() -> Finding:
    """Where numba keeps machine code: without such a folder, every start compiles again."""
    found = _writable("compiled code", machine_code_folder(), "set NUMBA_CACHE_DIR to a folder that can be written")
    return found if found.status == "ok" else found._replace(status="note")


def _space(folder: Path) -> Finding:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(nearest).free
    message = f"{free // MIB:,} MiB are free for the cache"
    if free >= LEAST_DISK:
        return Finding("disk", "ok", message)
    return Finding("disk", "problem", message, "free some space, or set HIRE_CACHE to another disk")


def _service() -> Findings:
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        yield Finding(
            "service", "note", f"{', '.join(missing)} not installed", "pip install 'hire[serve]' for hire serve"
        )
        return
    token = "HIRE_TOKEN is set" if os.environ.get("HIRE_TOKEN") else "no HIRE_TOKEN: only this machine may connect"
    yield Finding("service", "ok", token)
    try:
        import resource
    except ImportError:  # not on this system
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        yield Finding("open files", "note", f"at most {files}: few connections at once", "raise the limit (ulimit -n)")


def _dataset(source: str) -> Findings:
    path = Path(source)
    dataset = open_graph(source)
    graph = dataset.graph
    size = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, {len(graph.triples):,} facts"
    yield Finding("dataset", "ok", f"{dataset.name}: {size}")
    if not path.is_dir():
        return
    bytes_ = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    if bytes_ > VERIFIED_BYTES:
        yield Finding("files", "note", f"{bytes_ // MIB:,} MiB were not verified", f"hire data verify {source}")
    else:
        problems = verify(path).problems
        for problem in problems:
            yield Finding("files", "problem", str(problem), problem.remedy)
        if not problems:
            yield Finding("files", "ok", "complete and consistent")
    yield from _tasks(dataset)


def _tasks(dataset: FewShotDataset) -> Findings:
    tasks = ", ".join(f"{dataset.split_sizes[split]} {split}" for split in SPLITS)
    if dataset.split_sizes["dev"]:
        yield Finding("tasks", "ok", tasks)
    else:
        remedy = "build it with other --more-than and --fewer-than, or use the pre-trained model"
        yield Finding("tasks", "note", f"{tasks}: hire train needs dev tasks", remedy)


def _run(run: Path) -> Findings:
    config, settings = read_config(run), read_run_settings(run)
    yield Finding("run", "ok", f"{settings.system} on {config['dataset']['name']}")
    source = config["dataset"]["source"]
    dataset = open_dataset(source)
    if fingerprint(dataset) != config["dataset"]["fingerprint"]:
        message = f"{source} has changed since the training"
        yield Finding("dataset of the run", "problem", message, "train again, or give the dataset as it was: --dataset")
        return
    yield Finding("dataset of the run", "ok", source)
    yield from _guarded("weights", lambda: _weights(run, dataset))
    shots = read_calibration(run)
    if shots:
        yield Finding("calibration", "ok", f"for {', '.join(map(str, sorted(shots)))} references")
    else:
        stale = "is of other weights" if (run / CALIBRATION).exists() else "is missing: answers have no confidence"
        yield Finding("calibration", "note", stale, f"hire calibrate {run}")


def _weights(run: Path, dataset: FewShotDataset) -> Findings:
    system = load_system(run, dataset)
    wrong = [name for name, tensor in system.tensors().items() if not bool(tensor.isfinite().all())]
    if wrong:
        message = f"{len(wrong)} tensors are not finite, such as {wrong[0]}"
        yield Finding("weights", "problem", message, "train again with a smaller learning rate")
        return
    count = sum(tensor.numel() for tensor in system.tensors().values())
    files = [run / MODEL, *sorted((run / MEMBERS).rglob(MODEL))]
    yield Finding("weights", "ok", f"{count:,} finite numbers in {len(files)} file{'s' * (len(files) > 1)}")
