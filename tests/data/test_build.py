from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.build import BuildReport, BuildSettings, build, compile_type_pattern
from hire.data.dataset import SPLITS, FewShotDataset
from hire.data.sources.columns import TripleTable
from hire.data.sources.delimited import TableFormat, read_triples
from hire.errors import HireError
from tests.conftest import random_triples


def table_of(triples: list[tuple[str, str, str]], **columns: list[tuple[str, str]]) -> TripleTable:
    table = TripleTable("test.tsv", lines=np.arange(1, len(triples) + 1))
    for row in triples:
        table.triples.append(*row)
    for name, pairs in columns.items():
        for pair in pairs:
            getattr(table, name).append(*pair)
    return table


def build_of(*tables: TripleTable, **settings: Any) -> tuple[FewShotDataset, BuildReport]:
    return build(tables, BuildSettings("test", **settings))


def facts_of(dataset: FewShotDataset) -> set[tuple[str, str, str]]:
    """All facts of a dataset, by name."""
    entities, relations = dataset.graph.entities, dataset.graph.relations
    found = {(entities[h], relations[r], entities[t]) for h, r, t in dataset.graph.triples}
    return found | {(entities[h], task.name, entities[t]) for task in dataset.tasks for h, t in task.pairs}


def test_every_fact_is_in_the_background_or_in_a_task() -> None:
    triples = random_triples()
    dataset, report = build_of(table_of(triples))
    assert facts_of(dataset) == set(triples)
    counts = Counter(relation for _, relation, _ in triples)
    roles = {row.name: row.role for row in report.relations}
    assert {name for name, role in roles.items() if role in SPLITS} == {
        name for name, count in counts.items() if 50 < count < 500
    }
    assert {row.name: row.triples for row in report.relations} == counts
    reasons = {row.name: row.reason for row in report.relations if row.role == "background"}
    assert reasons == {"few": "50 triples or fewer", "many": "500 triples or more"}
    background = {dataset.graph.relations[int(r)] for r in dataset.graph.background_relations}
    assert background == {"few", "many"}


def test_tasks_keep_the_order_of_the_file() -> None:
    triples = random_triples()
    dataset, _ = build_of(table_of(triples))
    for task in dataset.tasks:
        expected = [(h, t) for h, relation, t in triples if relation == task.name]
        names = dataset.graph.entities
        assert [(names[h], names[t]) for h, t in task.pairs] == expected


def test_the_bounds_are_exclusive() -> None:
    sizes = {f"r{n}": n for n in range(3, 10)}
    dataset, _ = build_of(table_of(random_triples(1, 30, sizes)), more_than=3, fewer_than=9)
    assert {len(task.pairs) for task in dataset.tasks} == {4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    ("count", "split", "expected"),
    [
        (67, (51, 5, 11), (51, 5, 11)),
        (3, (51, 5, 11), (1, 1, 1)),
        (10, (1, 1, 8), (1, 1, 8)),
        (4, (1, 8, 8), (1, 1, 2)),
    ],
)
def test_split_sizes(count: int, split: tuple[int, int, int], expected: tuple[int, int, int]) -> None:
    triples = random_triples(1, 30, {f"r{i}": 5 for i in range(count)})
    dataset, _ = build_of(table_of(triples), more_than=4, split=split)
    assert tuple(dataset.split_sizes[name] for name in SPLITS) == expected
    assert len({task.relation for task in dataset.tasks}) == count


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_relations() -> None:
    triples = random_triples(1, 30, {f"r{i}": 5 for i in range(20)})

    def split(seed: int, rows: list[tuple[str, str, str]]) -> dict[str, str]:
        return {task.name: task.split for task in build_of(table_of(rows), more_than=4, seed=seed)[0].tasks}

    assert split(1, triples) == split(1, triples[::-1]) != split(2, triples)


def test_duplicates_are_dropped_counted_and_noted_with_their_line() -> None:
    triples = random_triples()
    repeated = [*triples[:10], triples[3], *triples[10:], triples[3]]
    dataset, report = build_of(table_of(repeated))
    assert facts_of(dataset) == set(triples) and len(dataset.facts.keys) == len(triples)
    assert report.skipped == {"duplicate triples": 2}
    (note,) = report.notes
    assert note.line == 11 and note.file == "test.tsv" and "2 duplicate triples" in note.message


def test_too_few_tasks_is_an_error_that_shows_the_largest_relations() -> None:
    with pytest.raises(HireError, match="2 of 3 relations have more than 50") as caught:
        build_of(table_of(random_triples(1, 60, {"a": 60, "b": 70, "c": 20})))
    assert "b (70), a (60), c (20)" in str(caught.value.problems[0].remedy)


@pytest.mark.parametrize("wrong", [{"more_than": 5, "fewer_than": 6}, {"split": (0, 1, 1)}, {"type_pattern": "x"}])
def test_wrong_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(HireError) as caught:
        build_of(table_of(random_triples()), **wrong)
    assert caught.value.problems[0].remedy


def test_no_triples_at_all() -> None:
    with pytest.raises(HireError, match="no triples"):
        build_of(table_of([]))


