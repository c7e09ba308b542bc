"""Build a few-shot dataset from any graph: choose the tasks, split them, and find their candidates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hire.data.dataset import SPLITS, FewShotDataset, candidates_by_type
from hire.data.facts import Facts, first_occurrences
from hire.data.graph import KnowledgeGraph
from hire.data.sources.columns import TripleTable
from hire.data.types import Types
from hire.data.vocabulary import StringTable, Vocabulary
from hire.errors import HireError, Problem
from hire.progress import track
from hire.util.arrays import IntArray
from hire.util.ranges import Natural, Seed
from hire.util.settings import Settings

Candidates = Literal["auto", "type", "range", "all"]

NAME_PATTERN = "concept:{type}:{name}"  # names of this form, as in NELL, tell the type of an entity


@dataclass(frozen=True)
class BuildSettings(Settings):
    """Which relations become tasks, and how."""

    name: str
    more_than: Natural = 50  # triples of a task
    fewer_than: Natural = 500  # triples of a task
    split: tuple[int, int, int] = (51, 5, 11)  # train : dev : test, the proportions of NELL-One
    candidates: Candidates = "auto"  # by type if entities have types, otherwise all entities
    type_pattern: str | None = None  # finds the type in a name, such as `concept:{type}:{name}`
    seed: Seed = 0
    tasks: bool = True  # without tasks, all relations stay in the background graph


@dataclass(frozen=True)
class RelationReport:
    """The role of one relation in the dataset, and why."""

    name: str
    triples: int
    role: str  # train, dev, test or background
    reason: str
    candidates: int | None = None


@dataclass(frozen=True)
class BuildReport:
    """The result of a build."""

    relations: list[RelationReport]
    skipped: dict[str, int]  # what was skipped in the sources, and how often
    notes: list[Problem]  # what was corrected, with file and line

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def build(
    tables: Sequence[TripleTable], settings: BuildSettings, *, take: bool = False
) -> tuple[FewShotDataset, BuildReport]:
    """Build a dataset from the tables of its sources; the same input and settings give the same dataset.

    With `take`, the triples are taken out of the tables: the text of a large graph needs much memory.
    """
    if not settings.more_than < settings.fewer_than - 1:
        raise HireError(
            f"no relation can have more than {settings.more_than} and fewer than {settings.fewer_than} triples",
            remedy="choose --more-than well below --fewer-than",
        )
    if min(settings.split) < 1:
        raise HireError(
            "each of train, dev and test needs at least one part", remedy="use proportions such as --split 51:5:11"
        )
    skipped: Counter[str] = Counter()
    for table in tables:
        skipped.update(table.skipped)
    notes = [note for table in tables for note in table.notes]
    with track("Building the graph", 4) as advance:
        entities, relations, triples = _numbered([table.triples.arrays(take=take) for table in tables])
        advance(1)
        triples = _without_duplicates(tables, triples, len(entities), len(relations), skipped, notes)
        counts = np.bincount(triples[:, 1], minlength=len(relations))
        splits: dict[str, list[int]] = {split: [] for split in SPLITS}
        if settings.tasks:
            splits = _split_tasks(relations, counts, settings)
        in_task = np.zeros(len(relations), bool)
        in_task[[relation for split in SPLITS for relation in splits[split]]] = True
        advance(1)
        owners = _owners(tables, entities)
        notes += _unmatched(tables, owners)
        types = _types(tables, owners, entities, settings.type_pattern)
        if types is None and not settings.tasks:
            types = types_in_names(entities)
        background = triples[~in_task[triples[:, 1]]]
        graph = KnowledgeGraph.of(entities, relations, background, _labels(tables, owners, len(entities)), types)
        advance(1)
        pairs = _pairs_by_relation(triples[in_task[triples[:, 1]]])
        rule = settings.candidates if settings.candidates != "auto" else "type" if types else "all"
        candidates = {relation: _candidates(graph, rule, of_task[:, 1]) for relation, of_task in pairs.items()}
        tasks = {split: {relation: pairs[relation] for relation in splits[split]} for split in SPLITS}
        origin = {
            "sources": [table.short_name for table in tables],
            "settings": asdict(settings) | {"candidates": rule},
        }
        dataset = FewShotDataset.of(settings.name, graph, tasks, candidates, origin=origin)
        advance(1)
    return dataset, BuildReport(_report(dataset, counts, settings), dict(skipped), notes)


def _numbered(columns: list[list[Any]]) -> tuple[Vocabulary, Vocabulary, NDArray[np.int32]]:
    """Assign ids to entities and relations in order of their first appearance."""
    import pyarrow as pa

    def encode(chunks: list[Any]) -> tuple[Any, list[NDArray[np.int32]]]:
        # All chunks of the result share one dictionary, that of the whole column.
        encoded = pa.chunked_array(chunks, pa.large_string()).dictionary_encode()
        return encoded.chunk(0).dictionary, [chunk.indices.to_numpy() for chunk in encoded.chunks]

    heads = [chunk for column in columns for chunk in column[0].chunks]
    tails = [chunk for column in columns for chunk in column[2].chunks]
    if not heads:
        raise HireError("the sources contain no triples", remedy="check that they are the right files")
    relations, relation_ids = encode([chunk for column in columns for chunk in column[1].chunks])
    # Heads and tails alternate, chunk by chunk, so that ids follow the order of the file closely.
    names, ids = encode([chunk for pair in zip(heads, tails, strict=True) for chunk in pair])
    triples = np.empty((sum(map(len, heads)), 3), np.int32)
    for column, parts in zip((0, 1, 2), (ids[0::2], relation_ids, ids[1::2]), strict=True):
        triples[:, column] = np.concatenate(parts)
    return Vocabulary.of(names, "entity"), Vocabulary.of(relations, "relation"), triples


def _without_duplicates(
    tables: Sequence[TripleTable],
    triples: NDArray[np.int32],
    entity_count: int,
    relation_count: int,
    skipped: Counter[str],
    notes: list[Problem],
) -> NDArray[np.int32]:
    """Keep the first of equal triples; note the line of the first duplicate in each source."""
    if len(Facts.of(triples, entity_count, relation_count).keys) == len(triples):  # the common case, with less memory
        return triples
    repeated = first_occurrences(triples, entity_count, relation_count) != np.arange(len(triples))
    skipped["duplicate triples"] += int(repeated.sum())
    start = 0
    for table in tables:
        here = np.flatnonzero(repeated[start : start + len(table.triples)])
        if len(here):
            line = None if table.lines is None else int(table.lines[here[0]])
            word = "triple" if len(here) == 1 else "triples"
            message = f"{len(here):,} duplicate {word}, the first on this line"
            notes.append(Problem(message, table.source, line))
        start += len(table.triples)
    return np.asarray(triples[~repeated])


def _split_tasks(relations: Vocabulary, counts: IntArray, settings: BuildSettings) -> dict[str, list[int]]:
    """Draw the splits at random, independent of the order in which relations appear."""
    eligible = [
        int(relation)
        for relation in relations.order  # sorted by name
        if settings.more_than < counts[relation] < settings.fewer_than
    ]
    if len(eligible) < len(SPLITS):
        largest = ", ".join(f"{relations[int(i)]} ({counts[i]:,})" for i in np.argsort(-counts, kind="stable")[:5])
        raise HireError(
            f"{len(eligible)} of {len(relations)} relations have more than {settings.more_than} and fewer than "
            f"{settings.fewer_than} triples; at least three are needed, one each for train, dev and test",
            remedy=f"change --more-than and --fewer-than; the largest relations are {largest}",
        )
    shuffled = np.random.default_rng(settings.seed).permutation(eligible)
    spare = len(eligible) - len(SPLITS)  # beyond one task for each split
    shares = np.array(settings.split) / sum(settings.split) * len(eligible)
    sizes = np.maximum(np.round(shares).astype(int), 1)
    sizes[0] = len(eligible) - sizes[1] - sizes[2]
    if sizes[0] < 1:
        sizes[:] = [1, 1 + spare // 2, 1 + spare - spare // 2]
    ends = np.cumsum(sizes)
    return {
        split: sorted(map(int, shuffled[end - size : end]))
        for split, size, end in zip(SPLITS, sizes, ends, strict=True)
    }


def _pairs_by_relation(triples: NDArray[np.int32]) -> dict[int, IntArray]:
    if not len(triples):
        return {}
    ordered = triples[np.argsort(triples[:, 1], kind="stable")]
    relations, starts = np.unique(ordered[:, 1], return_index=True)
    return {
        int(relation): part[:, [0, 2]] for relation, part in zip(relations, np.split(ordered, starts[1:]), strict=True)
    }


def _candidates(graph: KnowledgeGraph, rule: str, tails: IntArray) -> IntArray | None:
    if rule == "type":
        return candidates_by_type(graph, tails)
    return np.unique(tails) if rule == "range" else None


Owners = dict[tuple[int, str], NDArray[np.int64]]


def _owners(tables: Sequence[TripleTable], entities: Vocabulary) -> Owners:
    """The entities that labels and types of each table belong to, -1 if unknown, by the table's number and the kind."""
    return {
        (number, kind): entities.ids(columns.arrays()[0])
        for number, table in enumerate(tables)
        for kind, columns in (("labels", table.labels), ("types", table.types))
        if len(columns)
    }


