"""What is fuzzed: each target takes a source of random numbers, makes one case of it, and may raise HireError only."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa

from hire.cli import hire as command
from hire.data.check import check_arrays
from hire.data.dataset import FewShotDataset
from hire.data.published.checksums import KnownDataset, KnownFile
from hire.data.published.read import read_published
from hire.data.sources import sparql
from hire.data.sources.columns import TripleTable
from hire.data.sources.download import unpack
from hire.data.sources.rdf import collect
from hire.data.sources.reading import SourceOptions, read_examples, read_lines, read_names, read_sources
from hire.errors import HireError
from hire.evaluation.calibration import calibrations_in
from hire.training.needs import check_training
from hire.training.run import CALIBRATION, CONFIG, MODEL, load_system, read_calibration, read_config, read_run_settings
from hire.training.schema import check_config
from hire.training.settings import RunSettings, read_settings
from hire.util.files import open_array
from hire.util.settings import parse_assignment
from hire.util.tensors import load_tensors
from tests.conftest import write_layout
from tests.faults.mutate import NUMBERS_AS_TEXT, VALUES, mutated, mutated_json

Target = Callable[[Random], object]
GZIP = b"\x1f\x8b"
TOML = b'system = "hire"\n[training]\nsteps = 5\nshots = [1, 3]\n[model]\nmargin = 1.5\n'

XML = (
    b'<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
    b'<rdf:Description rdf:about="http://a"><e:p rdf:resource="http://b"/><e:q>text</e:q></rdf:Description></rdf:RDF>'
)
SOURCES = {
    "graph.tsv": b"head\trelation\ttail\na\tr\tb\nb\tr\tc\n\nc\ts\ta\n",
    "graph.csv": b'head,relation,tail\na,r,"b ""c"""\nb,r,"c, d"\n',
    "graph.nt": b'<http://a> <http://r> <http://b> .\n_:x <http://r> "text"@en .\n# end\n',
    "graph.nq": b"<http://a> <http://r> <http://b> <http://g> .\n",
    "graph.ttl": b'@prefix e: <http://e/> .\ne:a e:r e:b, [ e:s (e:c "x"@en 1.5 true) ] ; a e:T .\n',
    "graph.trig": b"@prefix e: <http://e/> .\ne:g { e:a e:r e:b . <<e:a e:r e:b>> e:s 3 }\n",
    "graph.rdf": XML,
}
LINE_BREAK = b'head,relation,tail\nb,r,"c\nd"\n'
ARCHIVED = b"a\tb\tc\n" * 20
LAYOUT = ("path_graph", "train_tasks.json", "dev_tasks.json", "rel2candidates.json", "e1rel_e2.json", "ent2ids")
RESULTS = {
    "head": {"vars": ["s", "p", "o"]},
    "results": {
        "bindings": [
            {
                "s": {"type": "uri", "value": "http://a"},
                "p": {"type": "uri", "value": "http://r"},
                "o": {"type": "literal", "value": "x", "xml:lang": "en"},
            },
            {part: {"type": "uri", "value": f"http://{part}"} for part in "spo"},
        ]
    },
}
OPTIONS = {
    "train": (
        "--steps",
        "--shots",
        "--seed",
        "--max-minutes",
        "--threads",
        "--set",
        "--preset",
        "--system",
        "--recipe",
    ),
    "pretrain": ("--dimension", "--steps", "--seed", "--model"),
    "evaluate": ("--shots", "--draws", "--seed", "--split", "--candidates"),
    "predict": ("-k", "--threshold", "--format", "--prefix"),
    "explain": ("--most",),
    "calibrate": ("--shots", "--draws", "--candidates"),
    "serve": ("--port", "--threads", "--timeout", "--host", "--token"),
    "compare": ("--shots", "--seeds", "--draws", "--budget", "--systems", "--recipe"),
    "demo": ("--steps", "--path-steps", "--seed"),
    "data build": ("--columns", "--page-size", "--timeout", "--retries", "--more-than", "--split", "--seed"),
    "data sample": ("--shots", "--episodes", "--seed"),
}
ASSIGNMENTS = (
    *("training.steps", "training.shots", "model.dimension", "model.margin", "training.seed", "optimizer.ema"),
    *(
        "training.shares.train",
        "model.context_weight",
        "hire.model.dimension",
        "path.weight",
        "teaching.max_candidates",
    ),
    *("members", "members.hire", "training", "evidence.sample", "selection.patience", "embedding.model", "x", ""),
)


