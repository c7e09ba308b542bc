"""All few-shot systems by name: those of this package, and those that other packages bring.

To add a system here, write it under `hire/systems/` and name it in BUILT_IN. Another package registers its own with an
entry point of the group `hire.systems`:

    [project.entry-points."hire.systems"]
    my-system = "my_package.my_module:MySystem"
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from hire.errors import HireError
from hire.systems.base import FewShotSystem

GROUP = "hire.systems"
NO_SETTINGS: dict[str, Any] = {"settings": {}, "about_settings": {}, "allowed": {}}
BUILT_IN = {
    "hire": "hire.systems.hire.model:Hire",
    "path": "hire.systems.path.model:PathModel",
    "ensemble": "hire.systems.ensemble:Ensemble",
    "gmatching": "hire.systems.gmatching:GMatching",
    "metar": "hire.systems.metar:MetaR",
    "fsrl": "hire.systems.fsrl:Fsrl",
    "faan": "hire.systems.faan:Faan",
    "gana": "hire.systems.gana:Gana",
    "cian": "hire.systems.cian:Cian",
    "transe": "hire.systems.conventional:TransE",
    "transh": "hire.systems.conventional:TransH",
    "distmult": "hire.systems.conventional:DistMult",
    "complex": "hire.systems.conventional:ComplEx",
    "complex-n3": "hire.systems.conventional:ComplExN3",
    "mean-translation": "hire.systems.mean_translation:MeanTranslation",
    "nearest-pair": "hire.systems.nearest_pair:NearestPair",
    "any-link": "hire.systems.any_link:AnyLink",
    "popularity": "hire.systems.popularity:Popularity",
}


def system_names() -> list[str]:
    """The names of all systems, those of this package first."""
    return [*BUILT_IN, *sorted(set(_plug_ins()) - set(BUILT_IN))]


def system_class(name: str) -> type[FewShotSystem]:
    """The system of a name."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: Any = getattr(import_module(module), attribute)
        return _checked(name, found)
    if name not in _plug_ins():
        near = get_close_matches(name, system_names(), 1)
        remedy = f"did you mean {near[0]!r}? " if near else ""
        remedy += f"the systems are {', '.join(system_names())}; for any other, install its package"
        raise HireError(f"unknown system {name!r}", remedy=remedy)
    entry = _plug_ins()[name]
    try:
        found = entry.load()
    except Exception as error:  # whatever a foreign package does when it is imported
        raise HireError(
            f"the system {name!r} of {entry.value!r} cannot be loaded ({error})", remedy="mend or uninstall its package"
        ) from error
    return _checked(name, found)


def _checked(name: str, found: Any) -> type[FewShotSystem]:
    if not isinstance(found, type) or not issubclass(found, FewShotSystem):
        raise HireError(f"{found!r} is no FewShotSystem", remedy="see CONTRIBUTING.md for what a system is")
    if getattr(found, "name", None) != name or not hasattr(found, "settings_type"):
        raise HireError(
            f"{found.__name__} is registered as {name!r}, but its name is {getattr(found, 'name', None)!r}",
            remedy="give it the same name, and settings_type",
        )
    return found


@cache
def _plug_ins() -> dict[str, Any]:
    """Entry points of other packages by name; one of ours cannot be replaced."""
    found: dict[str, Any] = {}
    for entry in entry_points(group=GROUP):
        before = found.get(entry.name)
        if before is not None and before.value != entry.value:
            raise HireError(
                f"the system {entry.name!r} is registered twice, as {before.value!r} and as {entry.value!r}",
                remedy="uninstall one of the packages",
            )
        if entry.name not in BUILT_IN:
            found[entry.name] = entry
    return found


def package_of(name: str) -> str | None:
    """The package and version that another package's system comes from, None for one of ours."""
    entry = None if name in BUILT_IN else _plug_ins().get(name)
    return None if entry is None or entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def describe(name: str) -> dict[str, Any]:
    """A system as plain data: what it is, its paper, what it can do, and its settings with their defaults.

    If a system of another package cannot be loaded, its summary says why, so that the others can still be listed.
    """
    from hire.util.settings import allowed, comments, items

    try:
        system = system_class(name)
    except HireError as error:
        if name not in _plug_ins():
            raise
        summary = error.problems[0].message
        return {"name": name, "summary": summary, "paper": "", "capabilities": [], "built_in": False} | NO_SETTINGS
    return {
        "name": name,
        "summary": system.summary,
        "paper": system.paper,
        "capabilities": sorted(system.capabilities),
        "built_in": name in BUILT_IN,
        "settings": {path: _plain(value) for path, value in items(system.settings_type())},
        "about_settings": comments(system.settings_type()),
        "allowed": allowed(system.settings_type()),
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
