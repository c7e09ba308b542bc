"""All settings of a run in one place, and the presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hire.embeddings.trainer import EmbeddingSettings
from hire.errors import HireError
from hire.systems.hire.settings import HireSettings
from hire.systems.hire.trainer import TrainingSettings
from hire.systems.path.settings import PathSettings, PathTrainingSettings


@dataclass(frozen=True)
class FitSettings:
    """When to look at dev, and when to stop."""

    evaluate_every: int = 500
    patience: int | None = None  # looks at dev without a better one before training stops; None to go on to the end


@dataclass(frozen=True)
class RunSettings:
    """Everything that a run depends on besides its dataset."""

    model: HireSettings = field(default_factory=HireSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    path: PathSettings = field(default_factory=lambda: PathSettings(members=0))  # none leave the path level out
    path_training: PathTrainingSettings = field(default_factory=PathTrainingSettings)

    def changed(self, **parts: Mapping[str, Any]) -> RunSettings:
        """The same with some settings of some parts changed; None changes nothing."""
        given = {
            name: {key: value for key, value in changes.items() if value is not None} for name, changes in parts.items()
        }
        return replace(self, **{name: replace(getattr(self, name), **changes) for name, changes in given.items()})

    @property
    def evaluated_shots(self) -> tuple[int, ...]:
        """For how many references dev is looked at; the choice is by the mean of their MRR."""
        return (1, 3, 5) if len(set(self.training.shots)) > 1 else self.training.shots[:1]


PRESETS = {
    # All four levels: as `fast`, and the path level on top.
    "best": RunSettings(path=PathSettings()),
    # The paper's model, trained for quick results: softmax over shared negatives, many kinds of task, any K.
    "fast": RunSettings(),
    # The paper's model, trained as in the paper (section 5.1): what it does not say is in docs/paper-notes.md.
    "paper": RunSettings(
        HireSettings(loss="margin", residual=False),
        TrainingSettings(
            steps=30_000,
            shots=(5,),
            regime="tasks",
            batches="episodes",
            tasks=1_024,
            queries=3,
            negatives=1,
            inner_negatives=1,
            context_references=None,
            table_rate=1e-3,
            network_rate=1e-3,
            final_rate=1.0,
            averaging=None,
            embedding_norm=1.0,
            clip=None,
        ),
        EmbeddingSettings(),
        FitSettings(evaluate_every=1_000, patience=10),
    ),
}


DEFAULT = "best"


def preset(name: str = DEFAULT) -> RunSettings:
    """The settings of a preset."""
    if name not in PRESETS:
        raise HireError(f"unknown preset {name!r}", remedy=f"the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