def test_candidates_by_range_and_all() -> None:
    table = table_of(random_triples())
    dataset, _ = build_of(table, candidates="range")
    for task in dataset.tasks:
        assert task.candidates is not None
        assert set(task.candidates.tolist()) == set(task.pairs[:, 1].tolist())
    assert all(task.candidates is None for task in build_of(table, candidates="all")[0].tasks)
    assert all(task.candidates is None for task in build_of(table)[0].tasks)


def test_candidates_by_type() -> None:
    triples = random_triples()
    entities = sorted({name for h, _, t in triples for name in (h, t)})
    types = [(name, f"type{int(name[1:]) % 3}") for name in entities if name != "e7"]
    types += [("e1", "type0"), ("nobody", "type9")]
    dataset, _report = build_of(table_of(triples, types=types))
    kinds: dict[str, set[str]] = {}
    for name, kind in types:
        kinds.setdefault(name, set()).add(kind)
    for task in dataset.tasks:
        tails = {dataset.graph.entities[t] for t in task.pairs[:, 1]}
        wanted = set().union(*(kinds.get(tail, set()) for tail in tails))
        expected = {name for name in entities if kinds.get(name, set()) & wanted} | tails
        assert task.candidates is None or {dataset.graph.entities[c] for c in task.candidates} == expected
    with pytest.raises(HireError, match="no entity types"):
        build_of(table_of(triples), candidates="type")


def test_types_from_a_pattern_and_labels() -> None:
    triples = [(f"c:{h[1]}:{h}", r, f"c:{t[1]}:{t}") for h, r, t in random_triples()] + [("odd", "few", "c:1:e1")]
    labels = [("odd", "An odd one"), ("odd", "second label"), ("unknown", "x")]
    dataset, _ = build_of(table_of(triples, labels=labels), type_pattern="c:{type}:{name}")
    graph = dataset.graph
    assert graph.types is not None and set(graph.types.names) == set("123456789") - {"0"} | (
        {"0"} & set(graph.types.names)
    )
    number = graph.entities.id("odd")
    assert graph.label(number) == "An odd one" and len(graph.types.of_entity(number)) == 0
    first = graph.entities.id("c:1:e1")
    assert graph.label(first) == "c:1:e1"
    assert [graph.types.names[t] for t in graph.types.of_entity(first)] == ["1"]
    with pytest.raises(HireError, match="no entity name matches the pattern"):
        build_of(table_of(triples), type_pattern="zzz:{type}")


@pytest.mark.parametrize(
    ("pattern", "name", "kind"),
    [
        ("concept:{type}:{name}", "concept:person:a:b", "person"),
        ("{type}/{name}", "person/x", "person"),
        ("{name}.{type}", "x.person", "person"),
        ("http://x.org/{type}#{id}", "http://x.org/person#1", "person"),
    ],
)
def test_type_patterns(pattern: str, name: str, kind: str) -> None:
    import re

    found = re.match(compile_type_pattern(pattern), name)
    assert found is not None and found["type"] == kind


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    triples = random_triples(2, 60)
    types = [(f"e{i}", f"t{i % 4}") for i in range(60)]
    for name in ("one", "two"):
        build_of(table_of(triples, types=types, labels=[("e1", "first")]), seed=3)[0].save(tmp_path / name)
    first, second = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    )
    assert first == second and len(first) > 10


def test_several_sources_are_one_graph() -> None:
    triples = random_triples()
    dataset, _ = build_of(table_of(triples[:300]), table_of(triples[200:]))
    assert facts_of(dataset) == set(triples)


small_name = st.sampled_from(["a", "b", "c", "d", "ä"])


@settings(deadline=None)
@given(
    st.lists(st.tuples(small_name, st.sampled_from(["r", "s", "t", "u"]), small_name), max_size=60),
    st.lists(st.tuples(small_name, st.sampled_from(["x", "y"])), max_size=4),
    st.sampled_from(["auto", "type", "range", "all"]),
    st.integers(0, 3),
)
def test_whatever_the_triples_there_is_a_valid_dataset_or_an_error(
    tmp_path_factory: pytest.TempPathFactory,
    triples: list[tuple[str, str, str]],
    types: list[tuple[str, str]],
    candidates: Any,
    more_than: int,
) -> None:
    try:
        dataset, _report = build_of(table_of(triples, types=types), candidates=candidates, more_than=more_than)
    except HireError:
        return
    directory = tmp_path_factory.mktemp("built") / "dataset"
    dataset.save(directory)
    again = FewShotDataset.open(directory)
    assert facts_of(again) == set(triples)
    assert len(again.facts.keys) == len(set(triples))
    everything = set(range(len(again.graph.entities)))
    for task in again.tasks:
        assert more_than < len(task.pairs) < 500
        assert set(task.pairs[:, 1].tolist()) <= (
            everything if task.candidates is None else set(task.candidates.tolist())
        )
    assert {task.split for task in again.tasks} == set(SPLITS)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([b"a\tr\tb\n", b"b\ts\tc\n", b"c\tt\ta\n", b"a\tr\tc\n", b"\n", b"x\r\n", b"\xff", b"\t"]))
)
def test_whatever_the_bytes_there_is_a_valid_dataset_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "graph.tsv"
    path.write_bytes(b"".join(parts))
    try:
        dataset, _ = build_of(read_triples(path, TableFormat()), more_than=0)
    except HireError as error:
        assert error.problems[0].remedy
        return
    assert facts_of(dataset) == {tuple(part.decode().split()) for part in parts if part.count(b"\t") == 2}
