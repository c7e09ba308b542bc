"""Inputs whose structure matters, made by hypothesis: tables, settings, command lines and sequences of requests.

What is right must be read exactly, and what is wrong refused. `make test` tries some, `make torture` thousands.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from hire import progress
from hire.cli import hire as command
from hire.cli import main
from hire.data.dataset import FewShotDataset
from hire.data.sources.reading import SourceOptions, read_lines, read_sources
from hire.errors import HireError
from hire.service.app import create_app
from hire.service.schemas import Problem
from hire.service.service import Service
from hire.service.store import Store
from hire.systems.registry import system_names
from hire.training.settings import RunSettings
from hire.util.settings import items
from tests.faults.mutate import NUMBERS_AS_TEXT
from tests.faults.support import how_many
from tests.faults.test_inputs import SECONDS, SEED
from tests.support import random_model

Tell = Callable[..., None]
HEADER = ("head", "relation", "tail")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1, max_size=20)
ROWS = st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=12)
NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.sampled_from([2**63, 10**400, 1e308, -0.0]))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), NUMBERS, st.text(max_size=20)),
    lambda part: st.one_of(st.lists(part, max_size=4), st.dictionaries(st.text(max_size=8), part, max_size=4)),
    max_leaves=6,
)


class Cases:
    """How many examples a test tries, and what it says of them in the end."""

    def __init__(self, sample: int, everything: int) -> None:
        self.count = how_many(sample, everything)
        self.tried = self.read = 0

    def each(self, test: Callable[..., bool], **strategies: st.SearchStrategy[Any]) -> None:
        """Try a test, which says whether its case was read, with examples of some strategies."""

        def counted(**parts: Any) -> None:
            self.tried += 1
            self.read += test(**parts)

        limits = settings(
            max_examples=self.count,
            deadline=1_000 * SECONDS,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        seed(SEED)(limits(given(**strategies)(counted)))()

    def tell(self, tell: Tell, name: str) -> None:
        """The row of the table."""
        assert 0 < self.read < self.tried
        tell("structures", name, cases=self.tried, read=self.read)


def written(rows: list[tuple[str, str, str]], form: str, **how: Any) -> bytes:
    """A table as bytes."""
    rows = [HEADER, *rows] if how["header"] else rows
    if form == "csv":
        stream = io.StringIO(newline="")
        csv.writer(stream, quoting=how["quoting"], lineterminator=how["end"]).writerows(rows)
        text = stream.getvalue()
    else:
        text = "".join("\t".join(row) + how["end"] for row in rows)
    if not how["last_end"]:
        text = text.removesuffix(how["end"])
    return ("\ufeff" if how["mark"] else "").encode() + text.encode()


def test_a_table_is_read_exactly_as_it_was_written(tmp_path: Path, tell: Tell) -> None:
    def exact(rows: list[tuple[str, str, str]], form: str, compressed: bool, **how: Any) -> bool:
        if rows and not how["header"] and not how["mark"] and rows[0][0].startswith("\ufeff"):
            return False  # is taken for a byte order mark, and rightly so
        content = written(rows, form, **how)
        path = tmp_path / f"table.{form}{'.gz' if compressed else ''}"
        path.write_bytes(gzip.compress(content, 1) if compressed else content)
        try:
            (table,) = read_sources([str(path)], SourceOptions(header=how["header"]), tmp_path)
        except HireError:
            assert not rows
            return False
        assert list(zip(*(column.to_pylist() for column in table.triples.arrays()), strict=True)) == rows
        return True

    cases = Cases(60, 3_000)
    cases.each(
        exact,
        rows=ROWS,
        form=st.sampled_from(["tsv", "csv"]),
        compressed=st.booleans(),
        header=st.booleans(),
        quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        end=st.sampled_from(["\n", "\r\n"]),
        last_end=st.booleans(),
        mark=st.booleans(),
    )
    cases.tell(tell, "tables")


def test_heads_are_read_exactly_as_they_were_written(tmp_path: Path, tell: Tell) -> None:
    def exact(names: list[str], end: str) -> bool:
        path = tmp_path / "heads.txt"
        path.write_bytes(end.join(names).encode())
        assert [name for _, name in read_lines(path)] == names
        return bool(names)

    cases = Cases(40, 1_000)
    unmarked = NAMES.filter(lambda name: not name.startswith("\ufeff"))
    cases.each(exact, names=st.lists(unmarked), end=st.sampled_from(["\n", "\r\n"]))
    cases.tell(tell, "lists of heads")


def test_settings_are_taken_exactly_or_refused(tell: Tell) -> None:
    known = {name: dict(items(RunSettings.of(name).settings)) for name in system_names()}

    def taken(data: st.DataObject) -> bool:
        system = data.draw(st.sampled_from(sorted(known)))
        names = st.one_of(st.sampled_from(sorted(known[system]) or [""]), st.text(max_size=8))
        changes = {}
        for name in data.draw(st.lists(names, min_size=1, max_size=3)):
            default = st.just(known[system].get(name))
            changes[name] = data.draw(st.one_of(default, st.integers(0, 9), st.floats(0, 1), JSON))
        try:
            found = RunSettings.of(system).changed(changes)
        except HireError as error:
            assert all(problem.message for problem in error.problems)
            return False
        assert RunSettings.from_plain(json.loads(json.dumps(found.to_plain(), allow_nan=False))) == found
        assert all(math.isfinite(value) for _, value in items(found.settings) if isinstance(value, float))
        return True

    cases = Cases(60, 3_000)
    cases.each(taken, data=st.data())
    cases.tell(tell, "settings")


def commands(group: click.Group, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with their words."""
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from commands(found, *before, name)
        else:
            yield (*before, name), found


