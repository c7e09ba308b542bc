"""All that a run depends on besides its dataset: a system, its settings, and how relations are taught; presets."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from hire.errors import HireError
from hire.systems.base import Recipe
from hire.systems.registry import system_class
from hire.util.files import explain_os_errors
from hire.util.ranges import Count, Share
from hire.util.settings import Settings, changed, from_plain, items, shortened, to_plain

DEFAULT = "best"
PRESETS = ("best", "levels", "fast", "paper")
NOTHING = "none"  # TOML has no null


@dataclass(frozen=True)
class TeachingSettings(Settings):
    """Which entities are candidates of a relation that is taught."""

    max_candidates: Count = 20_000  # of more, those most like the references' tails
    type_similarity: Share = 0.5  # cosine of the profiles of two types from which on they are alike


@dataclass(frozen=True)
class RunSettings:
    """A system with its settings."""

    system: str
    settings: Any  # of the system's settings_type
    teaching: TeachingSettings = field(default_factory=TeachingSettings)

    @classmethod
    def of(cls, system: str, content: Mapping[str, Any] | None = None) -> RunSettings:
        """A system with its defaults, but for what is given as plain data."""
        given = dict(content or {})
        teaching = from_plain(TeachingSettings, given.pop("teaching", {}), "teaching")
        return cls(system, from_plain(system_class(system).settings_type, given), teaching)

    @classmethod
    def of_recipe(cls, system: str, recipe: Recipe) -> RunSettings:
        """A system with the settings of one of its recipes; one without recipes has its defaults in each."""
        recipes = system_class(system).recipes
        if recipes and recipe not in recipes:
            remedy = f"its recipes are {', '.join(recipes)}"
            raise HireError(f"the system {system!r} has no recipe {recipe!r}", remedy=remedy)
        found = recipes.get(recipe, {})
        return preset(found) if isinstance(found, str) else cls.of(system).changed(found)

    def changed(self, changes: Mapping[str, Any]) -> RunSettings:
        """The same with some settings changed, by their dotted paths."""
        found = self
        for path, value in changes.items():
            if path.partition(".")[0] == "teaching":
                found = replace(found, teaching=changed(found.teaching, path.partition(".")[2], value))
            else:
                found = replace(found, settings=changed(found.settings, path, value))
        return found

    def seeded(self, seed: int) -> RunSettings:
        """The same with another seed, wherever there is one."""
        seeds = [path for path, _ in items(self.settings) if path.rpartition(".")[2] == "seed"]
        return self.changed(dict.fromkeys(seeds, seed))

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"system": self.system, "settings": to_plain(self.settings), "teaching": to_plain(self.teaching)}

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> RunSettings:
        """What `to_plain` made plain."""
        if not isinstance(content["settings"], Mapping):
            raise HireError(f"the settings are {shortened(content['settings'])}, not a section", remedy="train again")
        return cls.of(content["system"], {**content["settings"], "teaching": content["teaching"]})


def preset(name: str = DEFAULT) -> RunSettings:
    """The settings of a preset."""
    return _parse(_preset(name), f"preset {name}")


def _preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, 1)
        remedy = f"did you mean {near[0]!r}? " if near else ""
        raise HireError(f"unknown preset {name!r}", remedy=f"{remedy}the presets are {', '.join(PRESETS)}")
    return tomllib.loads((files("hire.training") / "presets" / f"{name}.toml").read_text("utf-8"))


def read_settings(path: Path) -> RunSettings:
    """The settings of a TOML file in the form of a preset; `preset = "fast"` in it gives what it leaves out."""
    with explain_os_errors(path):
        text = path.read_bytes()
    try:
        content = tomllib.loads(text.decode())
    except UnicodeDecodeError as error:
        raise HireError("is not UTF-8", file=path, remedy="save the file with UTF-8 encoding") from error
    except (ValueError, RecursionError) as error:
        raise HireError(
            f"is not valid TOML: {error}", file=path, remedy="see docs/training.md for an example"
        ) from error
    base = content.pop("preset", None)
    try:
        if base is None:
            return _parse(content, str(path))
        return _parse(_merged(_preset(str(base)), content), str(path))
    except HireError as error:
        problem = error.problems[0]
        raise HireError(problem.message, file=path, line=problem.line, remedy=problem.remedy) from error


def _parse(content: dict[str, Any], source: str) -> RunSettings:
    given = {name: value for name, value in content.items() if name not in ("description", "system")}
    if not isinstance(content.get("system"), str):
        raise HireError(f"{source} names no system", remedy='begin with system = "hire", or preset = "fast"')
    return RunSettings.of(content["system"], _without_words(given))


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, section by section; another system brings its own defaults."""
    if "system" in above and above["system"] != below.get("system"):
        return dict(above)
    found = dict(below)
    for name, value in above.items():
        before = found.get(name)
        found[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def _without_words(content: Any) -> Any:
    """Plain data where the word for nothing has become None."""
    if isinstance(content, dict):
        return {name: _without_words(value) for name, value in content.items()}
    return None if content == NOTHING else content
