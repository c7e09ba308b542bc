from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hire.data.published.read import FILES, inspect, read_published
from hire.errors import HireError
from tests.conftest import write_layout


def problems(directory: Path) -> list[str]:
    return [str(problem).replace(str(directory) + "/", "") for problem in inspect(directory)[1].problems]


def warnings(directory: Path) -> list[str]:
    return [str(problem).replace(str(directory) + "/", "") for problem in inspect(directory)[1].warnings]


def test_a_correct_layout(tmp_path: Path) -> None:
    dataset = read_published(write_layout(tmp_path / "tiny"))
    graph = dataset.graph
    assert dataset.name == "tiny" and list(graph.entities) == ["b", "a", "c", "d"]
    assert dataset.split_sizes == {"train": 1, "dev": 1, "test": 1}
    test = dataset.split("test")[0]
    assert test.name == "r3" and test.pairs.tolist() == [[1, 3], [3, 1], [1, 0]]
    assert dataset.facts.tails(1, test.relation).tolist() == [0, 3]
    assert [graph.relation_name(r) for r, _ in graph.neighbors_of(0)] == ["links_inv", "links", "likes_inv"]
    assert problems(tmp_path / "tiny") == []


def test_true_tails_beyond_the_tasks_count_as_known(tmp_path: Path) -> None:
    true = {"ar1": ["b"], "br1": ["c"], "cr1": ["d"], "ar2": ["c"], "br2": ["d"], "ar3": ["d", "b", "c"], "dr3": ["a"]}
    dataset = read_published(write_layout(tmp_path, e1rel_e2__json=true | {"xunknown": ["?"]}))
    assert dataset.facts.tails(1, dataset.split("test")[0].relation).tolist() == [0, 2, 3]


def test_candidates_keep_their_order(tmp_path: Path) -> None:
    candidates = {"r1": ["d", "b", "c"], "r2": ["d", "c"], "r3": ["d", "a", "b"], "other": 5}
    dataset = read_published(write_layout(tmp_path, rel2candidates__json=candidates))
    of_train = dataset.split("train")[0].candidates
    assert of_train is not None and of_train.tolist() == [3, 0, 2]


