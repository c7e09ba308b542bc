"""A few-shot dataset: a background graph, tasks in three splits, their candidates, and all known facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hire.data.check import check_arrays
from hire.data.facts import Facts
from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.util.arrays import IntArray, distinct, row_offsets
from hire.util.checksums import MappedFiles, checksum_of, damaged, file_checksum, read_record, write_record
from hire.util.files import atomic_directory, is_mapped, open_array, save_array, sha256_of

FORMAT = 2
RANKED_FORMAT = 3  # of a graph with so many entities and relations that the keys of its facts have ranks of pairs
MANIFEST = "dataset.json"
BUILD_AGAIN = "build the dataset again"
SPLITS = ("train", "dev", "test")
READERS = 2  # files that are verified at once
ALL_ENTITIES = -1  # instead of the id of a candidate set


@dataclass(frozen=True)
class Task:
    """A relation to complete from a few references."""

    relation: int
    name: str
    split: str
    pairs: IntArray  # [triples, 2]: head, tail, in file order
    candidates: IntArray | None  # possible tails; None for all entities
    candidate_count: int


@dataclass(repr=False)
class FewShotDataset:
    """A background graph and the tasks over it.

    The graph contains no triple of a task. Tasks are in the order train, dev, test.
    """

    name: str
    graph: KnowledgeGraph
    task_relations: IntArray  # [tasks]
    split_sizes: Mapping[str, int]
    task_offsets: NDArray[np.int64]  # [tasks + 1]
    task_pairs: IntArray  # [task triples, 2]: head, tail
    task_candidates: IntArray  # [tasks]: id of the candidate set, or ALL_ENTITIES
    candidate_offsets: NDArray[np.int64]  # [sets + 1]
    candidate_members: IntArray
    facts: Facts  # every known fact: background, tasks, and further true tails that the source lists
    origin: Mapping[str, Any] = field(default_factory=dict)  # how the dataset was made
    identity: str | None = field(default=None, init=False)  # of its files, if it was opened; a changed copy has none
    directory: Path | None = field(default=None, init=False)  # where its files are, likewise
    mapped: MappedFiles = field(default_factory=MappedFiles, init=False)  # the files that its arrays are maps of

    @classmethod
    def of(
        cls,
        name: str,
        graph: KnowledgeGraph,
        tasks: Mapping[str, Mapping[int, IntArray]],
        candidates: Mapping[int, IntArray | None],
        more_facts: IntArray | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> FewShotDataset:
        """A dataset from the pairs and the candidates of each task's relation."""
        pairs = {relation: pairs for split in SPLITS for relation, pairs in tasks[split].items()}
        relations = np.array(list(pairs), np.int32)
        lengths = [len(of_task) for of_task in pairs.values()]
        all_pairs = np.concatenate([np.zeros((0, 2), np.int32), *pairs.values()]).astype(np.int32)
        task_triples = np.insert(all_pairs, 1, np.repeat(relations, lengths), axis=1)
        more = np.zeros((0, 3), np.int32) if more_facts is None else more_facts
        everything = np.concatenate([graph.triples, task_triples, more])
        sets = CandidateSets()
        task_candidates = [
            ALL_ENTITIES if members is None or len(members) == len(graph.entities) else sets.id_of(members)
            for members in (candidates[relation] for relation in pairs)
        ]
        return cls(
            name,
            graph,
            relations,
            {split: len(tasks[split]) for split in SPLITS},
            row_offsets(np.repeat(np.arange(len(pairs)), lengths), len(pairs)),
            all_pairs,
            np.array(task_candidates, np.int32),
            sets.offsets(),
            np.concatenate([np.zeros(0, np.int32), *sets.members]),
            Facts.of(everything, len(graph.entities), len(graph.relations)),
            origin or {},
        )

    def __repr__(self) -> str:
        graph, sizes = self.graph, self.split_sizes
        tasks = " + ".join(f"{sizes[split]} {split}" for split in SPLITS)
        facts = f"{len(graph.entities):,} entities, {len(graph.triples):,} background facts"
        return f"<FewShotDataset {self.name}: {facts}, {tasks} tasks>"

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks: train, then dev, then test."""
        splits = [split for split in SPLITS for _ in range(self.split_sizes[split])]
        return [
            Task(
                int(relation),
                self.graph.relations[int(relation)],
                split,
                self.task_pairs[self.task_offsets[i] : self.task_offsets[i + 1]],
                members,
                len(self.graph.entities) if members is None else len(members),
            )
            for i, (relation, split) in enumerate(zip(self.task_relations, splits, strict=True))
            for members in [self._candidates(int(self.task_candidates[i]))]
        ]

    def _candidates(self, set_id: int) -> IntArray | None:
        if set_id == ALL_ENTITIES:
            return None
        return self.candidate_members[self.candidate_offsets[set_id] : self.candidate_offsets[set_id + 1]]

    def split(self, split: str, shots: int = 1) -> list[Task]:
        """The tasks of a split; an error if one has too few triples for so many references and a query."""
        if split not in SPLITS:
            raise HireError(f"unknown split {split!r}", remedy=f"the splits are {', '.join(SPLITS)}")
        tasks = [task for task in self.tasks if task.split == split]
        for task in tasks:
            if len(task.pairs) < shots + 1:
                raise HireError(
                    f"task {task.name!r} ({split}) has {len(task.pairs)} triples, "
                    f"but {shots} references and a query need {shots + 1}",
                    file=self.name,
                    remedy="use fewer shots, or remove the relation from the tasks",
                )
        return tasks

    def task_triples(self, split: str, shots: int | None = None) -> IntArray:
        """The triples of a split's tasks, [n, 3]; with `shots`, only the first so many of each task: its references."""
        pairs = [np.insert(task.pairs[:shots], 1, task.relation, axis=1) for task in self.split(split, shots or 1)]
        return np.concatenate([np.zeros((0, 3), np.int32), *pairs])

    def extended(self, names: Sequence[str], triples: IntArray) -> FewShotDataset:
        """The dataset with new entities, and more facts in the background graph."""
        graph = self.graph.extended(names, triples)
        found = replace(self, graph=graph, facts=self.facts.extended(triples, len(graph.entities)))
        found.mapped = self.mapped
        return found

    def save(self, directory: Path, *, overwrite: bool = False) -> None:
        """Write the dataset as a directory that opens by memory map; complete or not at all."""
        with atomic_directory(directory, overwrite=overwrite, ours=[MANIFEST]) as partial:
            self.graph.save(partial / "graph")
            for name in self._ARRAYS:
                save_array(partial / f"{name}.npy", getattr(self, name))
            save_array(partial / "facts.npy", self.facts.keys)
            if self.facts.pairs is not None:
                save_array(partial / "fact_pairs.npy", self.facts.pairs)
            manifest = {
                "format": FORMAT if self.facts.pairs is None else RANKED_FORMAT,
                "name": self.name,
                "splits": dict(self.split_sizes),
                "origin": dict(self.origin),
                "files": describe_files(partial),
            }
            write_record(partial / MANIFEST, manifest)

    _ARRAYS = (
        "task_relations",
        "task_offsets",
        "task_pairs",
        "task_candidates",
        "candidate_offsets",
        "candidate_members",
    )

    @classmethod
    def open(cls, directory: Path) -> FewShotDataset:
        """Open a dataset written by `save`: every file is verified, then small ones are read and large ones mapped."""
        manifest = read_manifest(directory)
        paths = [directory / name for name in manifest["files"]]
        mapped = MappedFiles(path for path in paths if path.is_file() and is_mapped(path))
        check_files(dict(zip(paths, manifest["files"].values(), strict=True)), BUILD_AGAIN)
        graph = KnowledgeGraph.open(directory / "graph")
        arrays = {name: open_array(directory / f"{name}.npy") for name in cls._ARRAYS}
        if sum(manifest["splits"][split] for split in SPLITS) != len(arrays["task_relations"]):
            raise HireError("does not match the tasks", file=directory / MANIFEST, remedy=BUILD_AGAIN)
        ranked = manifest["format"] == RANKED_FORMAT
        pairs = open_array(directory / "fact_pairs.npy") if ranked else None
        facts = Facts(open_array(directory / "facts.npy"), len(graph.entities), len(graph.relations), pairs)
        found = cls(
            name=manifest["name"],
            graph=graph,
            split_sizes=manifest["splits"],
            facts=facts,
            origin=manifest["origin"],
            **arrays,
        )
        check_arrays(found, directory)
        found.identity = checksum_of([json.dumps(manifest, sort_keys=True).encode()])
        found.directory = directory.resolve()
        found.mapped = mapped
        mapped.check()  # what is mapped now is what was verified
        return found


