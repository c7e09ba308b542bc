"""Named tensors and JSON data as files, complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from hire.errors import HireError
from hire.util.checksums import CHECKSUM, checksum_of, damaged
from hire.util.files import atomic_file, explain_os_errors
from hire.util.processes import local_rank, started_together

ABOUT = "about"  # the entry of a file's metadata
TRAIN_AGAIN = "train again"


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Write named tensors and metadata with their checksum, complete or not at all, and only finite numbers."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    written = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    check_finite(path, written)
    sealed = {**(about or {}), CHECKSUM: _checksum(written, about or {})}
    with atomic_file(path, alone=True) as partial:  # the library has a temporary file of its own beside it
        partial.touch()  # with the permissions of the umask, which the library does not heed
        mode = partial.stat().st_mode & 0o777
        try:  # in one entry: the library writes several in any order, and equal weights should be equal files
            save_file(written, partial, {ABOUT: json.dumps(sealed, sort_keys=True)})
        except SafetensorError as error:  # how the library reports a full disk
            raise HireError(f"could not be written ({error})", file=path, remedy="choose another path") from error
        partial.chmod(mode)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors into memory; an error if they are not those that were written."""
    return load_tensors_and_metadata(path)[0]


def load_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read named tensors into memory, and their metadata; an error if they are not those that were written."""
    with _opened(path) as opened:
        about = _metadata(opened)
        # Copied: the library's tensors are maps of the file, which may be cut short while they are in use.
        tensors: dict[str, Tensor] = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    if about.pop(CHECKSUM, None) != _checksum(tensors, about):
        raise damaged(path, TRAIN_AGAIN)
    check_finite(path, tensors)
    return tensors, about


def recorded_checksum(path: Path) -> str:
    """The checksum that a file of tensors carries, without reading the tensors."""
    with _opened(path) as opened:
        return _metadata(opened)[CHECKSUM]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors; whatever is wrong with it is told."""
    from safetensors import SafetensorError, safe_open

    with explain_os_errors(path):
        try:
            with safe_open(path, "pt") as opened:
                yield opened
        except (SafetensorError, RuntimeError, TypeError, ValueError, KeyError) as error:
            raise HireError(f"is not a readable weights file ({error})", file=path, remedy=TRAIN_AGAIN) from error


def _metadata(opened: Any) -> dict[str, str]:
    about: dict[str, str] = dict(json.loads((opened.metadata() or {}).get(ABOUT, "{}")))
    return about


def _checksum(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """The checksum of names, types, shapes, numbers and metadata, whatever their order in the file."""
    shapes = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    parts: list[Any] = [json.dumps([shapes, about], sort_keys=True).encode()]
    return checksum_of(parts + [np.ascontiguousarray(tensors[name].numpy()) for name in sorted(tensors)])


def check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    """Raise if a number is infinite or none at all: nothing that was learned from them could be right."""
    wrong = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if wrong:
        raise HireError(
            f"the weights {wrong[0]!r} are not finite ({len(wrong)} of {len(tensors)} tensors)",
            file=path,
            remedy="train again with a smaller optimizer.learning_rate or optimizer.table_learning_rate",
        )


def write_json(path: Path, content: Any) -> None:
    """Write data as JSON, complete or not at all."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


T = TypeVar("T")


def device_named(name: str | torch.device) -> torch.device:
    """The device of a name; `auto` is CUDA where there is one, otherwise the CPU."""
    if isinstance(name, torch.device):
        return name
    available = torch.cuda.is_available()
    if name.startswith("cuda") and not available:
        raise HireError("no CUDA device was found", remedy="choose the device cpu")
    if available and name in ("auto", "cuda") and started_together() > 1:
        return torch.device("cuda", local_rank())
    return torch.device("cuda" if name == "auto" and available else name.replace("auto", "cpu"))


def on_device(value: T, device: torch.device) -> T:
    """The same with all its tensors on a device, those in tuples, lists and dataclasses included."""
    if device.type == "cpu":  # where they are made
        return value
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device)
    elif isinstance(value, tuple):
        parts = [on_device(part, device) for part in value]
        moved = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    elif isinstance(value, list):
        moved = [on_device(part, device) for part in value]
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{part.name: on_device(getattr(value, part.name), device) for part in fields(value)})
    return cast(T, moved)