GOOD_TRAIN = [["a", "r1", "b"], ["b", "r1", "c"], ["c", "r1", "d"]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"path_graph": "a\tlinks\n"}, "path_graph:1: expected 3 columns, found 2"),
        ({"path_graph": ""}, "path_graph: is empty"),
        ({"path_graph": b"a\tlinks\tb\n\xff\tlinks\tb\n"}, "path_graph:2: invalid UTF-8"),
        ({"path_graph": "a\tlinks\tb\nb\tlinks\tz\n"}, "path_graph:2: unknown entity 'z'"),
        ({"path_graph": "a\tlinks\tb\na\tzzz\tb\n"}, "path_graph:2: relation 'zzz' is not in relation2ids"),
        ({"path_graph": "a\tr1\tb\n"}, "train_tasks.json:1: the task relation 'r1' is in the background"),
        ({"train_tasks__json": '{"r1": [["a", "r1"'}, "train_tasks.json:1: is not valid JSON"),
        ({"train_tasks__json": '{\n"r1": [],\n'}, "train_tasks.json:3: is not valid JSON"),
        ({"train_tasks__json": b"\n\xff"}, "train_tasks.json:2: invalid UTF-8"),
        ({"train_tasks__json": ""}, "train_tasks.json:1: is not valid JSON"),
        ({"train_tasks__json": "[]"}, "train_tasks.json:1: contains a JSON list"),
        ({"train_tasks__json": {}}, "train_tasks.json:1: has no tasks"),
        ({"train_tasks__json": {"r1": 5}}, "train_tasks.json:1: 'r1' has a int"),
        ({"train_tasks__json": {"r1": [["a", "r1"], *GOOD_TRAIN]}}, "triple 1 of 'r1' is not [head, relation, tail]"),
        ({"train_tasks__json": {"r1": [["a", "r9", "b"], *GOOD_TRAIN]}}, "triple 1 of 'r1' has the relation 'r9'"),
        ({"train_tasks__json": {"r1": [["q", "r1", "b"], *GOOD_TRAIN]}}, "train_tasks.json:1: unknown entity 'q'"),
        (
            {"train_tasks__json": {"r1": GOOD_TRAIN + GOOD_TRAIN[:1]}},
            "'r1' has the triple of 'a' and 'b' twice",
        ),
        (
            {"train_tasks__json": {"r1": GOOD_TRAIN[:1]}},
            "'r1' needs at least 2 triples, a reference and a query; found 1",
        ),
        (
            {"train_tasks__json": {"r2": [["a", "r2", "c"], ["b", "r2", "d"]]}},
            "dev_tasks.json:1: the task 'r2' is also in train",
        ),
        ({"train_tasks__json": '{"r1": [], "r1": []}'}, "has the duplicate key 'r1'"),
        (
            {"rel2candidates__json": {"r1": ["a", "b", "c"], "r2": ["c", "d"], "r3": ["a", "b", "d"]}},
            "the tail 'd' of 'r1'",
        ),
        ({"rel2candidates__json": {"r2": ["c", "d"], "r3": ["a", "b", "d"]}}, "the task 'r1' has no candidates"),
        (
            {"rel2candidates__json": {"r1": [1], "r2": ["c", "d"], "r3": ["a", "b", "d"]}},
            "candidates that are not a list",
        ),
        ({"rel2candidates__json": {"r1": ["b", "c", "d", "z"], "r2": ["c", "d"], "r3": ["a", "b", "d"]}}, "entity 'z'"),
        (
            {"rel2candidates__json": {"r1": ["b", "c", "d", "d"], "r2": ["c", "d"], "r3": ["a", "b", "d"]}},
            "has duplicate candidates (1)",
        ),
        ({"e1rel_e2__json": {}}, "e1rel_e2.json: has no list of true tails for 'ar1'"),
        ({"ent2ids": {"a": 0, "b": 1, "c": 2, "d": 4}}, "ent2ids:1: 'd' has the id 4"),
        ({"ent2ids": {"a": 0, "b": 1, "c": 2, "d": 2}}, "ent2ids:1: 'd' and 'c' have the same id 2"),
        ({"ent2ids": {"a": 0, "b": 1, "c": 2, "d": "x"}}, "ent2ids:1: 'd' has 'x', expected an integer id"),
        ({"ent2ids": {"a": 0, "b": 1, "c": 2, "d\t": 3}}, "contains a tab"),
        ({"ent2ids": '{"a": 0, "\\ud800": 1}'}, "unpaired surrogate"),
        ({"ent2ids": "[" * 100_000}, "nested too deeply"),
        ({"ent2ids": '{"a": ' + "9" * 5000 + "}"}, "cannot be read"),
        ({"relation2ids": {"links": 0, "likes": True}}, "relation2ids:1: 'likes' has True"),
        ({"relation2ids": {"links": 0, "likes": 1, "likes_inv": 2}}, "relation 'links_inv' is not in relation2ids"),
        ({"train_tasks__json": {"": [["a", "", "b"], ["b", "", "c"]]}}, "the relation '' is empty"),
        *(({name.replace(".", "__"): None}, f"{name}: is missing") for name in FILES),
    ],
)
def test_each_problem_is_found_with_file_and_line(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    directory = write_layout(tmp_path / "layout", **changes)
    assert any(expected in found for found in problems(directory)), problems(directory)
    with pytest.raises(HireError):
        read_published(directory)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (b"\xef\xbb\xbfa\tlinks\tb\n", "path_graph:1: starts with a byte order mark"),
        (b"a\tlinks\tb\r\n", "path_graph:1: has CRLF"),
        (b"a\tlinks\tb\na\tlinks\tb\n", "path_graph:2: duplicate of the triple on line 1"),
    ],
)
def test_warnings_are_told_but_the_dataset_opens(
    tmp_path: Path, run: Callable[..., Any], graph: bytes, expected: str
) -> None:
    directory = write_layout(tmp_path / "layout", path_graph=graph)
    assert problems(directory) == [] and [expected in found for found in warnings(directory)] == [True]
    assert read_published(directory).graph.triples.tolist() == [[1, 0, 0]]
    result = run("data", "verify", directory)
    assert result.exit_code == 2 and expected in result.output


