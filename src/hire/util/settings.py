"""Settings as frozen dataclasses: to plain data and back, changed by a dotted path, every mistake named.

A number's type has its range (see `hire.util.ranges`). It is checked wherever a setting comes from: a command, a file,
or Python, if the class is a `Settings`.

A settings class may have sections, fields that are such dataclasses themselves. A class whose paths are not its fields
says in `routes(path)` which paths of its own a given one stands for, and in `from_plain` how it is read.
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hire.errors import HireError
from hire.util.ranges import Range

S = TypeVar("S")

MAX_SHOWN = 80  # characters of a wrong value
_KNOWN_HINTS: dict[type[Any], dict[str, Any]] = {}
COMMENT = re.compile(r"^    (\w+): [^#\n]*?  # (.+)$", re.MULTILINE)  # beside the field of a dataclass


class Settings:
    """The base of settings classes: values are checked whenever one is made."""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            if _checkable(hint):
                _typed(hint, getattr(self, name), name)
        conflict = self.conflict()
        if conflict is not None:
            raise HireError(conflict, remedy="change one of these settings")

    def conflict(self) -> str | None:
        """What is wrong with settings that are right each by itself; None if nothing is."""
        return None


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a class's fields, with their ranges."""
    if kind not in _KNOWN_HINTS:
        _KNOWN_HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _KNOWN_HINTS[kind]


def _checkable(hint: Any) -> bool:
    """Whether a value of a type can be checked; a section has checked itself."""
    return hint is not Any and get_origin(hint) is not Mapping and not is_dataclass(hint)


def to_plain(settings: Any) -> Any:
    """Settings as plain data for JSON."""
    if is_dataclass(settings):
        return {field.name: to_plain(getattr(settings, field.name)) for field in fields(settings)}
    if isinstance(settings, Mapping):
        return {name: to_plain(value) for name, value in settings.items()}
    return [to_plain(part) for part in settings] if isinstance(settings, list | tuple) else settings


def from_plain(kind: type[S], content: Any, where: str = "") -> S:
    """Settings of a class from plain data; what is not given has its default, what is unknown is an error."""
    if not isinstance(content, Mapping):
        raise HireError(f"the setting {where!r} is a section, not {shortened(content)}", remedy=f"set {where}.NAME")
    read = getattr(kind, "from_plain", None)
    if read is not None:
        found: S = read(content, where)
        return found
    hints = _hints(kind)
    given = {}
    for name, value in content.items():
        path = f"{where}.{name}" if where else str(name)
        if name not in hints:
            raise unknown(path, [f"{where}.{known}" if where else known for known in hints])
        given[name] = _typed(hints[name], value, path)
    return kind(**given)


def _typed(hint: Any, value: Any, path: str) -> Any:
    """A value of a type, converted where nothing is lost."""
    if is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else from_plain(hint, value, path)
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for option in options:
        fits, found = _as(option, value)
        if fits:
            return found
    raise HireError(f"the setting {path!r} cannot be {shortened(value)}", remedy=f"give {described(hint)}")


def shortened(value: Any) -> str:
    """A value in a message, however large it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or endless nesting
        return f"this {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _as(hint: Any, value: Any) -> tuple[bool, Any]:
    origin = get_origin(hint)
    if hint in (None, NoneType):
        return value is None, None
    if origin is Annotated:
        kind, *ranges = get_args(hint)
        fits, found = _as(kind, value)
        return fits and all(found in range_ for range_ in ranges if isinstance(range_, Range)), found
    if origin is Literal:
        return isinstance(value, str | int) and value in get_args(hint), value
    if origin is tuple:
        parts = value if isinstance(value, list | tuple) else [value]
        items_ = [_as(get_args(hint)[0], part) for part in parts]
        return bool(items_) and all(fits for fits, _ in items_), tuple(part for _, part in items_)
    if hint is float:
        return _as_float(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(hint, type) and isinstance(value, hint), value


def _as_float(value: Any) -> tuple[bool, Any]:
    """A finite number; nothing is computed with any other."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False, value
    try:
        found = float(value)
    except OverflowError:
        return False, value
    return math.isfinite(found), found


