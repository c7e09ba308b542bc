"""Named tensors and plain data as files, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from hire.errors import HireError
from hire.util.files import atomic_file, explain_os_errors


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Write named tensors, and what there is to say about them, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_file(path) as partial:
        try:
            save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, partial, about)
        except SafetensorError as error:  # the library's word for a missing folder or a full disk
            raise HireError(f"could not be written ({error})", file=path, remedy="choose another place") from error
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
