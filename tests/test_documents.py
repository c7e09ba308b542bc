"""What the documents show is true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import pkgutil
import re
import runpy
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from hire.cli import hire as command_line
from hire.errors import HireError
from hire.training.settings import DEFAULT, RunSettings, preset, read_settings
from hire.util.settings import parse_assignment
from tests.support import small_settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
LINKING = [*DOCUMENTS, ROOT / "CHANGELOG.md", *sorted((ROOT / "results").glob("*.md"))]
TO_BE_WRITTEN = ("src/hire/systems/shared_neighbors.py", "tests/systems/test_shared_neighbors.py")  # as an example
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(document: Path, *languages: str) -> list[str]:
    """The blocks of code in some languages, in order."""
    return [code for language, code in BLOCK.findall(document.read_text("utf-8")) if language in languages]


def shown_commands(document: Path) -> list[list[str]]:
    """The arguments of each `hire ...` in a block of commands, also where torchrun starts it."""
    lines = "".join(blocks(document, "", "sh", "bash")).replace("\\\n", " ").splitlines()
    lines = [re.sub(r"^torchrun .*? -m hire ", "hire ", line) for line in lines]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("hire ")]
    return [words[1:] for words in found]


def mentioned_commands(document: Path) -> list[list[str]]:
    """The arguments of each `hire ...` in the text."""
    text = BLOCK.sub("", document.read_text("utf-8"))
    return [shlex.split(span)[1:] for span in re.findall(r"`(hire [^`]*)`", text)]


def check_command(words: list[str], *, whole: bool) -> None:
    """Fail if there is no such command or option, or if a whole command line lacks something required."""
    command: click.Command = command_line
    while isinstance(command, click.Group) and words:
        assert words[0] in command.commands, f"there is no command hire {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    context = click.Context(command, info_name="hire")
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert not left, f"too many arguments: {left}"
    for parameter in command.params:
        value = given.get(str(parameter.name))
        missing = value is None or type(value).__name__ == "Sentinel"  # of an argument, in newer versions of click
        if not missing and isinstance(parameter.type, click.Choice | click.types.IntParamType):
            parameter.type_cast_value(context, value)
        assert not (whole and parameter.required and missing), f"{parameter.name} is missing"
    if command.name == "train":
        check_settings(given)


def check_settings(given: Mapping[str, Any]) -> None:
    """Fail if a command line of `hire train` names a preset, a system or a setting that does not exist."""
    system, name = given.get("system"), given.get("preset_name")
    if system is not None and (ROOT / "examples" / system).is_dir():
        return  # a package of its own, with tests of its own
    settings = RunSettings.of(system) if system else preset(name or DEFAULT)
    settings.changed(dict(map(parse_assignment, given.get("assignments") or ())))


def test_every_document_is_checked() -> None:
    with_python = {document.name for document in DOCUMENTS if blocks(document, "python")}
    assert {"README.md", "index.md", "predicting.md"} <= with_python
    assert sum(len(shown_commands(document)) for document in DOCUMENTS) > 20


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")], ids=lambda path: path.name)
def test_the_python_of_a_document_runs(
    document: Path, tmp_path: Path, umls_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(blocks(document, "python"))
    monkeypatch.setattr("hire.training.pipeline.preset", lambda: small_settings("ensemble"))
    monkeypatch.chdir(tmp_path)
    if "hire.fit(" not in code:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "umls").symlink_to(umls_run)
    (tmp_path / "shown.py").write_text(code, "utf-8")
    runpy.run_path("shown.py", run_name="shown")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_commands_of_a_document_exist(document: Path) -> None:
    for words in shown_commands(document):
        check_command(words, whole=True)
    for words in mentioned_commands(document):
        check_command(words, whole=False)


def options(command: click.Command) -> set[str]:
    """All options of a command and of those below it."""
    own = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    return own.union(*map(options, getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_options_that_a_document_mentions_exist(document: Path) -> None:
    text = BLOCK.sub("", document.read_text("utf-8"))
    mentioned = {name for span in re.findall(r"`([^`]+)`", text) for name in re.findall(r"(?<!\S)--[\w-]+", span)}
    assert mentioned <= options(command_line)


@pytest.mark.parametrize(
    "line",
    [
        "trian umls-one -o run",
        "train umls-one",
        "train umls-one -o run --stepz 3",
        "train umls-one -o run --preset nonsense",
        "train umls-one -o run --set model.nonsense=3",
        "evaluate run --split nonsense",
        "evaluate run another",
        "reproduce nonsense",
        "reproduce",
        "compare umls-one --budget",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    with pytest.raises((AssertionError, click.UsageError, HireError)):
        check_command(line.split(), whole=True)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_settings_files_of_a_document_are_valid(document: Path, tmp_path: Path) -> None:
    for content in blocks(document, "toml"):
        if re.match(r"(preset|system) = ", content):
            (tmp_path / "settings.toml").write_text(content, "utf-8")
            read_settings(tmp_path / "settings.toml")


@pytest.mark.parametrize("document", LINKING, ids=lambda path: path.name)
def test_the_links_of_a_document_lead_to_files(document: Path) -> None:
    links = re.findall(r"]\((?!\w+:|#)([^)#\s]+)", document.read_text("utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_code_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text("utf-8")
    for name in re.findall(r"`(hire(?:\.\w+)+)`", text):
        pkgutil.resolve_name(name)
    files = [name for name in re.findall(r"`([\w/-]+\.py)`", text) if name not in TO_BE_WRITTEN]
    assert not [name for name in files if not (ROOT / name).exists()]