def test_ambiguous_keys_are_found(tmp_path: Path) -> None:
    """The filter's keys are concatenations: 'a' + 'br' and 'ab' + 'r' cannot be told apart."""
    tasks = {"br": [["a", "br", "c"], ["c", "br", "a"]], "r": [["ab", "r", "c"], ["c", "r", "a"]]}
    true = {"abr": ["c"], "cbr": ["a"], "cr": ["a"], "ar2": ["c"], "br2": ["d"], "ar3": ["d", "b"], "dr3": ["a"]}
    directory = write_layout(
        tmp_path,
        ent2ids={"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4},
        train_tasks__json=tasks,
        rel2candidates__json={name: ["a", "b", "c", "d"] for name in ("r", "br", "r2", "r3")},
        e1rel_e2__json=true,
    )
    assert any("the key 'abr' means both" in found for found in problems(directory))


def test_all_problems_are_listed_not_only_the_first(tmp_path: Path) -> None:
    directory = write_layout(
        tmp_path,
        path_graph="a\tlinks\tz\nq\tlinks\tb\na\tb\n",
        dev_tasks__json="{",
        rel2candidates__json={"r1": ["a"], "r3": ["a", "b", "d"]},
    )
    found = problems(directory)
    for expected in (
        "unknown entity 'z'",
        "unknown entity 'q'",
        ":3: expected 3 columns, found 2",
        "dev_tasks.json:1: is not valid",
        "'r1' is not among",
    ):
        assert any(expected in problem for problem in found), found
    with pytest.raises(HireError, match="more problems") as caught:
        read_published(directory)
    assert "hire data verify" in str(caught.value.problems[-1].remedy)


def test_every_wrong_number_is_listed(tmp_path: Path) -> None:
    directory = write_layout(tmp_path, ent2ids={"a": 0, "b": 9, "c": "x", "d": 0})
    found = [problem for problem in problems(directory) if problem.startswith("ent2ids")]
    assert len(found) == 3 and all(any(f"'{name}'" in problem for problem in found) for name in "bcd")


def test_every_file_damaged_at_once_is_still_a_list(tmp_path: Path) -> None:
    directory = write_layout(tmp_path, **{name.replace(".", "__"): b"\xff{" for name in FILES})
    assert {problem.split(":")[0] for problem in problems(directory)} == set(FILES)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_the_bytes_there_is_a_dataset_or_an_error(tmp_path: Path, data: st.DataObject) -> None:
    directory = write_layout(tmp_path / "layout")
    name = data.draw(st.sampled_from(FILES))
    content = (directory / name).read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 5)))
    piece = data.draw(
        st.binary(max_size=4) | st.sampled_from([b'"', b"\t", b"\n", b"[", b"}", b"null", b"1e999", b"\\ud800"])
    )
    (directory / name).write_bytes(content[:start] + piece + content[end:])
    try:
        dataset = read_published(directory)
    except HireError as error:
        assert all(str(directory) in str(problem) or "more problems" in str(problem) for problem in error.problems)
        return
    assert len(dataset.tasks) == 3
    for task in dataset.tasks:
        assert dataset.facts.contain(task.pairs[:, 0], task.relation, task.pairs[:, 1]).all()


