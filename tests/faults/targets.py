"""What is fuzzed: each target takes a source of random numbers, makes one case of it, and may raise HireError only."""

from __future__ import annotations

import gzip
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
from typing import Any

import click
import numpy as np

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
from hire.util.files import open_array, save_array
from hire.util.settings import parse_assignment
from hire.util.tensors import load_tensors
from tests.conftest import write_layout
from tests.faults.mutate import NUMBERS_AS_TEXT, VALUES, mutated, mutated_json

Target = Callable[[Random], object]

XML = (
    b'<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
    b'<rdf:Description rdf:about="http://a"><e:p rdf:resource="http://b"/><e:q>text</e:q></rdf:Description></rdf:RDF>'
)
SOURCES = {
    "graph.tsv": b"head\trelation\ttail\na\tr\tb\nb\tr\tc\n\nc\ts\ta\n",
    "graph.csv": b'head,relation,tail\na,r,"b ""c"""\nb,r,"c\nd"\n',
    "graph.nt": b'<http://a> <http://r> <http://b> .\n_:x <http://r> "text"@en .\n# end\n',
    "graph.nq": b"<http://a> <http://r> <http://b> <http://g> .\n",
    "graph.ttl": b'@prefix e: <http://e/> .\ne:a e:r e:b, [ e:s (e:c "x"@en 1.5 true) ] ; a e:T .\n',
    "graph.trig": b"@prefix e: <http://e/> .\ne:g { e:a e:r e:b . <<e:a e:r e:b>> e:s 3 }\n",
    "graph.rdf": XML,
}
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


class Targets:
    """All targets over one folder of work, one dataset and one run."""

    def __init__(self, work: Path, dataset: FewShotDataset, run: Path) -> None:
        self.work = work
        self.dataset = dataset
        self.run = run
        self.config = read_config(run)
        self.calibration = json.loads((run / CALIBRATION).read_text())
        self.weights = (run / MODEL).read_bytes()
        self.archive = _archive()

    def all(self) -> dict[str, Target]:
        """The targets by name."""
        return {
            **{f"reader of {name}": self._source(name) for name in SOURCES},
            "reader of compressed tables": self.compressed,
            "reader of references": self.references,
            "reader of heads": self.heads,
            "reader of published layouts": self.layout,
            "reader of SPARQL results": self.results,
            "reader of archives": self.archives,
            "arrays": self.arrays,
            "ids of a dataset": self.ids,
            "configuration": self.configuration,
            "settings of a run": self.settings,
            "configuration of a run": self.run_folder,
            "calibration": self.calibrations,
            "calibration of a run": self.calibration_file,
            "weights": self.tensors,
            "TOML files": self.toml,
            "assignments": self.assignments,
            "options": self.options,
        }

    def _source(self, name: str) -> Target:
        def read(random: Random) -> object:
            path = self.work / name
            path.write_bytes(mutated(SOURCES[name], random))
            return read_sources([str(path)], SourceOptions(), self.work)

        return read

    def compressed(self, random: Random) -> object:
        path = self.work / random.choice(("graph.tsv.gz", "graph.tsv.zst"))
        path.write_bytes(mutated(gzip.compress(SOURCES["graph.tsv"], mtime=0), random))
        return read_sources([str(path)], SourceOptions(), self.work)

    def references(self, random: Random) -> object:
        path = self.work / random.choice(("references.tsv", "references.csv"))
        path.write_bytes(mutated(b"head\ttail\na\tb\nc\td\n", random))
        return random.choice((read_examples, read_names))(path)

    def heads(self, random: Random) -> object:
        path = self.work / "heads.txt"
        path.write_bytes(mutated(b"virus\nbacterium\n\nfungus", random))
        return list(read_lines(path))

    def layout(self, random: Random) -> object:
        folder = self.work / "layout"
        shutil.rmtree(folder, ignore_errors=True)
        path = write_layout(folder) / random.choice(LAYOUT)
        if path.name.endswith("json") and random.random() < 0.5:
            path.write_text(json.dumps(mutated_json(json.loads(path.read_text()), random)))
        else:
            path.write_bytes(mutated(path.read_bytes(), random))
        return read_published(folder)

    def results(self, random: Random) -> object:
        text = json.dumps(RESULTS).encode()
        body = mutated(text, random) if random.random() < 0.5 else json.dumps(mutated_json(RESULTS, random)).encode()
        page = self.work / "page.srj"
        page.write_bytes(body)
        with suppress(ValueError):
            sparql._rows(body)
            collect(sparql._quads([page], Counter()), TripleTable("endpoint"), "en")
        return None

    def archives(self, random: Random) -> object:
        path, folder = self.work / "archive.zip", self.work / "unpacked"
        path.write_bytes(mutated(self.archive, random))
        shutil.rmtree(folder, ignore_errors=True)
        known = KnownDataset("a", "A", None, {"path_graph": (KnownFile(4, "0" * 64),)})
        unpack(path, known, folder)
        return None

    def arrays(self, random: Random) -> object:
        path = self.work / "array.npy"
        save_array(path, np.arange(24, dtype=np.int32).reshape(-1, 3))
        path.write_bytes(mutated(path.read_bytes(), random))
        array = open_array(path)
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
        config = mutated_json(self.config, random)
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
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # what read_calibration turns into an error
            for found in calibrations_in(mutated_json(self.calibration["shots"], random)).values():
                confidences = found.confidences(np.array([0.5, -2.0, 3.0], np.float32), np.arange(3))
                assert np.isfinite(confidences).all()
        return None

    def calibration_file(self, random: Random) -> object:
        path = self.run / CALIBRATION
        before = path.read_bytes()
        try:
            path.write_bytes(mutated(before, random))
            return read_calibration(self.run)
        finally:
            path.write_bytes(before)

    def tensors(self, random: Random) -> object:
        path = self.work / "model.safetensors"
        start = int.from_bytes(self.weights[:8], "little") + 8  # the header matters more than millions of numbers
        path.write_bytes(mutated(self.weights[:start], random) + self.weights[start : start + 4_096])
        return load_tensors(path)

    def toml(self, random: Random) -> object:
        path = self.work / "settings.toml"
        path.write_bytes(
            mutated(b'system = "hire"\n[training]\nsteps = 5\nshots = [1, 3]\n[model]\nmargin = 1.5\n', random)
        )
        return read_settings(path)

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


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("folder/path_graph", "a\tb\tc\n" * 20)
    return stream.getvalue()


def passes(target: Target, random: Random) -> bool:
    """Whether a case was read, not refused; whatever else happens is an error of ours."""
    try:
        target(random)
    except HireError as error:
        assert error.problems
        assert all(problem.message for problem in error.problems)
        return False
    return True
