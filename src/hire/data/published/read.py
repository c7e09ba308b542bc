"""The published layout of few-shot datasets: eight text files, read and checked against each other.

path_graph                      background graph, one `head TAB relation TAB tail` per line
{train,dev,test}_tasks.json     relation -> list of [head, relation, tail]
rel2candidates.json             relation -> candidates
e1rel_e2.json                   head and relation, concatenated -> all true tails
ent2ids, relation2ids           name -> id; relations also with `_inv` appended
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire.data.build import types_in_names
from hire.data.dataset import SPLITS, FewShotDataset
from hire.data.facts import first_occurrences
from hire.data.graph import INVERSE_SUFFIX, KnowledgeGraph
from hire.data.published.checksums import KnownDataset, differing, known_form, recognize
from hire.data.sources.delimited import FORBIDDEN, TableFormat, read_triples
from hire.data.vocabulary import Vocabulary
from hire.errors import HireError, Problem
from hire.progress import track
from hire.util.arrays import IntArray
from hire.util.files import explain_os_errors, printable, sha256_of

TASK_FILES = {split: f"{split}_tasks.json" for split in SPLITS}
FILES = ("path_graph", *TASK_FILES.values(), "rel2candidates.json", "e1rel_e2.json", "ent2ids", "relation2ids")
BAD_NAME = "is empty or contains a tab, line break or NUL"
MAX_SUGGESTIONS = 100  # each takes a few milliseconds


def is_published_layout(directory: Path) -> bool:
    """Whether a directory has at least one file of the layout."""
    return any((directory / name).exists() for name in FILES)


def read_published(directory: Path) -> FewShotDataset:
    """Read a dataset in the published layout; an error if it has any problem."""
    dataset, report = inspect(directory)
    if report.problems or dataset is None:
        shown = report.problems[:5]
        if len(report.problems) > len(shown):
            more = len(report.problems) - len(shown)
            shown.append(Problem(f"{more:,} more problems", remedy=f"hire data verify {directory} lists them all"))
        raise HireError.of(shown)
    return dataset


@dataclass
class Inspection:
    """The result of inspecting a published layout."""

    checksums: dict[str, str] = field(default_factory=dict)  # file name -> SHA-256
    known_dataset: KnownDataset | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)  # reported, but no reason not to open the dataset
    notes: list[Problem] = field(default_factory=list)  # oddities of the published files themselves

    def form_of(self, name: str) -> str | None:
        """The known form of a file, or None."""
        if self.known_dataset is None or name not in self.checksums:
            return None
        return known_form(self.known_dataset, name, self.checksums[name])


def inspect(directory: Path) -> tuple[FewShotDataset | None, Inspection]:
    """Read all files of a published layout and list all problems."""
    if not directory.is_dir():
        raise HireError("no such directory", file=directory, remedy="check the spelling")
    report = Inspection()
    with track(f"Checking {directory.name}", len(FILES)) as advance:
        for name in FILES:
            if (directory / name).is_file():
                report.checksums[name] = sha256_of(directory / name)
            advance(1)
    report.known_dataset = recognize(report.checksums)
    reader = _LayoutReader(directory)
    try:
        dataset = reader.read()
    except HireError as error:
        reader.problems += error.problems
        dataset = None
    # Oddities of files that are exactly the published ones belong to the benchmark.
    published = dataset is not None and all(report.form_of(name) for name in FILES)
    (report.notes if published else report.problems).extend(reader.problems)
    (report.notes if published else report.warnings).extend(reader.warnings)
    if report.known_dataset is not None:
        for name in differing(report.known_dataset, report.checksums):
            message = f"differs from the published file of {report.known_dataset.title}"
            remedy = f"hire data get {report.known_dataset.name} downloads the published one"
            if report.known_dataset.url is None:
                remedy = "take the published one"
            report.warnings.append(Problem(message, str(directory / name), None, remedy))
    return dataset, report


class _LayoutReader:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.entity_ids: dict[str, int] = {}
        self.texts: dict[str, str] = {}  # of the JSON files, to find line numbers
        self._near: dict[str, str] = {}  # remedies for unknown entities

    def wrong(self, name: str, message: str, line: int | None = None, remedy: str | None = None) -> None:
        self.problems.append(Problem(message, str(self.directory / name), line, remedy))

    def read(self) -> FewShotDataset | None:
        missing = [name for name in FILES if not (self.directory / name).is_file()]
        for name in missing:
            self.wrong(name, "is missing", remedy="the published layout has " + ", ".join(FILES))
        entities = self._entities() if "ent2ids" not in missing else None
        if entities is None:
            self._well_formed(missing)
            return None
        relation_names = self._relation_names() if "relation2ids" not in missing else None
        triples, background = (
            self._background(entities, relation_names) if "path_graph" not in missing else (None, list[str]())
        )
        tasks = {
            split: self._tasks(TASK_FILES[split], entities, set(background))
            for split in SPLITS
            if TASK_FILES[split] not in missing
        }
        self._disjoint(tasks)
        all_tasks = {name: pairs for split in tasks.values() for name, pairs in split.items()}
        candidates = self._candidates(entities, all_tasks) if "rel2candidates.json" not in missing else {}
        extra = self._filter(entities, all_tasks) if "e1rel_e2.json" not in missing else []
        if missing or triples is None:
            return None
        relations = Vocabulary.of([*background, *all_tasks], "relation")
        relation_ids = {name: i for i, name in enumerate([*background, *all_tasks])}
        graph = KnowledgeGraph.of(entities, relations, triples, types=types_in_names(entities))
        return FewShotDataset.of(
            printable(self.directory.resolve().name),
            graph,
            {split: {relation_ids[name]: pairs for name, pairs in tasks[split].items()} for split in SPLITS},
            {relation_ids[name]: members for name, members in candidates.items()},
            np.array([(head, relation_ids[name], tail) for head, name, tail in extra], np.int32).reshape(-1, 3),
            {"layout": "published"},
        )

    def _well_formed(self, missing: Sequence[str]) -> None:
        """Where names cannot be looked up, check at least that the other files are well-formed."""
        for name in set(FILES) - set(missing) - {"ent2ids", "path_graph"}:
            self._json(name)
        if "path_graph" not in missing:
            self._graph_table()

    def _json(self, name: str) -> dict[str, Any] | None:
        """A file's JSON object, or None if it is not one."""
        path = self.directory / name
        try:
            with explain_os_errors(path):
                text = path.read_bytes().decode()
            repeated: list[str] = []

            def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
                counts = Counter(key for key, _ in pairs)
                repeated.extend(key for key, count in counts.items() if count > 1)
                return dict(pairs)

            # Duplicate keys in the large vocabulary show as gaps in its ids; counting them would cost memory.
            content = json.loads(text, object_pairs_hook=None if name == "ent2ids" else without_duplicates)
            if re.search(r"\\u[dD][89a-fA-F]", text):
                json.dumps(content, ensure_ascii=False).encode()
        except UnicodeDecodeError as error:
            line = path.read_bytes()[: error.start].count(b"\n") + 1
            self.wrong(name, "invalid UTF-8", line, "save the file with UTF-8 encoding")
            return None
        except UnicodeEncodeError:
            self.wrong(name, "a name contains an unpaired surrogate", remedy="write the complete character")
            return None
        except json.JSONDecodeError as error:
            remedy = "it may be truncated: download or write it again"
            self.wrong(name, f"is not valid JSON: {error.msg} at column {error.colno}", error.lineno, remedy)
            return None
        except RecursionError:
            self.wrong(name, "is nested too deeply")
            return None
        except ValueError as error:  # an integer with thousands of digits
            self.wrong(name, f"cannot be read ({str(error).split(';')[0]})")
            return None
        if not isinstance(content, dict):
            self.wrong(name, f"contains a JSON {type(content).__name__}, expected an object", 1)
            return None
        for key in repeated:
            self.wrong(name, f"has the duplicate key {key!r}", _line_of(text, key), "merge its values")
        self.texts[name] = text
        return content

    @cache  # noqa: B019 - a reader is short-lived
    def _line(self, name: str, key: str) -> int | None:
        """The first line of a JSON file that contains a name."""
        return _line_of(self.texts[name], key) if "\n" in self.texts[name] else 1

    def _names_by_id(self, name: str) -> list[str] | None:
        """The names of a name -> id file, in order of their ids."""
        content = self._json(name)
        if content is None:
            return None
        if not content:
            self.wrong(name, "is empty", 1)
            return None
        names, ids = list(content), list(content.values())
        in_order = set(map(type, ids)) == {int} and ids == list(range(len(names)))
        if in_order and all(names) and not FORBIDDEN.keys() & set("".join(names)):
            return names  # the usual case, for millions of names
        ordered: list[str | None] = [None] * len(names)
        for key, name_id in content.items():
            remedy = f"use each id from 0 to {len(names) - 1:,} exactly once"
            if type(name_id) is not int:
                message = f"{key!r} has {name_id!r}, expected an integer id"
            elif not 0 <= name_id < len(names):
                message = f"{key!r} has the id {name_id}, but there are {len(names):,} names"
            elif ordered[name_id] is not None:
                message = f"{key!r} and {ordered[name_id]!r} have the same id {name_id}"
            elif not key or any(character in key for character in FORBIDDEN):
                message, remedy = f"{key!r} {BAD_NAME}", "rename it"
            else:
                ordered[name_id] = key
                continue
            self.wrong(name, message, self._line(name, key), remedy)
        complete = [key for key in ordered if key is not None]
        return complete if len(complete) == len(names) else None

    def _entities(self) -> Vocabulary | None:
        names = self._names_by_id("ent2ids")
        if names is None:
            return None
        self.entity_ids = {name: entity for entity, name in enumerate(names)}
        return Vocabulary.of(names, "entity")

    def _relation_names(self) -> set[str] | None:
        names = self._names_by_id("relation2ids")
        return None if names is None else set(names)

    def _graph_table(self) -> Any:
        problems: list[Problem] = []
        try:
            table = read_triples(self.directory / "path_graph", TableFormat(header=False), problems)
        except HireError as error:
            self.problems += problems + error.problems
            return None
        self.problems += problems
        self.warnings += table.notes
        return table

    def _background(
        self, entities: Vocabulary, relation_names: set[str] | None
    ) -> tuple[NDArray[np.int32] | None, list[str]]:
        import pyarrow as pa

        table = self._graph_table()
        if table is None or table.lines is None:
            return None, []
        heads, kinds, tails = table.triples.arrays()
        encoded = pa.chunked_array(kinds.chunks, pa.large_string()).combine_chunks().dictionary_encode()
        background = encoded.dictionary.to_pylist()
        ends = entities.ids(pa.chunked_array([*heads.chunks, *tails.chunks], pa.large_string()))
        triples = np.stack([ends[: len(heads)], encoded.indices.to_numpy(), ends[len(heads) :]], axis=1)
        for column, names in ((0, heads), (2, tails)):
            for row in np.flatnonzero(triples[:, column] < 0):
                line = int(table.lines[row])
                self._unknown_entity("path_graph", names[int(row)].as_py(), line, entities)
        if relation_names is not None:
            for relation_id, relation in enumerate(background):
                for name in {relation, relation + INVERSE_SUFFIX} - relation_names:
                    line = int(table.lines[np.flatnonzero(triples[:, 1] == relation_id)[0]])
                    self.wrong("path_graph", f"relation {name!r} is not in relation2ids", line, "add it there")
        good = (triples >= 0).all(axis=1)
        triples, lines = triples[good], table.lines[good]
        firsts = first_occurrences(triples, len(entities), max(1, len(background)))
        repeated = firsts != np.arange(len(triples))
        for row in np.flatnonzero(repeated):
            message = f"duplicate of the triple on line {lines[firsts[row]]}"
            self.warnings.append(
                Problem(message, str(self.directory / "path_graph"), int(lines[row]), "remove one of them")
            )
        return triples[~repeated].astype(np.int32), background

    def _look_up(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The ids of some entities, -1 for unknown ones."""
        return np.array([self.entity_ids.get(name, -1) for name in names], np.int64)

    def _unknown_entity(self, name: str, entity: str, line: int | None, entities: Vocabulary) -> None:
        if entity not in self._near:
            near = entities.suggest(entity, 1) if len(self._near) < MAX_SUGGESTIONS else []
            self._near[entity] = f"add it to ent2ids, or correct it to {near[0]!r}" if near else "add it to ent2ids"
        self.wrong(name, f"unknown entity {entity!r}", line, self._near[entity])

    def _tasks(self, name: str, entities: Vocabulary, background: set[str]) -> dict[str, IntArray]:
        content = self._json(name)
        rows_of: dict[str, list[list[str]]] = {}
        for relation, rows in (content or {}).items():
            line = self._line(name, relation)
            if not isinstance(rows, list):
                self.wrong(name, f"{relation!r} has a {type(rows).__name__}, expected a list of triples", line)
                continue
            good: list[list[str]] = []
            for i, row in enumerate(rows):
                if not (isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row)):
                    self.wrong(
                        name, f"triple {i + 1} of {relation!r} is not [head, relation, tail]: {row!r}"[:300], line
                    )
                elif row[1] != relation:
                    self.wrong(name, f"triple {i + 1} of {relation!r} has the relation {row[1]!r}", line)
                else:
                    good.append(row)
            if not relation or any(character in relation for character in FORBIDDEN):
                self.wrong(name, f"the relation {relation!r} {BAD_NAME}", line, "rename it")
            if relation in background:
                remedy = "remove its triples from path_graph: they would reveal the answers"
                self.wrong(name, f"the task relation {relation!r} is in the background graph", line, remedy)
            rows_of[relation] = good
        if content is not None and not content:
            self.wrong(name, "has no tasks", 1)
        tasks = {}
        for relation, rows in rows_of.items():
            ids = [self._look_up([row[column] for row in rows]) for column in (0, 2)]
            pairs = self._pairs(name, relation, rows, np.stack(ids, axis=1), entities)
            if len(pairs) < 2:
                message = f"{relation!r} needs at least 2 triples, a reference and a query; found {len(pairs)}"
                self.wrong(name, message, self._line(name, relation), "add triples, or remove the relation")
            tasks[relation] = pairs
        return tasks

    def _pairs(
        self, name: str, relation: str, rows: list[list[str]], pairs: IntArray, entities: Vocabulary
    ) -> IntArray:
        """The pairs of a task without unknown entities and duplicates."""
        for i, column in zip(*np.nonzero(pairs < 0), strict=True):
            entity = rows[i][2 * column]
            self._unknown_entity(name, entity, self._line(name, entity), entities)
        pairs = pairs[(pairs >= 0).all(axis=1)]
        _, firsts = np.unique(pairs, axis=0, return_index=True)
        if len(firsts) < len(pairs):
            for i in sorted(set(range(len(pairs))) - set(firsts.tolist())):
                head, tail = (entities[int(entity)] for entity in pairs[i])
                message = f"{relation!r} has the triple of {head!r} and {tail!r} twice"
                self.wrong(name, message, self._line(name, head), "remove one of them")
        return pairs[np.sort(firsts)].astype(np.int32)

    def _disjoint(self, tasks: dict[str, dict[str, IntArray]]) -> None:
        seen: dict[str, str] = {}
        for split, of_split in tasks.items():
            for relation in of_split:
                if relation in seen:
                    message = f"the task {relation!r} is also in {TASK_FILES[seen[relation]]}"
                    self.wrong(
                        TASK_FILES[split], message, self._line(TASK_FILES[split], relation), "remove one of them"
                    )
                seen.setdefault(relation, split)

    def _candidates(self, entities: Vocabulary, tasks: dict[str, IntArray]) -> dict[str, IntArray]:
        name = "rel2candidates.json"
        content = self._json(name) or {}
        found = {}
        for relation, pairs in tasks.items():
            names = _names_in(content.get(relation))
            line = self._line(name, relation) if relation in content else None
            if names is None:
                word = "has no candidates" if relation not in content else "has candidates that are not a list of names"
                self.wrong(name, f"the task {relation!r} {word}", line, "list the possible tails")
                found[relation] = np.unique(pairs[:, 1])
                continue
            ids = self._look_up(names)
            for i in np.flatnonzero(ids < 0):
                self._unknown_entity(name, names[i], self._line(name, names[i]), entities)
            members, firsts = np.unique(ids[ids >= 0], return_index=True)
            if len(members) < (ids >= 0).sum():
                count = int((ids >= 0).sum()) - len(members)
                self.wrong(name, f"{relation!r} has duplicate candidates ({count})", line, "remove the duplicates")
            missing = np.setdiff1d(pairs[:, 1], members)
            for tail in missing:
                message = f"the tail {entities[int(tail)]!r} of {relation!r} is not among its candidates"
                self.wrong(name, message, line, "add it: the answer of a query must be among the candidates")
            in_order = ids[ids >= 0][np.sort(firsts)]
            found[relation] = np.concatenate([in_order, missing]).astype(np.int32)
        return found

    def _filter(self, entities: Vocabulary, tasks: dict[str, IntArray]) -> list[tuple[int, str, int]]:
        """The true tails that e1rel_e2.json lists beyond those of the tasks."""
        name = "e1rel_e2.json"
        content = self._json(name)
        if content is None:
            return []
        owners: dict[str, tuple[int, str]] = {}
        true_tails: list[IntArray] = []
        for relation, pairs in tasks.items():
            heads = np.unique(pairs[:, 0])
            for head, tails in zip(heads, _grouped(pairs, heads), strict=True):
                key = entities[int(head)] + relation
                if key in owners:
                    other = entities[owners[key][0]], owners[key][1]
                    message = f"the key {key!r} means both {other} and {(entities[int(head)], relation)}"
                    self.wrong(name, message, self._line(name, key), "rename one of the entities")
                else:
                    owners[key] = int(head), relation
                    true_tails.append(tails)
        extra = []
        for (key, owner), tails in zip(owners.items(), true_tails, strict=True):
            listed = _names_in(content.get(key))
            if listed is None:
                message = f"has no list of true tails for {key!r}, a head and relation of a task"
                self.wrong(name, message, remedy="add it, with all known true tails")
                continue
            known_tails, ids = set(tails.tolist()), [self.entity_ids.get(tail, -1) for tail in listed]
            for tail, tail_id in zip(listed, ids, strict=True):
                if tail_id < 0:
                    self._unknown_entity(name, tail, self._line(name, tail), entities)
            for tail_id in sorted(known_tails.difference(ids)):
                message = f"the true tail {entities[tail_id]!r} is not listed for {key!r}"
                self.wrong(name, message, self._line(name, key), "add it")
            extra += [(*owner, tail_id) for tail_id in sorted(set(ids) - known_tails) if tail_id >= 0]
        return extra


def _names_in(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else None


def _grouped(pairs: IntArray, heads: IntArray) -> Iterable[IntArray]:
    """The tails of each head, for sorted distinct heads."""
    ordered = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return np.split(ordered[:, 1], np.searchsorted(ordered[:, 0], heads[1:])) if len(heads) else []


def _line_of(text: str, name: str) -> int | None:
    for ascii_only in (True, False):
        position = text.find(json.dumps(name, ensure_ascii=ascii_only))
        if position >= 0:
            return text.count("\n", 0, position) + 1
    return None
