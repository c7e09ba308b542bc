from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import Result

from hire.data.dataset import FewShotDataset
from hire.sampling.picture import describe_context
from tests.conftest import random_triples, write_layout

Run = Callable[..., Result]


def tsv(triples: list[tuple[str, str, str]]) -> str:
    return "".join("\t".join(triple) + "\n" for triple in triples)


def hire(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `hire` in a process of its own."""
    command = [sys.executable, "-m", "hire", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    code = "import sys, hire.cli; print([m for m in ('torch', 'numpy', 'pyarrow', 'rich') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    times = []
    for _ in range(3):
        start = _seconds_of_children()
        assert "Few-shot knowledge graph completion" in hire("--help").stdout
        times.append(_seconds_of_children() - start)
    assert min(times) < 0.3


def _seconds_of_children() -> float:
    """Processor time of processes that have ended: what else the machine does counts little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("command", ["stats", "verify", "build", "get", "export", "sample"])
def test_every_command_has_help_with_an_example(run: Run, command: str) -> None:
    result = run("data", command, "--help")
    assert result.exit_code == 0 and f"hire data {command} " in result.output


def test_stats(run: Run) -> None:
    result = run("data", "stats", "umls-one")
    assert result.exit_code == 0
    for expected in ("135", "location_of", "█", "5,340", "95.87%"):
        assert expected in result.output
    found = json.loads(run("data", "stats", "umls-one", "--json").stdout)
    assert found["shared_context"]["sharing_entities"] == 5340 and found["entities"] == 135


def test_stats_of_nell_one_within_ten_seconds(nell_one_directory: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = hire("data", "stats", nell_one_directory, env=os.environ | {"HIRE_CACHE": str(tmp_path)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10  # however busy the machine is
    for expected in ("39,234", "117,368", "26,129", "105,113", "189,635", "68,544", "20.69%"):
        assert expected in result.stdout


def test_build_then_look_at_it(run: Run, graph_file: Path, tmp_path: Path) -> None:
    result = run("data", "build", graph_file, "-o", tmp_path / "made")
    assert result.exit_code == 0, result.output
    for expected in ("background", "500 triples or more", "50 triples or fewer", "2 train, 1 dev and 1 test tasks"):
        assert expected in result.output
    assert run("data", "stats", tmp_path / "made").exit_code == 0
    assert "no problems" in run("data", "verify", tmp_path / "made").output
    assert run("data", "export", tmp_path / "made", "-o", tmp_path / "published").exit_code == 0
    assert "no problems" in run("data", "verify", tmp_path / "published").output
    sampled = run("data", "sample", tmp_path / "published", "--picture", tmp_path / "context.svg")
    assert "Episode 3" in sampled.output and (tmp_path / "context.svg").read_text().startswith("<svg")


def test_build_tells_programs_what_it_did(run: Run, graph_file: Path, tmp_path: Path) -> None:
    report = json.loads(run("data", "build", graph_file, "-o", tmp_path / "made", "--json").stdout)
    assert {row["name"]: row["role"] for row in report["relations"]}["many"] == "background"


def test_build_from_rdf_with_labels_and_types(run: Run, tmp_path: Path) -> None:
    lines = [f"<x:{h}> <x:{r}> <x:{t}> ." for h, r, t in random_triples()]
    lines += [f"<x:e{i}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <x:T{i % 2}> ." for i in range(60)]
    lines += ['<x:e1> <http://www.w3.org/2000/01/rdf-schema#label> "one"@en .', '<x:e1> <x:age> "7" .']
    (tmp_path / "graph.nt").write_text("\n".join(lines))
    result = run("data", "build", tmp_path / "graph.nt", "-o", tmp_path / "made")
    assert "literal objects" in result.output
    graph = FewShotDataset.open(tmp_path / "made").graph
    assert graph.label(graph.entities.id("x:e1")) == "one"
    assert graph.types is not None and sorted(graph.types.names) == ["x:T0", "x:T1"]


def test_build_with_files_of_labels_and_types(run: Run, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text('entity,label\ne1,"one, the first"\n')
    (tmp_path / "types.tsv").write_text("".join(f"e{i}\tt{i % 3}\n" for i in range(60)))
    options = ("--labels", tmp_path / "labels.csv", "--types", tmp_path / "types.tsv", "--candidates", "type")
    assert run("data", "build", graph_file, *options, "-o", tmp_path / "made").exit_code == 0
    graph = FewShotDataset.open(tmp_path / "made").graph
    assert graph.label(graph.entities.id("e1")) == "one, the first"


def test_build_twice_gives_the_same_bytes(run: Run, graph_file: Path, tmp_path: Path) -> None:
    for parent in ("one", "two"):
        assert run("data", "build", graph_file, "-o", tmp_path / parent / "made").exit_code == 0
    files = [
        {path.relative_to(tmp_path / parent): path.read_bytes() for path in (tmp_path / parent).rglob("*.*")}
        for parent in ("one", "two")
    ]
    assert files[0] == files[1] and len(files[0]) > 10


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\tb\n", "graph.tsv:1: expected 3 columns, found 2"),
        ("", "graph.tsv: is empty"),
        (b"a\tb\tc\n\xff\tb\tc\n", "graph.tsv:2: invalid UTF-8"),
        ("a\tb\tc\n", "0 of 1 relations have more than 50"),
        (None, "graph.tsv: no such file"),
    ],
)
def test_bad_input_ends_with_code_2_and_leaves_nothing(
    run: Run, tmp_path: Path, content: str | bytes | None, expected: str
) -> None:
    source = tmp_path / "graph.tsv"
    if content is not None:
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("data", "build", source, "-o", tmp_path / "made")
    assert result.exit_code == 2 and expected in result.stderr and "Traceback" not in result.output
    assert result.stderr.count("\n") >= 2  # what is wrong, and what to do
    assert {path.name for path in tmp_path.iterdir()} <= {"graph.tsv"}


def test_names_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    """No markup, emoji codes or escape sequences of the terminal, whatever a name contains."""
    triples = [(f"[/bold]:shark:{h}\x1b[31m", f"[/{r}", f"{t}]") for h, r, t in random_triples()]
    (tmp_path / "graph.tsv").write_text(tsv(triples))
    assert run("data", "build", tmp_path / "graph.tsv", "-o", tmp_path / "made").exit_code == 0
    result = run("data", "sample", tmp_path / "made", "--picture", tmp_path / "x.svg")
    assert result.exit_code == 0 and "[/bold]:shark:e" in result.output and "\x1b[31m" not in result.output
    ElementTree.fromstring((tmp_path / "x.svg").read_text())


def test_shared_is_by_entity_not_by_label(run: Run, tmp_path: Path) -> None:
    triples = [*random_triples(), ("x", "few", "y1"), ("z", "few", "y2"), ("x", "few", "y3"), ("z", "few", "y3")]
    (tmp_path / "graph.tsv").write_text(tsv(triples))
    (tmp_path / "labels.tsv").write_text("".join(f"y{i}\tthe same\n" for i in (1, 2, 3)))
    run("data", "build", tmp_path / "graph.tsv", "--labels", tmp_path / "labels.tsv", "-o", tmp_path / "made")
    dataset = FewShotDataset.open(tmp_path / "made")
    numbers = [dataset.graph.entities.id(name) for name in "xz"]
    context = describe_context(dataset, np.array([numbers]), np.array([dataset.task_relations[0]]))
    assert context["shared"] == [dataset.graph.entities.id("y3")]


def test_a_picture_does_not_replace_a_device(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.svg")
    result = run("data", "sample", "umls-one", "--picture", tmp_path / "pipe.svg")
    assert result.exit_code == 2 and (tmp_path / "pipe.svg").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_standard_output_on_a_full_disk() -> None:
    command = f"{sys.executable} -m hire data stats umls-one --json > /dev/full"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2 and "no space left" in result.stderr and "Traceback" not in result.stderr


def test_closed_standard_output_is_no_traceback() -> None:
    command = f"{sys.executable} -m hire data stats umls-one >&-"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in result.stderr


def test_labels_and_types_that_concern_nobody_are_noted(run: Run, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "types.tsv").write_text("nobody\tnothing\n")
    result = run("data", "build", graph_file, "--types", tmp_path / "types.tsv", "-o", tmp_path / "made", "--json")
    report = json.loads(result.stdout)
    assert any("none of its 1 types" in note["message"] for note in report["notes"])
    assert {row["candidates"] for row in report["relations"] if row["role"] == "test"} == {60}


def test_pages_of_an_endpoint_survive_another_build(run: Run, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / ".made.pages").mkdir()
    assert run("data", "build", graph_file, "-o", tmp_path / "made").exit_code == 0
    assert (tmp_path / ".made.pages").is_dir()


def test_names_of_files_may_be_any_bytes(run: Run, tmp_path: Path) -> None:
    source = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xffph.tsv")
    Path(source).write_text(tsv(random_triples()))
    made = os.fsdecode(os.fsencode(tmp_path) + b"/m\xffde")
    assert run("data", "build", source, "-o", made, "--json").exit_code == 0
    assert run("data", "stats", made).exit_code == 0
    assert FewShotDataset.open(Path(made)).name == "m\ufffdde"


def test_strict_takes_what_would_be_mended_for_an_error(run: Run, tmp_path: Path) -> None:
    triples = random_triples()
    (tmp_path / "graph.tsv").write_bytes(b"\xef\xbb\xbf" + tsv([*triples, triples[0]]).replace("\n", "\r\n").encode())
    result = run("data", "build", tmp_path / "graph.tsv", "-o", tmp_path / "made", "--strict")
    assert result.exit_code == 2 and not (tmp_path / "made").exists()
    for expected in (
        "graph.tsv:1: starts with a byte order mark",
        "has CRLF",
        f"graph.tsv:{len(triples) + 1}: 1 duplicate triple",
    ):
        assert expected in result.stderr
    result = run("data", "build", tmp_path / "graph.tsv", "-o", tmp_path / "made")
    assert result.exit_code == 0 and "duplicate triples" in result.output and "note:" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", "stats", "no-such-dataset"),
        ("data", "verify", "no-such-directory"),
        ("data", "get", "freebase"),
        ("data", "sample", "umls-one", "--shots", "99"),
        ("data", "sample", "umls-one", "--shots", "0"),
        ("data", "sample", "umls-one", "--episodes", "0"),
        ("data", "sample", "umls-one", "--episodes", "99999999999"),
        ("data", "sample", "umls-one", "--seed", "-1"),
        ("data", "build", "x.tsv", "-o", "out", "--seed", "-1"),
        ("data", "build", "x.tsv", "-o", "out", "--page-size", "0"),
        ("data", "build", "x.tsv", "-o", "file/out"),
        ("data", "build", "x.tsv", "-o", "out", "--split", "99999999999999999999:1:1"),
        ("data", "build", "http://127.0.0.1:1/sparql", "-o", "out", "--timeout", "inf"),
        ("data", "build", "x" * 5000, "-o", "out"),
        ("data", "build", "x.tsv", "-o", "o" * 5000),
        ("data", "stats", "s" * 5000),
        ("data", "build", "x.tsv", "-o", "out", "--type-pattern", "e{type}\udcff"),
        ("data", "sample", "umls-one", "--picture", "file"),
        ("data", "sample", "umls-one", "--picture", "file/x.svg"),
        ("data", "sample", "umls-one", "--picture", "."),
        ("data", "build", "x.tsv", "-o", ".", "--overwrite"),
        ("data", "build", "x.tsv", "-o", "out", "--split", "1:2"),
        ("data", "build", "x.tsv", "-o", "out", "--columns", "a,b"),
        ("data", "build", "x.parquet", "-o", "out"),
        ("data", "build", "x.tsv", "-o", "out", "--format", "nonsense"),
        ("data", "build", "http://127.0.0.1:1/sparql", "-o", "out", "--retries", "0"),
        ("data", "export", "umls-one", "-o", "file"),
        ("data", "nonsense"),
        ("nonsense",),
    ],
)
def test_wrong_arguments_end_with_code_2_and_a_word(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "x.tsv").write_text(tsv(random_triples()))
    result = run(*arguments)
    assert result.exit_code == 2 and result.stderr and "Traceback" not in result.output
    assert (tmp_path / "file").read_text() == "precious" and not (tmp_path / "out").exists()


def test_verify_lists_problems_and_ends_with_code_2(run: Run, tmp_path: Path) -> None:
    directory = write_layout(tmp_path / "layout", path_graph="a\tlinks\tz\nb\tlinks\tq\n")
    result = run("data", "verify", directory)
    assert result.exit_code == 2 and "2 problems" in result.output
    found = json.loads(run("data", "verify", directory, "--json").stdout)
    assert [(problem["line"], problem["message"]) for problem in found["problems"]] == [
        (1, "unknown entity 'z'"),
        (2, "unknown entity 'q'"),
    ]


def _large_graph(path: Path) -> Path:
    path.write_text("".join(f"a{i}\tr{i % 9}\tb{i * 7 % 100_003}\n" for i in range(400_000)))
    return path


def test_a_disk_that_runs_full_leaves_nothing(tmp_path: Path) -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    source = _large_graph(tmp_path / "graph.tsv")
    arguments = ("data", "build", source, "-o", tmp_path / "made", "--fewer-than", "1000000")
    result = hire(*arguments, preexec_fn=limit_files)
    assert result.returncode == 2 and "file too large" in result.stderr and "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["graph.tsv"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(tmp_path: Path, signal_number: int) -> None:
    """On a disk so slow that the signal comes while the files are written."""
    source = tmp_path / "graph.tsv"
    source.write_text(tsv(random_triples()))
    slowly = "import time, hire.data.dataset as d; f = d.save_array; d.save_array = lambda *a: (time.sleep(1), f(*a))"
    arguments = ["data", "build", str(source), "-o", str(tmp_path / "made")]
    # Whoever is started in the background of a script is started deaf to Ctrl-C.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{hears}; {slowly}; from hire.cli import main; main({arguments!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not any(path.name.startswith(".made.partial") for path in tmp_path.iterdir()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal_number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2 and "interrupted" in errors and "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["graph.tsv"]


def test_the_reader_of_our_output_may_leave_early() -> None:
    command = f"{sys.executable} -m hire data stats umls-one | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "umls-one" in result.stdout and result.stderr == ""
