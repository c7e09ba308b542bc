"""Inputs that are small on disk and endless in memory: refused within seconds and bounded memory."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hire.data.sources.reading import SourceOptions, read_lines, read_sources
from hire.errors import HireError

MIB = 1 << 20
COPIES = 40  # of a mebibyte; the limits are at 16
XML = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
QUOTED = b'<http://a> <http://b> "'

ENDLESS = {
    "blank.tsv": (b"", b"\n"),
    "blank.csv": (b"a,b,c\n", b"\n"),
    "blank.nt": (b"", b"\n"),
    "blank.ttl": (b"", b"\n"),
    "blank.rdf": (XML, b"\n"),
    "line.tsv": (b"", b"a"),
    "line.csv": (b"a,b,c\n", b"a"),
    "line.nt": (QUOTED, b"a"),
    "line.nq": (QUOTED, b"a"),
    "line.ttl": (QUOTED, b"a"),
    "line.trig": (QUOTED, b"a"),
    "text.rdf": (XML + b"<rdf:Description rdf:about='http://a'><e:p>", b"a"),
    "attribute.rdf": (XML + b"<rdf:Description rdf:about='http://a", b"a"),
    "comment.rdf": (XML + b"<!-- ", b"a"),
}


def compressed(path: Path, first: bytes, rest: bytes, copies: int = COPIES) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(first)
        for _ in range(copies):
            stream.write(rest * MIB)
    return path


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_refused(name: str, tmp_path: Path) -> None:
    path = compressed(tmp_path / f"{name}.gz", *ENDLESS[name])
    assert path.stat().st_size < MIB
    with pytest.raises(HireError) as caught:
        read_sources([str(path)], SourceOptions(), tmp_path)
    (problem,) = caught.value.problems
    assert (
        problem.file == str(path)
        and problem.remedy
        and ("blank lines" in problem.message or "16 MiB" in problem.message)
    )


@pytest.mark.parametrize("rest", [b"\n", b"a"])
def test_heads_that_never_end_are_refused(rest: bytes, tmp_path: Path) -> None:
    with pytest.raises(HireError):
        list(read_lines(compressed(tmp_path / "heads.txt.gz", b"", rest)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.rdf", XML + b"<rdf:Description><e:p>" * 50_000 + b"</e:p></rdf:Description>" * 50_000 + b"</rdf:RDF>"),
        ("open.rdf", XML + b"<rdf:Description><e:p>" * 50_000),
        ("deep.ttl", b"<http://a> <http://b> " + b"[ <http://b> " * 100_000 + b"]" * 100_000 + b" ."),
    ],
)
def test_deep_nesting_is_refused(name: str, text: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(HireError) as caught:
        read_sources([str(tmp_path / name)], SourceOptions(), tmp_path)
    assert caught.value.problems[0].remedy


def test_memory_stays_bounded(tmp_path: Path) -> None:
    path = compressed(tmp_path / "line.tsv.gz", b"", b"a", 300)
    code = (
        "import re, sys; from pathlib import Path; from hire.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(re.search('VmHWM: *\\t* *([0-9]+)', Path('/proc/self/status').read_text())[1])"
    )
    command = [sys.executable, "-c", code, "data", "build", str(path), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "16 MiB" in done.stderr and "Traceback" not in done.stderr
    assert int(done.stdout) < 400 * 1024  # kilobytes; the file is 300 MiB


@pytest.mark.parametrize("arguments", [("systems", "popularity"), ("data", "stats", "umls-one", "--json")])
def test_a_reader_that_leaves_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "hire", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = f"exec {sys.executable} -m hire --help {closed}"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 0


def test_a_limit_on_memory_is_told(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _kind: (500 * MIB, resource.RLIM_INFINITY))
    found = run("systems")
    assert found.exit_code == 2 and "500 MiB" in found.output and "ulimit" in found.output
    assert run("--help").exit_code == 0