def described(hint: Any) -> str:
    """What a setting of a type may be, in words."""
    if get_origin(hint) is Annotated:
        kind, *ranges = get_args(hint)
        return " ".join([described(kind), *map(str, ranges)])
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(described(option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list, each {described(get_args(hint)[0])}"
    names = {NoneType: "none", bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(hint, str(getattr(hint, "__name__", hint)))


def allowed(settings: Any, prefix: str = "") -> dict[str, str]:
    """What each setting may be, by its dotted path."""
    if isinstance(settings, Mapping):
        parts = [(str(name), value, None) for name, value in settings.items()]
    elif is_dataclass(settings):
        hints = _hints(type(settings))
        parts = [(field.name, getattr(settings, field.name), hints[field.name]) for field in fields(settings)]
    else:
        return {}
    found: dict[str, str] = {}
    for name, value, hint in parts:
        path = f"{prefix}.{name}" if prefix else name
        if is_dataclass(value) or isinstance(value, Mapping):
            found |= allowed(value, path)
        else:
            found[path] = described(hint)
    return found


def changed(settings: S, path: str, value: Any) -> S:
    """The same settings with one of them changed, by its dotted path."""
    parts = path.split(".")
    routes = getattr(settings, "routes", None)
    targets = [parts] if routes is None else routes(parts)
    if not targets:
        raise unknown(path, known_paths(settings))
    for target in targets:
        settings = _changed(settings, target, value, path, settings)
    return settings


def _changed(settings: Any, parts: Sequence[str], value: Any, path: str, whole: Any) -> Any:
    name, *rest = parts
    if isinstance(settings, Mapping):
        if name not in settings:
            raise unknown(path, known_paths(whole))
        return {**settings, name: _changed(settings[name], rest, value, path, whole) if rest else value}
    if not is_dataclass(settings) or name not in (known := _hints(type(settings))):
        raise unknown(path, known_paths(whole))
    before = getattr(settings, name)
    if not rest:
        return replace(settings, **{name: _typed(known[name], value, path)})  # type: ignore[type-var]
    return replace(settings, **{name: _changed(before, rest, value, path, whole)})  # type: ignore[type-var]


def known_paths(settings: Any) -> list[str]:
    """The dotted paths by which settings can be changed, the shortest there are."""
    short = getattr(settings, "short_paths", None)
    return paths(settings) if short is None else short()


def paths(settings: Any, prefix: str = "") -> list[str]:
    """The dotted paths of all settings."""
    return [path for path, _ in items(settings, prefix)]


def items(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All settings by their dotted paths."""
    if is_dataclass(settings):
        parts = [(field.name, getattr(settings, field.name)) for field in fields(settings)]
    elif isinstance(settings, Mapping):
        parts = list(settings.items())
    else:
        yield prefix, settings
        return
    for name, value in parts:
        yield from items(value, f"{prefix}.{name}" if prefix else name)


def comments(settings: Any, prefix: str = "") -> dict[str, str]:
    """What the source says beside each setting, by its dotted path; nothing where it says nothing."""
    found: dict[str, str] = {}
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            found |= comments(value, f"{prefix}.{name}" if prefix else name)
    if not is_dataclass(settings):
        return found
    own = dict(COMMENT.findall(_source(type(settings))))
    for field in fields(settings):
        path = f"{prefix}.{field.name}" if prefix else field.name
        value = getattr(settings, field.name)
        if is_dataclass(value) or isinstance(value, Mapping):
            found |= comments(value, path)
        else:
            found[path] = own.get(field.name, "")
    return found


def _source(kind: type[Any]) -> str:
    """The source of a settings class, after that of those it inherits from."""
    try:
        return "\n".join(inspect.getsource(of) for of in reversed(kind.__mro__) if is_dataclass(of))
    except (OSError, TypeError):  # a package without its source
        return ""


def unknown(path: str, known: Sequence[str]) -> HireError:
    """The error for a setting that does not exist; it suggests the nearest that does."""
    last = path.rpartition(".")[2]
    near = get_close_matches(path, known, 3) or [name for name in known if name.rpartition(".")[2] == last][:3]
    if not near:
        near = [name for name in known if get_close_matches(last, [name.rpartition(".")[2]], 1)][:3]
    remedy = f"did you mean {' or '.join(near)}?" if near else "hire systems lists all settings"
    return HireError(f"unknown setting {path!r}", remedy=remedy)


def parse_assignment(text: str) -> tuple[str, Any]:
    """The path and the value of `training.steps=200`; values are written as in TOML, plain text without quotes."""
    path, sign, written = text.partition("=")
    if not sign or not path.strip():
        raise HireError(f"{text!r} does not set anything", remedy="write it as in training.steps=200")
    written = written.strip()
    if written.lower() in ("none", "null"):
        return path.strip(), None
    try:
        return path.strip(), tomllib.loads(f"value = {written}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return path.strip(), written
