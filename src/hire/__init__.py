"""HiRe: few-shot knowledge graph completion.

The public names are imported when they are first used, so that `import hire` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load": "hire.teaching",
    "fit": "hire.fitting",
    "TrainedModel": "hire.teaching",
    "TaughtRelation": "hire.teaching",
    "RunSettings": "hire.settings",
    "preset": "hire.settings",
    "open_dataset": "hire.catalog",
    "FewShotDataset": "hire.datasets",
    "Task": "hire.datasets",
    "KnowledgeGraph": "hire.graph",
    "EpisodeSampler": "hire.episodes",
    "ContextSampler": "hire.contexts",
    "HireError": "hire.errors",
}
__all__ = [
    "ContextSampler",
    "EpisodeSampler",
    "FewShotDataset",
    "HireError",
    "KnowledgeGraph",
    "RunSettings",
    "Task",
    "TaughtRelation",
    "TrainedModel",
    "fit",
    "load",
    "open_dataset",
    "preset",
]

if TYPE_CHECKING:
    from hire.catalog import open_dataset
    from hire.contexts import ContextSampler
    from hire.datasets import FewShotDataset, Task
    from hire.episodes import EpisodeSampler
    from hire.errors import HireError
    from hire.fitting import fit
    from hire.graph import KnowledgeGraph
    from hire.settings import RunSettings, preset
    from hire.teaching import TaughtRelation, TrainedModel, load


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hire' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
