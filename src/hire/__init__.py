"""HiRe: few-shot knowledge graph completion.

The public names are imported when they are first used, so that `import hire` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "open": "hire.inference.open:open_model",
    "Client": "hire.client.model",
    "load": "hire.inference.model",
    "fit": "hire.inference.fit",
    "TrainedModel": "hire.inference.model",
    "TaughtRelation": "hire.inference.relation",
    "RunSettings": "hire.training.settings",
    "preset": "hire.training.settings",
    "open_dataset": "hire.data.open",
    "FewShotDataset": "hire.data.dataset",
    "Task": "hire.data.dataset",
    "KnowledgeGraph": "hire.data.graph",
    "EpisodeSampler": "hire.sampling.episodes",
    "ContextSampler": "hire.sampling.contexts",
    "HireError": "hire.errors",
}
__all__ = [
    "Client",
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
    "open",
    "open_dataset",
    "preset",
]

if TYPE_CHECKING:
    from hire.client.model import Client
    from hire.data.dataset import FewShotDataset, Task
    from hire.data.graph import KnowledgeGraph
    from hire.data.open import open_dataset
    from hire.errors import HireError
    from hire.inference.fit import fit
    from hire.inference.model import TrainedModel, load
    from hire.inference.open import open_model as open
    from hire.inference.relation import TaughtRelation
    from hire.sampling.contexts import ContextSampler
    from hire.sampling.episodes import EpisodeSampler
    from hire.training.settings import RunSettings, preset


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(":")
        return getattr(import_module(module), attribute or name)
    raise AttributeError(f"module 'hire' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
