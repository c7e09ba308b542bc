"""What config.json of a run must contain, in types and ranges: whatever is read from it can be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hire.errors import HireError
from hire.util.settings import shortened

SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "system": (str,),
    "settings": (dict,),
    "teaching": (dict,),
    "dataset": (dict,),
}
OF_DATASET = ("name", "source", "fingerprint")
MAX_DEPTH = 12  # of sections within sections


def check_config(config: Any, path: Path, train_again: str = "train again") -> None:
    """Raise if a configuration lacks something, or has something else in its place."""
    if not isinstance(config, Mapping):
        raise HireError(f"is {shortened(config)}, not the configuration of a run", file=path, remedy=train_again)
    missing = sorted(SECTIONS.keys() - config.keys())
    if missing:
        raise HireError(f"lacks {', '.join(missing)}", file=path, remedy=train_again)
    for name, kinds in SECTIONS.items():
        if not isinstance(config[name], kinds):
            raise _wrong(name, config[name], path, train_again)
    for name in OF_DATASET:
        if not isinstance(config["dataset"].get(name), str):
            raise _wrong(f"dataset.{name}", config["dataset"].get(name), path, train_again)
    embeddings = config.get("embeddings")
    if not isinstance(embeddings, str | None):
        raise _wrong("embeddings", embeddings, path, train_again)
    processes = config.get("processes", 1)  # runs of earlier versions do not say
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise _wrong("processes", processes, path, train_again)
    if _depth(config) > MAX_DEPTH:
        raise HireError("is nested too deeply", file=path, remedy=train_again)


def _wrong(name: str, value: Any, path: Path, remedy: str) -> HireError:
    return HireError(f"{name!r} cannot be {shortened(value)}", file=path, remedy=remedy)


def _depth(content: Any) -> int:
    depth, level = 0, [content]
    while level and depth <= MAX_DEPTH:
        parts = (list(each.values()) if isinstance(each, Mapping) else each for each in level)
        level = [each for part in parts if isinstance(part, list) for each in part if isinstance(each, Mapping | list)]
        depth += 1
    return depth
