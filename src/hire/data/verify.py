"""Verify a dataset directory, in the published layout or written by `hire data build`, and list all problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hire.data.dataset import MANIFEST, FewShotDataset, files_in, read_manifest
from hire.data.published.read import FILES, inspect, is_published_layout
from hire.errors import HireError, Problem
from hire.util.checksums import read_record
from hire.util.files import sha256_of


@dataclass(frozen=True)
class FileReport:
    """One file of a dataset."""

    name: str
    size: int | None
    sha256: str
    status: str


@dataclass
class Verification:
    """What a verification found."""

    files: list[FileReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def verify(directory: Path) -> Verification:
    """Verify a directory in either form; an error only if it contains no dataset."""
    if (directory / MANIFEST).exists():
        return _verify_built(directory)
    if is_published_layout(directory):
        return _verify_published(directory)
    word = "contains no dataset" if directory.is_dir() else "no such directory"
    raise HireError(word, file=directory, remedy=f"a dataset has the file {MANIFEST}, or the files {', '.join(FILES)}")


def _verify_published(directory: Path) -> Verification:
    _, found = inspect(directory)
    title = found.known_dataset.title if found.known_dataset else ""
    report = Verification(problems=found.problems + found.warnings, notes=found.notes)
    for name in FILES:
        if name in found.checksums:
            form = found.form_of(name)
            status = f"{title}, {form}" if form else "differs" if title else "not a known file"
            report.files.append(FileReport(name, (directory / name).stat().st_size, found.checksums[name], status))
        else:
            report.files.append(FileReport(name, None, "", "missing"))
    return report


def _verify_built(directory: Path) -> Verification:
    report = Verification()
    remedy = "build the dataset again"
    try:
        files = dict(read_manifest(directory)["files"])
        for manifest in sorted(directory.glob("*/*.json")):  # of what was added to the folder later, such as an index
            added = files_in(read_record(manifest, remedy), manifest)
            files |= {f"{manifest.parent.name}/{name}": about for name, about in added.items()}
        for name, about in files.items():
            path = directory / name
            if not path.is_file():
                report.files.append(FileReport(name, None, "", "missing"))
                report.problems.append(Problem("is missing", str(path), None, remedy))
                continue
            checksum = sha256_of(path)
            same = checksum == about["sha256"]
            report.files.append(FileReport(name, path.stat().st_size, checksum, "unchanged" if same else "changed"))
            if not same:
                report.problems.append(Problem("has changed since the dataset was built", str(path), None, remedy))
        if not report.problems:
            report.problems += _inconsistencies(FewShotDataset.open(directory), directory)
    except HireError as error:
        report.problems += error.problems
    except (IndexError, ValueError, TypeError) as error:
        report.problems.append(Problem(f"its arrays are inconsistent ({error})", str(directory), None, remedy))
    return report


def _inconsistencies(dataset: FewShotDataset, directory: Path) -> list[Problem]:
    """Ids that are out of range, and tails that are not among the candidates."""
    graph, problems = dataset.graph, []
    entities, relations = len(graph.entities), len(graph.relations)
    for name, ids, bound in (
        ("graph/triples.npy", graph.triples[:, [0, 2]], entities),
        ("graph/triples.npy", graph.triples[:, 1], relations),
        ("graph/neighbors.npy", graph.neighbors[:, 0], 2 * relations),
        ("graph/neighbors.npy", graph.neighbors[:, 1], entities),
        ("task_relations.npy", dataset.task_relations, relations),
        ("task_pairs.npy", dataset.task_pairs, entities),
        ("candidate_members.npy", dataset.candidate_members, entities),
    ):
        if ids.size and not 0 <= ids.min() <= ids.max() < bound:
            problems.append(Problem("contains an id that is out of range", str(directory / name)))
    for task in dataset.tasks:
        if task.candidates is not None and not np.isin(task.pairs[:, 1], task.candidates).all():
            message = f"a tail of the task {task.name!r} is not among its candidates"
            problems.append(Problem(message, str(directory / "candidate_members.npy")))
    return problems