PARSED_ONLY = {("demo",), ("data", "get"), ("reproduce",)}  # these need no argument, or fetch something


def test_whatever_the_command_line_it_ends_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    monkeypatch.chdir(tmp_path)
    known = {words: found for words, found in commands(command) if words not in PARSED_ONLY}
    values = st.one_of(st.text(max_size=12), st.sampled_from(NUMBERS_AS_TEXT), NUMBERS.map(str)).map(
        lambda value: value.replace("/", "-")
    )

    def ends(data: st.DataObject) -> bool:
        words = data.draw(st.sampled_from(sorted(known)))
        options = [name for parameter in known[words].params for name in parameter.opts if name.startswith("-")]
        parts = st.one_of(values, st.sampled_from(options or [""]), st.tuples(st.sampled_from(options or [""]), values))
        given_ = [part for found in data.draw(st.lists(parts, max_size=5)) for part in _words_of(found)]
        out, err = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main([*words, *given_])
        except SystemExit as end:
            assert end.code in (None, 0, 2), given_
            assert end.code != 2 or (out.getvalue() + err.getvalue()).strip(), given_  # the report of `hire doctor`
            return not end.code
        finally:
            progress.show(False)
        return True

    cases = Cases(60, 4_000)
    cases.each(ends, data=st.data())
    cases.tell(tell, "command lines")


def _words_of(part: str | tuple[str, ...]) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else part


ENTITIES = st.one_of(st.sampled_from(["virus", "organism", "cell", "tissue", "plant"]), JSON)
PAIR = st.one_of(st.fixed_dictionaries({"head": ENTITIES, "tail": ENTITIES}), JSON)
TEACH = st.fixed_dictionaries(
    {"name": st.one_of(st.text(max_size=8), JSON), "references": st.one_of(st.lists(PAIR, max_size=3), JSON)},
    optional={"scope": JSON, "by": JSON, "threshold": JSON, "client": JSON},
)
VERDICT = st.fixed_dictionaries(
    {"head": ENTITIES, "tail": ENTITIES, "verdict": st.one_of(st.sampled_from(["accept", "reject", "unsure"]), JSON)},
    optional={"by": JSON, "client": JSON},
)
REQUESTS = st.one_of(
    st.tuples(st.just("POST"), st.just("/v1/relations"), TEACH),
    st.tuples(st.just("POST"), st.just("/v1/relations/{id}/verdicts"), VERDICT),
    st.tuples(st.just("POST"), st.sampled_from(["/v1/relations/{id}/jobs", "/v1/relations/{id}/undo"]), JSON),
    st.tuples(st.just("PATCH"), st.just("/v1/relations/{id}"), JSON),
    st.tuples(st.just("DELETE"), st.just("/v1/relations/{id}"), st.none()),
    st.tuples(st.just("GET"), st.just("/v1/relations/{id}/answers?head=cell&k=3"), st.none()),
)


def test_whatever_the_requests_what_was_confirmed_is_there(umls: FewShotDataset, tmp_path: Path, tell: Tell) -> None:
    store = Store(tmp_path / "state")
    service = Service(random_model(umls), store)
    right = {"name": "kind", "references": [{"head": "virus", "tail": "organism"}]}

    def is_there(requests: list[tuple[str, str, Any]]) -> bool:
        there = {relation["id"] for relation in client.get("/v1/relations?limit=200").json()["relations"]}
        last = client.post("/v1/relations", json=right).json()["id"]
        there.add(last)
        done = 0
        for method, path, body in requests:
            content = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
            headers = {"content-type": "application/json"}
            answer = client.request(method, path.replace("{id}", last), content=content, headers=headers)
            assert answer.status_code < 500, (method, path, body, answer.text)
            if answer.status_code >= 400:
                assert answer.json().keys() == Problem.model_fields.keys()
                continue
            done += 1
            if (method, path) == ("POST", "/v1/relations"):
                last = answer.json()["id"]
                there.add(last)
            if method == "DELETE":
                there.discard(last)
        found = {relation["id"] for relation in client.get("/v1/relations?limit=200").json()["relations"]}
        assert found == there
        for relation in found:
            client.delete(f"/v1/relations/{relation}")
        return bool(done)

    cases = Cases(25, 1_500)
    app = create_app(service)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        cases.each(is_there, requests=st.lists(REQUESTS, max_size=4))
    store.close()
    cases.tell(tell, "sequences of requests")