class CandidateSets:
    """Sets of entities; equal sets are stored once."""

    def __init__(self) -> None:
        self.members: list[IntArray] = []
        self._ids: dict[bytes, int] = {}

    def id_of(self, members: IntArray) -> int:
        """The id of a set, which is added if it is new."""
        members = np.ascontiguousarray(members, np.int32)
        set_id = self._ids.setdefault(members.tobytes(), len(self.members))
        if set_id == len(self.members):
            self.members.append(members)
        return set_id

    def offsets(self) -> NDArray[np.int64]:
        """Where each set starts when all are concatenated: [sets + 1]."""
        return np.cumsum([0, *map(len, self.members)], dtype=np.int64)


def describe_files(directory: Path) -> dict[str, dict[str, Any]]:
    """The sizes and checksums of all arrays in a directory, by name, for its manifest."""
    return {
        path.relative_to(directory).as_posix(): {
            "bytes": path.stat().st_size,
            "xxh3": file_checksum(path),
            "sha256": sha256_of(path),
        }
        for path in sorted(directory.rglob("*.npy"))
    }


def check_files(files: Mapping[Path, Mapping[str, Any]], remedy: str) -> None:
    """Raise if a file is not the one that a manifest describes; several are read at once."""

    def check(path: Path) -> None:
        if not path.is_file() or path.stat().st_size != files[path]["bytes"]:
            raise HireError("is missing or has the wrong size", file=path, remedy=remedy)
        if file_checksum(path) != files[path]["xxh3"]:
            raise damaged(path, remedy)

    with ThreadPoolExecutor(READERS) as readers:
        for _ in readers.map(check, files):
            pass


