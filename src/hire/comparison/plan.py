"""What a comparison consists of: rows, each a system with its settings, and the runs that they need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.systems.base import Recipe
from hire.systems.registry import system_class, system_names
from hire.training.settings import PRESETS, RunSettings, preset, read_settings
from hire.util.settings import items

ALL = "all"
DEFAULT = "default"  # in place of a recipe's name: the system's default settings
ENSEMBLE = "ensemble"  # has no members of its own
EMBEDDING = "embedding"  # the section of settings by which systems ask for embeddings


@dataclass(frozen=True)
class Row:
    """A system with its settings, whatever the seed and the number of references."""

    name: str
    settings: RunSettings
    recipe: str = DEFAULT  # or `preset`, or the name of a file

    @property
    def key(self) -> str:
        """What tells it from the other rows of a comparison."""
        return f"{self.name} ({self.recipe})"


@dataclass(frozen=True)
class Job:
    """A run, and the numbers of references that it is evaluated with."""

    row: Row
    settings: RunSettings
    seed: int
    shots: tuple[int, ...]
    name: str  # of its folder: equal settings on equal graphs have equal names
    alike: str = ""  # the name for the first seed: jobs that have it in common take as long

    @property
    def embeddings(self) -> list[EmbeddingSettings]:
        """Those that its system starts from, and the systems that it is made of."""
        return list(_embeddings(self.settings.system, self.settings.settings))

    def __str__(self) -> str:
        one = f", {self.shots[0]}-shot" if one_model_per_shots(self.row.settings) else ""
        return f"{self.row.key}{one}, seed {self.seed}"


def rows_of(names: Sequence[str], recipes: Sequence[Recipe]) -> list[Row]:
    """The rows of some systems, presets and settings files in some recipes; `all` stands for every system.

    A system without a recipe of that name has its default settings, and one row for all such recipes.
    """
    found: dict[str, Row] = {}
    for name in names:
        every = [system for system in system_names() if system != ENSEMBLE] if name == ALL else [name]
        for row in (row_of(each, recipe) for each in every for recipe in recipes):
            found.setdefault(row.key, row)
    return list(found.values())


def row_of(name: str, recipe: Recipe) -> Row:
    """The row of a system in a recipe, of a preset, or of a settings file."""
    if name.endswith(".toml"):
        return Row(Path(name).stem, read_settings(Path(name)), Path(name).name)
    if name in PRESETS:
        return Row(name, preset(name), "preset")
    if name == ENSEMBLE:
        raise HireError("an ensemble needs members", remedy="name the preset levels, or a TOML file, instead")
    if recipe in system_class(name).recipes:
        return Row(name, RunSettings.of_recipe(name, recipe), recipe)
    return Row(name, RunSettings.of(name))


def one_model_per_shots(settings: RunSettings) -> bool:
    """Whether a model is trained for one number of references, so that another number needs another model."""
    trained = [value for path, value in items(settings.settings) if f".{path}".endswith(".training.shots")]
    return any(value is not None and len(set(value)) == 1 for value in trained)


def jobs_of(rows: Sequence[Row], shots: Sequence[int], seeds: int, graph: str) -> list[Job]:
    """The runs that rows need, seed by seed, so that a table can be made early; graph is its fingerprint.

    A system without randomness needs one seed, and one that is trained for any number of references one run for all.
    """
    found: dict[tuple[str, str], Job] = {}
    for seed in range(seeds):
        for row in rows:
            seeded = row.settings.seeded(seed)
            if seed and seeded == row.settings.seeded(0):
                continue
            parts = [(k,) for k in shots] if one_model_per_shots(seeded) else [tuple(shots)]
            for part in parts:
                settings = seeded.changed({"training.shots": list(part)}) if one_model_per_shots(seeded) else seeded
                alike = _folder_name(settings.seeded(0), 0, graph)
                job = Job(row, settings, seed, part, _folder_name(settings, seed, graph), alike)
                found[row.key, job.name] = job
    return list(found.values())


def _embeddings(system: str, settings: Any) -> Iterator[EmbeddingSettings]:
    for part, of_part in system_class(system).parts(settings).values():
        yield from _embeddings(part, of_part)
    wanted = getattr(settings, EMBEDDING, None)
    if wanted is not None and getattr(getattr(settings, "training", None), "initial", "") != "random":
        yield wanted


def _folder_name(settings: RunSettings, seed: int, graph: str) -> str:
    """Made of what differs from the defaults, so that a setting that is new in a later version does not change it."""
    usual = dict(items(RunSettings.of(settings.system).to_plain()))
    special = {path: value for path, value in items(settings.to_plain()) if path not in usual or usual[path] != value}
    content = json.dumps([settings.system, special, graph], sort_keys=True)
    return f"{settings.system}-seed-{seed}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