class Reader(NamedTuple):
    """What reads bytes, and bytes that it reads."""

    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]


class Targets:
    """All targets over one folder of work, one dataset and one run."""

    def __init__(self, work: Path, dataset: FewShotDataset, run: Path) -> None:
        self.work = work
        self.dataset = dataset
        self.run = run
        self.config = read_config(run)
        self.calibration = json.loads((run / CALIBRATION).read_text())
        self.weights = (run / MODEL).read_bytes()

    def all(self) -> dict[str, Target]:
        """The targets by name."""
        return {
            **{name: _mutating(reader) for name, reader in self.readers().items()},
            "published layouts": self.layout,
            "SPARQL results as JSON": self.results,
            "ids of a dataset": self.ids,
            "configuration": self.configuration,
            "settings of a run": self.settings,
            "configuration of a run": self.run_folder,
            "calibration": self.calibrations,
            "assignments": self.assignments,
            "options": self.options,
        }

    def readers(self) -> dict[str, Reader]:
        """The readers of bytes by name."""
        tables = (b"head\ttail\na\tb\nc\td\n", b"head,tail\na,b\nc,d\n")
        heads = b"virus\nbacterium\n\nfungus"
        layout = {path.name: path.read_bytes() for path in write_layout(self.work / "sample").iterdir()}
        return {
            **{name: Reader((sample,), self._source(name)) for name, sample in SOURCES.items()},
            "graph.csv with a line break": Reader((LINE_BREAK,), self._source("graph.csv")),
            "compressed tables": Reader(_compressed(SOURCES["graph.tsv"]), self.compressed),
            "references": Reader(tables, lambda content: read_examples(self._table(content))),
            "names": Reader((b"a\tb\n", b"a,b\n"), lambda content: read_names(self._table(content))),
            "heads": Reader((heads,), lambda content: list(read_lines(self._written("heads.txt", content)))),
            **{f"{name} of a layout": Reader((layout[name],), self._part_of_a_layout(name)) for name in LAYOUT},
            "SPARQL results": Reader((json.dumps(RESULTS).encode(),), self.page),
            "archives": Reader((_archive(),), self.archive),
            "arrays": Reader((_array(self.dataset.graph.triples),), self.array),
            "calibration.json": Reader(((self.run / CALIBRATION).read_bytes(),), self.calibration_file),
            "weights": Reader((self.header,), self.tensors),
            "TOML files": Reader((TOML,), lambda content: read_settings(self._written("settings.toml", content))),
        }

    def loaders(self) -> dict[str, Reader]:
        """What is behind a checksum, which no mutated bytes would pass, as readers of JSON."""
        config, shots = (json.dumps(content).encode() for content in (self.config, self.calibration["shots"]))
        return {
            "configuration": Reader((config,), lambda content: self._configured(_object(content))),
            "calibration": Reader((shots,), lambda content: self._calibrated(_object(content))),
        }

    def _written(self, name: str, content: bytes) -> Path:
        path = self.work / name
        path.write_bytes(content)
        return path

    def _table(self, content: bytes) -> Path:
        return self._written(f"table.{'csv' if b',' in content else 'tsv'}", content)

    def _source(self, name: str) -> Callable[[bytes], object]:
        return lambda content: read_sources([str(self._written(name, content))], SourceOptions(), self.work)

    def compressed(self, content: bytes) -> object:
        return self._source(f"graph.tsv.{'gz' if content[:1] == GZIP[:1] else 'zst'}")(content)

    def _part_of_a_layout(self, name: str) -> Callable[[bytes], object]:
        def read(content: bytes) -> object:
            folder = self.work / f"layout with another {name}"
            if not folder.exists():
                write_layout(folder)
            (folder / name).write_bytes(content)
            return read_published(folder)

        return read

    def layout(self, random: Random) -> object:
        name = random.choice([name for name in LAYOUT if name.endswith("json")])
        sample = json.loads((self.work / "sample" / name).read_text())
        return self._part_of_a_layout(name)(json.dumps(mutated_json(sample, random)).encode())

    def page(self, content: bytes) -> object:
        page = self._written("page.srj", content)
        with suppress(ValueError):
            sparql._rows(content)
            collect(sparql._quads([page], Counter()), TripleTable("endpoint"), "en")
        return None

    def results(self, random: Random) -> object:
        return self.page(json.dumps(mutated_json(RESULTS, random)).encode())

    def archive(self, content: bytes) -> object:
        path, folder = self._written("archive.zip", content), self.work / "unpacked"
        shutil.rmtree(folder, ignore_errors=True)
        known = KnownDataset(
            "a", "A", None, {"path_graph": (KnownFile(len(ARCHIVED), hashlib.sha256(ARCHIVED).hexdigest()),)}
        )
        unpack(path, known, folder)
        return None

    def array(self, content: bytes) -> object:
        array = open_array(self._written("array.npy", content))
        graph = _copy(self.dataset.graph, triples=array)
        check_arrays(replace(self.dataset, graph=graph), self.work)
        return None

    def ids(self, random: Random) -> object:
        graph, changes = self.dataset.graph, {}
        for name in ("triples", "offsets", "neighbors"):
            if random.random() < 0.5:
                changes[name] = _changed(getattr(graph, name), random)
        tasks = {
            name: _changed(getattr(self.dataset, name), random)
            for name in ("task_relations", "task_offsets", "task_pairs", "task_candidates")
            if random.random() < 0.3
        }
        dataset = replace(self.dataset, graph=_copy(graph, **changes), **tasks)
        check_arrays(dataset, self.work)
        for task in dataset.tasks:  # what passed can be used
            assert task.name
            assert task.pairs.size == 0 or graph.label(int(task.pairs[-1, 1]))
        return None

    def configuration(self, random: Random) -> object:
        return self._configured(mutated_json(self.config, random))

    def _configured(self, config: Any) -> object:
        check_config(config, self.run / CONFIG)
        settings = RunSettings.from_plain(config)
        check_training(self.dataset, settings.system, settings.settings)
        return settings

    def settings(self, random: Random) -> object:
        plain = RunSettings.of(random.choice(("hire", "path", "metar", "faan", "complex"))).to_plain()
        settings = RunSettings.from_plain(plain | {"settings": mutated_json(plain["settings"], random) or {}})
        return RunSettings.from_plain(json.loads(json.dumps(settings.to_plain())))

    def run_folder(self, random: Random) -> object:
        path = self.run / CONFIG
        before = path.read_bytes()
        try:
            half = random.random() < 0.5
            path.write_bytes(
                mutated(before, random) if half else json.dumps(mutated_json(self.config, random)).encode()
            )
            read_run_settings(self.run)
            return load_system(self.run, self.dataset)
        finally:
            path.write_bytes(before)

    def calibrations(self, random: Random) -> object:
        return self._calibrated(mutated_json(self.calibration["shots"], random))

    def _calibrated(self, shots: Any) -> object:
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # what read_calibration turns into an error
            for found in calibrations_in(shots).values():
                confidences = found.confidences(np.array([0.5, -2.0, 3.0], np.float32), np.arange(3))
                assert np.isfinite(confidences).all()
        return None

    def calibration_file(self, content: bytes) -> object:
        path = self.run / CALIBRATION
        before = path.read_bytes()
        try:
            path.write_bytes(content)
            return read_calibration(self.run)
        finally:
            path.write_bytes(before)

    @property
    def header(self) -> bytes:
        """The first bytes of the weights: how long the header is, and the header."""
        return self.weights[: int.from_bytes(self.weights[:8], "little") + 8]

    def tensors(self, content: bytes) -> object:
        """The header matters more than millions of numbers."""
        return load_tensors(self._written("model.safetensors", content + self.weights[len(self.header) :]))

    def assignments(self, random: Random) -> object:
        value = random.choice((*NUMBERS_AS_TEXT, *map(repr, VALUES), "[1, 2", "{a=1}", "none"))
        written = mutated(f"{random.choice(ASSIGNMENTS)}={value}".encode(), random, 2).decode("utf-8", "replace")
        settings = RunSettings.of("ensemble", {"members": {"hire": {}, "path": {}}})
        base = random.choice((settings, RunSettings.of("hire")))
        return base.changed(dict([parse_assignment(written)]))

    def options(self, random: Random) -> object:
        """Every option is parsed as the command would, with all its checks; the command itself is not run."""
        name = random.choice(list(OPTIONS))
        arguments = ["x", "-o", "y"]
        for _ in range(random.randint(1, 3)):
            value = random.choice((*NUMBERS_AS_TEXT, *map(str, range(3)), "all", "published", "[1,", "1,2,3", "a:b:c"))
            arguments += [random.choice(OPTIONS[name]), value]
        found: Any = command
        for part in name.split():
            found = found.commands[part]
        try:
            context = found.make_context(name, arguments)
        except click.ClickException as error:
            raise HireError(str(error)) from error
        for option, value in context.params.items():
            numbers = value if isinstance(value, tuple) else (value,)
            for number in numbers:
                assert not isinstance(number, float) or np.isfinite(number), (option, number)
                assert not isinstance(number, int) or abs(number) < 2**63, (option, number)
        return context


