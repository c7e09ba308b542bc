"""A few-shot dataset: a background graph, tasks in three splits, candidates, and all known facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.errors import HireError
from hire.files import atomic_directory, open_array, save_array, sha256_of
from hire.graph import KnowledgeGraph, distinct, row_offsets
from hire.vocabulary import IntArray

FORMAT = 1
MANIFEST = "dataset.json"
SPLITS = ("train", "dev", "test")
ALL_ENTITIES = -1  # in place of a candidate set's number


class Facts:
    """A set of known facts (head, relation, tail) as sorted keys, so that many can be looked up at once."""

    def __init__(self, keys: NDArray[np.int64], entity_count: int, relation_count: int) -> None:
        self.keys = keys
        self.entity_count = entity_count
        self.relation_count = relation_count

    @classmethod
    def of(cls, triples: IntArray, entity_count: int, relation_count: int) -> Facts:
        """The facts of an array of triples [n, 3], with or without repetitions."""
        if entity_count**2 * relation_count >= 2**63:
            raise HireError(
                f"{entity_count:,} entities and {relation_count:,} relations are more than a fact's key can number",
                remedy="leave out relations or entities that are not needed",
            )
        facts = cls(np.zeros(0, np.int64), entity_count, relation_count)
        facts.keys = distinct(facts.keys_of(*triples.T))
        return facts

    def extended(self, triples: IntArray, entity_count: int) -> Facts:
        """With more facts, among more entities."""
        more = Facts.of(triples, entity_count, self.relation_count)
        pairs, tails = np.divmod(self.keys, self.entity_count)
        more.keys = distinct(np.concatenate([pairs * entity_count + tails, more.keys]))
        return more

    def keys_of(self, heads: Any, relations: Any, tails: Any) -> Any:
        """One number for each fact; facts of the same head and relation are neighbours."""
        pairs = np.asarray(heads, np.int64) * self.relation_count + relations
        return pairs * self.entity_count + tails

    def contain(self, heads: Any, relations: Any, tails: Any) -> NDArray[np.bool_]:
        """Which of some facts are known; the arguments broadcast."""
        keys = self.keys_of(heads, relations, tails)
        if not len(self.keys):
            return np.zeros(np.shape(keys), bool)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.asarray(self.keys[positions] == keys)

    def of_relations(self, relations: IntArray) -> Facts:
        """Only the facts of some relations: fewer keys are faster to search."""
        wanted = np.zeros(self.relation_count, bool)
        wanted[relations] = True
        kept = self.keys[wanted[self.keys // self.entity_count % self.relation_count]]
        return Facts(kept, self.entity_count, self.relation_count)

    def saturated_heads(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The (head, relation) pairs for which every entity is a known tail."""
        count = self.entity_count
        if len(self.keys) < count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        firsts = self.keys[: len(self.keys) - count + 1]
        full = (self.keys[count - 1 :] - firsts == count - 1) & (firsts % count == 0)
        heads, relations = np.divmod(firsts[full] // count, self.relation_count)
        return heads, relations

    def all_tails(self, heads: Any, relations: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All known tails of some heads [n] and relations: the index of the head, and the tail, of each."""
        firsts = self.keys_of(heads, relations, 0)
        starts = np.searchsorted(self.keys, firsts)
        lengths = np.searchsorted(self.keys, firsts + self.entity_count) - starts
        rows = np.repeat(np.arange(len(firsts)), lengths)
        positions = np.arange(len(rows)) + (starts - np.cumsum(lengths) + lengths)[rows]
        return rows, np.asarray(self.keys[positions] - firsts[rows])

    def tails(self, head: int, relation: int) -> IntArray:
        """All known tails, sorted, of a head and a relation."""
        return self.all_tails([head], relation)[1]


@dataclass(frozen=True)
class Task:
    """A relation to be completed from a few examples."""

    relation: int
    name: str
    split: str
    pairs: IntArray  # [triples, 2]: head, tail, in file order
    candidates: IntArray | None  # entities that may be a tail; None for all of them
    candidate_count: int


@dataclass
class FewShotDataset:
    """A background graph and the tasks over it.

    Nothing of a task is in the graph. The tasks lie behind one another: train, then dev, then test.
    """

    name: str
    graph: KnowledgeGraph
    task_relations: IntArray  # [tasks]
    split_sizes: Mapping[str, int]
    task_offsets: NDArray[np.int64]  # [tasks + 1]
    task_pairs: IntArray  # [task triples, 2]: head, tail
    task_candidates: IntArray  # [tasks]: number of the candidate set, or ALL_ENTITIES
    candidate_offsets: NDArray[np.int64]  # [sets + 1]
    candidate_members: IntArray
    facts: Facts  # every known fact: background, tasks and what the source lists besides
    origin: Mapping[str, Any] = field(default_factory=dict)  # how the dataset came about

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
            ALL_ENTITIES if members is None or len(members) == len(graph.entities) else sets.number_of(members)
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

    def _candidates(self, number: int) -> IntArray | None:
        if number == ALL_ENTITIES:
            return None
        return self.candidate_members[self.candidate_offsets[number] : self.candidate_offsets[number + 1]]

    def split(self, split: str, shots: int = 1) -> list[Task]:
        """The tasks of a split; an error if one has too few triples for that many references and a query."""
        if split not in SPLITS:
            raise HireError(f"unknown split {split!r}", remedy=f"the splits are {', '.join(SPLITS)}")
        tasks = [task for task in self.tasks if task.split == split]
        for task in tasks:
            if len(task.pairs) < shots + 1:
                raise HireError(
                    f"task {task.name!r} ({split}) has {len(task.pairs)} triples, "
                    f"but {shots} references and a query need {shots + 1}",
                    file=self.name,
                    remedy="ask for fewer shots, or take the relation out of the tasks",
                )
        return tasks

    def extended(self, names: Sequence[str], triples: IntArray) -> FewShotDataset:
        """The dataset with new entities behind the others, and with more facts in the background graph."""
        graph = self.graph.extended(names, triples)
        return replace(self, graph=graph, facts=self.facts.extended(triples, len(graph.entities)))

    def save(self, directory: Path, *, overwrite: bool = False) -> None:
        """Write the dataset as a directory that opens by memory map; whole or not at all."""
        with atomic_directory(directory, overwrite=overwrite, ours=[MANIFEST]) as partial:
            self.graph.save(partial / "graph")
            for name in self._ARRAYS:
                save_array(partial / f"{name}.npy", getattr(self, name))
            save_array(partial / "facts.npy", self.facts.keys)
            files = {
                path.relative_to(partial).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
                for path in sorted(partial.rglob("*.npy"))
            }
            manifest = {
                "format": FORMAT,
                "name": self.name,
                "splits": dict(self.split_sizes),
                "origin": dict(self.origin),
                "files": files,
            }
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")

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
        """Map a dataset that `save` wrote; nothing is read before it is used."""
        manifest = read_manifest(directory)
        for name, about in manifest["files"].items():
            path = directory / name
            if not path.is_file() or path.stat().st_size != about["bytes"]:
                raise HireError("is missing or has the wrong size", file=path, remedy="build the dataset again")
        graph = KnowledgeGraph.open(directory / "graph")
        arrays = {name: open_array(directory / f"{name}.npy") for name in cls._ARRAYS}
        if sum(manifest["splits"][split] for split in SPLITS) != len(arrays["task_relations"]):
            raise HireError("does not fit the tasks", file=directory / MANIFEST, remedy="build the dataset again")
        facts = Facts(open_array(directory / "facts.npy"), len(graph.entities), len(graph.relations))
        return cls(
            name=manifest["name"],
            graph=graph,
            split_sizes=manifest["splits"],
            facts=facts,
            origin=manifest["origin"],
            **arrays,
        )


class CandidateSets:
    """Sets of entities, in which equal ones are kept once."""

    def __init__(self) -> None:
        self.members: list[IntArray] = []
        self._numbers: dict[bytes, int] = {}

    def number_of(self, members: IntArray) -> int:
        """The number of a set, which is added if it is new."""
        members = np.ascontiguousarray(members, np.int32)
        number = self._numbers.setdefault(members.tobytes(), len(self.members))
        if number == len(self.members):
            self.members.append(members)
        return number

    def offsets(self) -> NDArray[np.int64]:
        """Where each set starts when they lie behind one another: [sets + 1]."""
        return np.cumsum([0, *map(len, self.members)], dtype=np.int64)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a dataset directory, checked for its form."""
    path = directory / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = manifest["format"] == FORMAT
        files, splits = manifest["files"], manifest["splits"]
        well_formed = (
            isinstance(manifest["name"], str)
            and isinstance(manifest["origin"], dict)
            and all(isinstance(about["bytes"], int) and isinstance(about["sha256"], str) for about in files.values())
            and all(isinstance(splits[split], int) for split in SPLITS)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HireError(f"is not a readable manifest ({error})", file=path, remedy="build the dataset again") from error
    if not known:
        raise HireError(
            f"has format {manifest['format']!r}, this program reads {FORMAT}",
            file=path,
            remedy="build the dataset again with this version",
        )
    if not well_formed:
        raise HireError("is not a readable manifest", file=path, remedy="build the dataset again")
    return manifest


def first_occurrences(triples: IntArray, entity_count: int, relation_count: int) -> NDArray[np.int64]:
    """For each triple [n, 3], the number of the first one that is equal to it."""
    keys = Facts.of(triples[:0], entity_count, relation_count).keys_of(*triples.T)
    order = np.argsort(keys, kind="stable")
    is_first = np.concatenate([[True], np.diff(keys[order]) != 0])[: len(keys)]
    firsts = np.empty(len(keys), np.int64)
    firsts[order] = order[is_first][np.cumsum(is_first) - 1]
    return firsts


def candidates_by_type(graph: KnowledgeGraph, tails: Iterable[int] | IntArray) -> IntArray:
    """All entities that share a type with some tails, and the tails themselves, sorted."""
    tails = np.asarray(tails, np.int32)
    if graph.types is None:
        raise HireError("the graph has no entity types", remedy="give --types or --type-pattern, or other candidates")
    return distinct(np.concatenate([graph.types.entities_with(graph.types.of_entities(tails)), tails]))