def _labels(tables: Sequence[TripleTable], owners: Owners, entity_count: int) -> StringTable | None:
    """The first label of each entity in the sources."""
    import pyarrow as pa

    labelling = [number for number, kind in owners if kind == "labels"]
    if not labelling:
        return None
    of_labels = np.concatenate([owners[number, "labels"] for number in labelling])
    columns = [tables[number].labels.arrays()[1] for number in labelling]
    texts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.large_string())
    known = np.flatnonzero(of_labels >= 0)
    labelled, firsts = np.unique(of_labels[known], return_index=True)
    position = np.full(entity_count, len(texts))
    position[labelled] = known[firsts]
    with_blank = pa.chunked_array([*texts.chunks, pa.array([""], pa.large_string())])
    return StringTable.of(with_blank.take(pa.array(position)).combine_chunks())


def _unmatched(tables: Sequence[TripleTable], owners: Owners) -> list[Problem]:
    """A note for each source whose labels or types belong to no entity of the graph."""
    return [
        Problem(f"none of its {len(ids):,} {kind} belongs to an entity of the graph", tables[number].source)
        for (number, kind), ids in owners.items()
        if (ids < 0).all()
    ]


def compile_type_pattern(pattern: str) -> str:
    """The regular expression of a pattern such as `concept:{type}:{name}`."""
    parts = re.split(r"\{(\w+)\}", pattern)
    if parts[1::2].count("type") != 1:
        raise HireError(
            f"the type pattern {pattern!r} must contain {{type}} exactly once",
            remedy="write a name with {type} in place of its type, as in 'concept:{type}:{name}'",
        )
    expression = ""
    for i, part in enumerate(parts):
        following = parts[i + 1][:1] if i + 1 < len(parts) else ""
        if i % 2 == 0:
            expression += re.escape(part)
        elif following:  # a field ends where the next literal begins
            expression += f"(?P<{'type' if part == 'type' else f'f{i}'}>[^{re.escape(following)}]+)"
        else:
            expression += f"(?P<{'type' if part == 'type' else f'f{i}'}>.+)"
    return f"^{expression}$"


