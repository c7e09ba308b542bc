"""Helpers that several tests share."""

from __future__ import annotations

from typing import Any

from hire.errors import HireError
from hire.training.settings import RunSettings, preset

SMALL: dict[str, Any] = {  # as far as a system has such settings
    "model.dimension": 8,
    "model.inner_negatives": 16,
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


def small_settings(system: str, **changes: Any) -> RunSettings:
    """Settings of a system for a training of a second; changes have `__` for the dots of their paths."""
    settings = preset("best") if system == "ensemble" else RunSettings.of(system)
    for path, value in SMALL.items():
        try:
            settings = settings.changed({path: value})
        except HireError:  # this system has no such setting
            continue
    return settings.changed({path.replace("__", "."): value for path, value in changes.items()})
