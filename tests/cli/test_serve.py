from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result

from hire.inference.fit import fit
from tests.service.conftest import EXAMPLES, references
from tests.support import SECONDS, request, serving, small_settings


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "umls"
    cache = str(tmp_path_factory.getbasetemp() / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIRE_CACHE", cache)
        fit("umls-one", run, small_settings("hire", training__steps=1))
    return run


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_what_is_taught_survives_its_end(trained_run: Path, end: signal.Signals) -> None:
    state = trained_run / "relations.sqlite"
    before = 0 if not state.exists() else 1
    with serving(trained_run) as (process, address):
        found = request(f"{address}/v1/relations")["relations"]
        assert len(found) == before
        if not found:
            request(f"{address}/v1/relations", {"name": "kind", "references": references()})
        else:
            assert [(pair["head"]["id"], pair["tail"]["id"]) for pair in found[0]["references"]] == EXAMPLES
        process.send_signal(end)
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and "Traceback" not in output
    assert "Stopped; 1 relation saved in" in output
    assert state.exists() and not state.with_name("relations.sqlite-wal").exists()


def test_a_port_in_use_is_told(run: Callable[..., Result], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = run("serve", tmp_path, "--port", str(other.getsockname()[1]))
    assert found.exit_code == 2 and "cannot listen on port" in found.output and "--port" in found.output


def test_others_are_let_in_only_on_purpose(run: Callable[..., Result], tmp_path: Path) -> None:
    found = run("serve", tmp_path, "--host", "0.0.0.0", "--port", "0")
    assert found.exit_code == 2 and "without a token" in found.output and "--open-to-all" in found.output
    for options in (("--token", "secret"), ("--open-to-all",)):
        found = run("serve", tmp_path / "nothing", "--host", "0.0.0.0", "--port", "0", *options)
        assert found.exit_code == 2 and "without a token" not in found.output and "nothing" in found.output
    for token in ("", " ", "é", "a\nb"):
        found = run("serve", tmp_path, "--token", token)
        assert found.exit_code == 2 and "token" in found.output


def test_what_it_needs_is_told(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("hire.cli.serve"), "find_spec", lambda name: None)
    found = run("serve", tmp_path)
    assert found.exit_code == 2 and "[serve]" in found.output


def test_help_does_not_import_what_is_heavy() -> None:
    code = "import sys, hire.cli; assert not {'torch', 'fastapi', 'uvicorn', 'starlette'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=SECONDS)
    assert done.returncode == 0