def _copy(graph: Any, **parts: Any) -> Any:
    from copy import copy

    found = copy(graph)
    for name, value in parts.items():
        setattr(found, name, value)
    return found


def _changed(array: Any, random: Random) -> Any:
    """An array with one number changed, or of another shape or type."""
    other = np.array(array)
    kind = random.random()
    if kind < 0.7 and other.size:
        limits = np.iinfo(other.dtype)
        values = (0, -1, 1, limits.max, limits.min, 10**6, random.randint(0, 200))
        other.reshape(-1)[random.randrange(other.size)] = random.choice(values)
        return other
    return random.choice((other[:-1], other[:0], other.reshape(-1), other.astype(np.float32), other[::-1], other.T))


def _object(content: bytes) -> Any:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HireError("is not JSON") from error
    if not isinstance(found, dict):
        raise HireError("is not a JSON object")
    return found


def _mutating(reader: Reader) -> Target:
    return lambda random: reader.read(mutated(random.choice(reader.samples), random))


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("folder/path_graph", ARCHIVED)
    return stream.getvalue()


def _array(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _compressed(content: bytes) -> tuple[bytes, bytes]:
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as compressing:
        compressing.write(content)
    return gzip.compress(content, mtime=0), stream.getvalue().to_pybytes()


def passes(target: Target, random: Random) -> bool:
    """Whether a case was read, not refused; whatever else happens is an error of ours."""
    return _passes(lambda: target(random))


def passes_bytes(reader: Reader, content: bytes) -> bool:
    """The same of bytes."""
    return _passes(lambda: reader.read(content))


def _passes(read: Callable[[], object]) -> bool:
    try:
        read()
    except HireError as error:
        assert error.problems
        assert all(problem.message for problem in error.problems)
        return False
    return True
