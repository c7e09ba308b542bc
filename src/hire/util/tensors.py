"""Named tensors and JSON data as files, complete or not at all.

Tensors are read and written some rows at a time: a table may be larger than memory, as a map of a file, or in parts
that several processes have.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hire.errors import HireError
from hire.util.checksums import CHECKSUM, checksum_of, damaged
from hire.util.files import atomic_file, explain_os_errors
from hire.util.processes import barrier, local_rank, share, started_together, told

ABOUT = "about"  # the entry of a file's metadata
TRAIN_AGAIN = "train again"
BLOCK_BYTES = 4 << 20  # of a tensor, at once
TYPES = {  # as the format names them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Part(NamedTuple):
    """Which rows of a tensor a process has; the others have the others, and all of them save it together."""

    start: int  # the number of the first
    total: int  # rows of all processes


Parts = Mapping[str, Part]
NO_PARTS: Parts = {}


def save_together(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str], parts: Parts) -> None:
    """Write tensors that all processes have, or parts of: the first one does, and the others only their parts."""
    if share().first or parts:
        save_tensors(path, tensors, about, parts)


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None, parts: Parts = NO_PARTS
) -> None:
    """Write named tensors and metadata with their checksum, complete or not at all, and only finite numbers.

    If there are parts, all processes must call it, and reach the file: each writes its rows, the first one the rest.
    """
    check_finite(path, tensors)
    layout = _layout(tensors, parts)
    if parts and not share().first:
        own = {name: tensors[name] for name in parts}
        _write_rows(Path(told(str)), own, layout, parts)
        barrier()  # until all have been written
        barrier()  # until the file is in its place
        return
    blank = {**(about or {}), CHECKSUM: checksum_of([])}
    with atomic_file(path) as partial:
        with partial.open("wb") as stream:
            begin = stream.write(_header(layout, blank))
            stream.truncate(begin + max((entry["data_offsets"][1] for entry in layout.values()), default=0))
        if parts:
            told(lambda: str(partial))
        _write_rows(partial, tensors, layout, parts)
        if parts:
            barrier()
        sealed = {**(about or {}), CHECKSUM: _checksum(_mapped(partial) if parts else tensors, about or {})}
        with partial.open("r+b") as stream:
            stream.write(_header(layout, sealed))
    if parts:
        barrier()


def _layout(tensors: Mapping[str, Tensor], parts: Parts) -> dict[str, Any]:
    """Where each tensor is in a file; those of wide numbers first, so that all are aligned."""
    found, end = {}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        shape, begin = list(tensors[name].shape), end
        if name in parts:
            shape[0] = parts[name].total
        end += tensors[name].element_size() * math.prod(shape)
        found[name] = {"dtype": TYPES[tensors[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    return found


def _header(layout: dict[str, Any], about: dict[str, str]) -> bytes:
    """The header of a file in the format of safetensors, as long for any checksum: equal weights are equal files."""
    content = json.dumps({"__metadata__": {ABOUT: json.dumps(about, sort_keys=True)}, **layout}).encode()
    content += b" " * (-len(content) % 8)
    return len(content).to_bytes(8, "little") + content


def _write_rows(path: Path, tensors: Mapping[str, Tensor], layout: dict[str, Any], parts: Parts) -> None:
    """Write tensors, or our rows of them, into a file that is as long as it will be."""
    with explain_os_errors(path), path.open("r+b") as stream:
        begin = 8 + int.from_bytes(stream.read(8), "little")
        for name, tensor in tensors.items():
            before = parts[name].start * tensor[:1].numel() * tensor.element_size() if name in parts else 0
            stream.seek(begin + layout[name]["data_offsets"][0] + before)
            for block in blocks_of(tensor):
                stream.write(_bytes(block).data)
        stream.flush()
        os.fsync(stream.fileno())


def blocks_of(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor, some rows at a time."""
    if tensor.dim() == 0 or tensor.numel() * tensor.element_size() <= BLOCK_BYTES:
        yield tensor
        return
    rows = max(1, BLOCK_BYTES // (tensor[0].numel() * tensor.element_size()))
    yield from (tensor[start : start + rows] for start in range(0, len(tensor), rows))


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    return cast(NDArray[np.uint8], tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors into memory; an error if they are not those that were written."""
    return load_tensors_and_metadata(path)[0]


def load_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read named tensors into memory, and their metadata; an error if they are not those that were written."""
    with _opened(path) as opened:
        about = _metadata(opened)
        # Copied: the library's tensors are maps of the file, which may be cut short while they are in use.
        tensors: dict[str, Tensor] = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    return _verified(path, tensors, about)


def map_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Named tensors as maps of their file, which must stay as it is, and their metadata; verified like the others.

    Pages come and go as they are used, so that they may be larger than memory. They must not be written to.
    """
    with _opened(path, "np") as opened:
        about, tensors = _metadata(opened), _mapped(path)
    return _verified(path, tensors, about)


def _verified(
    path: Path, tensors: dict[str, Tensor], about: dict[str, str]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    if about.pop(CHECKSUM, None) != _checksum(tensors, about):
        raise damaged(path, TRAIN_AGAIN)
    check_finite(path, tensors)
    return tensors, about


def _mapped(path: Path) -> dict[str, Tensor]:
    """The tensors of a well-formed file as maps."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        layout = json.loads(stream.read(length))
    layout.pop("__metadata__", None)
    found, types = {}, {name: kind for kind, name in TYPES.items()}
    data = np.memmap(path, np.uint8, "r")[8 + length :]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        for name, entry in layout.items():
            whole = torch.from_numpy(np.asarray(data[slice(*entry["data_offsets"])]))
            found[name] = whole.view(types[entry["dtype"]]).view(entry["shape"])
    return found


def recorded_checksum(path: Path) -> str:
    """The checksum that a file of tensors carries, without reading the tensors."""
    with _opened(path) as opened:
        return _metadata(opened)[CHECKSUM]


@contextmanager
def _opened(path: Path, framework: str = "pt") -> Iterator[Any]:
    """A file of tensors; whatever is wrong with it is told."""
    from safetensors import SafetensorError, safe_open

    with explain_os_errors(path):
        try:
            with safe_open(path, framework) as opened:
                yield opened
        except (SafetensorError, RuntimeError, TypeError, ValueError, KeyError) as error:
            raise HireError(f"is not a readable weights file ({error})", file=path, remedy=TRAIN_AGAIN) from error


def _metadata(opened: Any) -> dict[str, str]:
    about: dict[str, str] = dict(json.loads((opened.metadata() or {}).get(ABOUT, "{}")))
    return about


def _checksum(tensors: Mapping[str, Tensor], about: dict[str, str]) -> str:
    """The checksum of names, types, shapes, numbers and metadata, whatever their order in the file."""
    shapes = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    blocks = (_bytes(block) for name in sorted(tensors) for block in blocks_of(tensors[name]))
    return checksum_of(chain([json.dumps([shapes, about], sort_keys=True).encode()], blocks))


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise if a number is infinite or none at all: nothing that was learned from them could be right."""
    wrong = [name for name, tensor in tensors.items() if not finite(tensor)]
    if wrong:
        raise HireError(
            f"the weights {wrong[0]!r} are not finite ({len(wrong)} of {len(tensors)} tensors)",
            file=path,
            remedy="train again with a smaller optimizer.learning_rate or optimizer.table_learning_rate",
        )


def finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    return all(bool(block.isfinite().all()) for block in blocks_of(tensor))


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
    return _each(value, lambda tensor: tensor.to(device, non_blocking=True))


def pinned(value: T) -> T:
    """The same with all its tensors in memory from which CUDA takes them while something else is computed."""
    return _each(value, Tensor.pin_memory)


def _each(value: T, change: Callable[[Tensor], Tensor]) -> T:
    moved: Any = value
    if isinstance(value, Tensor):
        moved = change(value)
    elif isinstance(value, tuple):
        parts = [_each(part, change) for part in value]
        moved = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    elif isinstance(value, list):
        moved = [_each(part, change) for part in value]
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{part.name: _each(getattr(value, part.name), change) for part in fields(value)})
    return cast(T, moved)
