"""What MkDocs cannot do alone: pages that are kept outside docs/, links between them, and the help of each command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hire.cli import hire

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ["CONTRIBUTING.md", "CHANGELOG.md", *(f"results/{page.name}" for page in (ROOT / "results").glob("*.md"))]
COMMANDS = "reference/commands.md"
LINK = re.compile(r"(?<=]\()(?!\w+:|#|/)[^)\s]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ and that of the commands."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    return LINK.sub(lambda found: site_link(uri, found[0]), markdown)


def site_link(page: str, link: str) -> str:
    """A link on a page, as the site has it: there docs/ is the top, and the home page stands for the README."""
    file = page if page in OUTSIDE else f"docs/{page}"
    target, hash_, anchor = link.partition("#")
    place = normpath(f"{dirname(file)}/{target}") if dirname(file) else normpath(target)
    place = "index.md" if place == "README.md" else place.removeprefix("docs/")
    return relpath(place, dirname(page) or ".") + hash_ + anchor


def commands_page() -> str:
    """Every command with its help."""
    parts = ["# Command line\n"]
    for name, command in _commands("hire", hire):
        context = click.Context(command, info_name=name, max_content_width=100)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for own, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(f"{name} {own}", inner)