def test_nell_one_is_known_and_without_problems(nell_one_directory: Path) -> None:
    dataset, report = inspect(nell_one_directory)
    assert report.problems == report.warnings == report.notes == []
    assert report.known_dataset is not None and report.known_dataset.name == "nell-one"
    assert all(report.form_of(name) for name in FILES)
    assert dataset is not None and dataset.graph.types is not None and len(dataset.graph.entities) == 68_544


def test_fb15k237_one_is_known_and_without_problems(fb15k237_one_directory: Path) -> None:
    dataset, report = inspect(fb15k237_one_directory)
    assert report.problems == report.warnings == report.notes == []
    assert report.known_dataset is not None and report.known_dataset.name == "fb15k237-one"
    assert all(report.form_of(name) == "published" for name in FILES)
    assert dataset is not None and len(dataset.graph.entities) == 14_479 and len(dataset.graph.triples) == 298_830
    for split, tasks, triples in (("train", 32, 7_471), ("dev", 5, 1_036), ("test", 8, 2_284)):
        assert (len(dataset.split(split)), len(dataset.task_triples(split))) == (tasks, triples)


def test_a_file_that_cannot_be_downloaded_is_not_said_to_be(fb15k237_one_directory: Path, tmp_path: Path) -> None:
    for name in set(FILES) - {"dev_tasks.json"}:
        (tmp_path / name).symlink_to(fb15k237_one_directory / name)
    tasks = json.loads((fb15k237_one_directory / "dev_tasks.json").read_text())
    (tmp_path / "dev_tasks.json").write_text(json.dumps(tasks, indent=1))
    (problem,) = inspect(tmp_path)[1].warnings
    assert "differs from the published file of FB15k237-One" in problem.message
    assert problem.remedy == "take the published one"


def test_a_changed_file_of_a_known_dataset_is_told_but_opens(
    nell_one_directory: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    for name in FILES:
        (tmp_path / name).symlink_to(nell_one_directory / name)
    tasks = json.loads((tmp_path / "dev_tasks.json").read_text())
    (tmp_path / "dev_tasks.json").unlink()
    (tmp_path / "dev_tasks.json").write_text(json.dumps(tasks, indent=1))
    _, report = inspect(tmp_path)
    assert [problem.file for problem in report.warnings] == [str(tmp_path / "dev_tasks.json")]
    assert len(read_published(tmp_path).split("dev")) == 5
    result = run("data", "verify", tmp_path)
    assert result.exit_code == 2 and "differs from the published file of NELL-One" in result.output


def test_a_renamed_entity_is_missed_wherever_it_stands(nell_one_directory: Path, tmp_path: Path) -> None:
    """The files that refer to it are the published ones, but the whole is not."""
    for name in FILES:
        (tmp_path / name).symlink_to(nell_one_directory / name)
    text = (tmp_path / "ent2ids").read_text()
    (tmp_path / "ent2ids").unlink()
    (tmp_path / "ent2ids").write_text(text.replace('"concept:sportsleague:mlb"', '"concept:sportsleague:MLB"'))
    _, report = inspect(tmp_path)
    expected = "unknown entity 'concept:sportsleague:mlb'"
    assert {Path(str(problem.file)).name for problem in report.problems if problem.message == expected} >= {
        "path_graph",
        "train_tasks.json",
    }
    lines = (tmp_path / "path_graph").read_text().splitlines()
    mentions = sum(line.split("\t")[::2].count("concept:sportsleague:mlb") for line in lines)
    assert sum(Path(str(problem.file)).name == "path_graph" for problem in report.problems) == mentions > 50


def test_nell_one_protocol_counts(nell_one: Any) -> None:
    for shots, queries in ((1, 2_147), (5, 2_103)):
        assert sum(len(task.pairs) - shots for task in nell_one.split("test", shots)) == queries
    for task in nell_one.tasks:
        assert np.isin(task.pairs[:, 1], task.candidates).all()
