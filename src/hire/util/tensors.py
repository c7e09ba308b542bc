"""Named tensors and JSON data as files, complete or not at all."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from hire.errors import HireError
from hire.util.files import atomic_file, explain_os_errors


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Write named tensors and metadata, complete or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_file(path) as partial:
        try:
            save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, partial, about)
        except SafetensorError as error:  # how the library reports a missing folder or a full disk
            raise HireError(f"could not be written ({error})", file=path, remedy="choose another path") from error
        partial.chmod(0o644)  # the library makes files readable for their owner only


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with explain_os_errors(path):
        try:
            return load_file(path)
        except SafetensorError as error:
            raise HireError(f"is not a readable weights file ({error})", file=path, remedy="train again") from error


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