def files_in(manifest: Mapping[str, Any], path: Path, remedy: str = BUILD_AGAIN) -> dict[str, dict[str, Any]]:
    """The files that a manifest describes, by name; an error if it is malformed."""
    files = manifest.get("files")
    try:
        well_formed = isinstance(files, dict) and all(
            isinstance(about["bytes"], int) and isinstance(about["xxh3"], str) and isinstance(about["sha256"], str)
            for about in files.values()
        )
    except (KeyError, TypeError):
        well_formed = False
    if not well_formed:
        raise HireError("is not a manifest of a dataset", file=path, remedy=remedy)
    return cast(dict[str, dict[str, Any]], files)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a dataset directory; an error if it is malformed."""
    path = directory / MANIFEST
    manifest = read_record(path, BUILD_AGAIN, FORMAT, RANKED_FORMAT)
    files_in(manifest, path)
    try:
        splits = manifest["splits"]
        well_formed = (
            isinstance(manifest["name"], str)
            and isinstance(manifest["origin"], dict)
            and all(isinstance(splits[split], int) and splits[split] >= 0 for split in SPLITS)
        )
    except (KeyError, TypeError, AttributeError):
        well_formed = False
    if not well_formed:
        raise HireError("is not a manifest of a dataset", file=path, remedy=BUILD_AGAIN)
    return manifest


def candidates_by_type(graph: KnowledgeGraph, tails: Iterable[int] | IntArray) -> IntArray:
    """All entities that share a type with the tails, and the tails themselves, sorted."""
    tails = np.asarray(tails, np.int32)
    if graph.types is None:
        raise HireError(
            "the graph has no entity types", remedy="give --types or --type-pattern, or choose other --candidates"
        )
    return distinct(np.concatenate([graph.types.entities_with(graph.types.of_entities(tails)), tails]))