def types_from_names(entities: Vocabulary, pattern: str) -> tuple[IntArray, Any]:
    """The entities whose names match a pattern, and the type in each name (a pyarrow array)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.extract_regex(entities.arrow(), compile_type_pattern(pattern))
    matching = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    return matching, pc.struct_field(found, "type").take(pa.array(matching))


def types_in_names(entities: Vocabulary) -> Types | None:
    """Types from names of NELL's form, if most names have that form."""
    matching, names = types_from_names(entities, NAME_PATTERN)
    return make_types(entities, [matching], [names]) if len(matching) > len(entities) / 2 else None


def _types(tables: Sequence[TripleTable], found: Owners, entities: Vocabulary, pattern: str | None) -> Types | None:
    owners, names = [], []
    for (number, kind), ids in found.items():
        if kind == "types" and (ids >= 0).any():
            owners.append(ids)
            names += tables[number].types.arrays()[1].chunks
    if pattern is not None:
        matching, of_names = types_from_names(entities, pattern)
        if not len(matching):
            raise HireError(
                f"no entity name matches the pattern {pattern!r}", remedy=f"the first name is {entities[0]!r}"
            )
        owners.append(matching)
        names.append(of_names)
    return make_types(entities, owners, names) if owners else None


def make_types(entities: Vocabulary, owners: Sequence[IntArray], names: Sequence[Any]) -> Types:
    """Types from the ids of entities (-1 for unknown ones) and pyarrow arrays of type names."""
    import pyarrow as pa

    encoded = pa.chunked_array(names, pa.large_string()).combine_chunks().dictionary_encode()
    all_owners = np.concatenate(owners)
    known = all_owners >= 0
    vocabulary = Vocabulary.of(encoded.dictionary, "type")
    return Types.of(vocabulary, all_owners[known], encoded.indices.to_numpy()[known], len(entities))


def _report(dataset: FewShotDataset, counts: IntArray, settings: BuildSettings) -> list[RelationReport]:
    rows = [
        RelationReport(
            task.name,
            len(task.pairs),
            task.split,
            f"more than {settings.more_than} and fewer than {settings.fewer_than} triples",
            task.candidate_count,
        )
        for task in dataset.tasks
    ]
    in_task = set(map(int, dataset.task_relations))
    for relation in np.argsort(-counts, kind="stable"):
        if int(relation) not in in_task:
            few = counts[relation] <= settings.more_than
            reason = f"{settings.more_than} triples or fewer" if few else f"{settings.fewer_than} triples or more"
            rows.append(
                RelationReport(dataset.graph.relations[int(relation)], int(counts[relation]), "background", reason)
            )
    return rows
