"""The script that installs Chromium, with machines made of shell scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "browser.sh"
ROOT, USER = "echo 0", "echo 1000"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is all of PATH; without a browser at first."""
    for name in ("sh", "timeout", "touch", "chmod"):
        place = shutil.which(name)
        assert place
        (tmp_path / name).symlink_to(place)
    return tmp_path


def add_command(machine: Path, name: str, script: str) -> None:
    (machine / name).write_text(f"#!/bin/sh\n{script}\n")
    (machine / name).chmod(0o755)


def run_script(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine), **environment}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=True)


def add_apt_get(machine: Path, *installed: str, exit_code: int = 0) -> Path:
    """An apt-get that notes its arguments and makes some commands."""
    notes = machine / "notes"
    makes = "; ".join(f"touch {machine}/{name}; chmod +x {machine}/{name}" for name in installed) or ":"
    script = (
        f'echo "$@" >> {notes}; case "$*" in *install*) {makes}; echo "no such package" >&2; exit {exit_code};; esac'
    )
    add_command(machine, "apt-get", script)
    return notes


@pytest.mark.parametrize("browser", ["chromium", "chromium-browser", "google-chrome"])
def test_nothing_is_installed_where_a_browser_is_present(machine: Path, browser: str) -> None:
    notes = add_apt_get(machine)
    add_command(machine, "id", ROOT)
    add_command(machine, browser, "")
    add_command(machine, "chromedriver", "")
    done = run_script(machine)
    assert not notes.exists() and done.stdout == done.stderr == ""


def test_a_browser_named_by_the_environment_counts(machine: Path) -> None:
    notes = add_apt_get(machine)
    add_command(machine, "chromedriver", "")
    run_script(machine, CHROME="/opt/browser")
    assert not notes.exists()


def test_root_installs_what_is_missing(machine: Path) -> None:
    notes = add_apt_get(machine, "chromium", "chromedriver")
    add_command(machine, "id", ROOT)
    done = run_script(machine)
    update, install = notes.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends chromium chromium-driver")
    assert "Installing Chromium" in done.stdout and "skipped" not in done.stderr


def test_others_are_told_what_to_install(machine: Path) -> None:
    notes = add_apt_get(machine)
    add_command(machine, "id", USER)
    done = run_script(machine)
    assert not notes.exists() and "will be skipped" in done.stderr and "only root" in done.stderr


def test_without_apt_get_the_tests_are_skipped(machine: Path) -> None:
    add_command(machine, "id", ROOT)
    assert "there is no apt-get" in run_script(machine).stderr


def test_an_installation_that_fails_is_reported_but_is_no_error(machine: Path) -> None:
    add_apt_get(machine, exit_code=100)
    add_command(machine, "id", ROOT)
    done = run_script(machine)
    assert "no such package" in done.stderr and "could not install" in done.stderr


def test_an_installation_without_a_driver_is_reported_but_is_no_error(machine: Path) -> None:
    add_apt_get(machine, "chromium")
    add_command(machine, "id", ROOT)
    assert "still missing" in run_script(machine).stderr
