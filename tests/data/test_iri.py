from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyoxigraph import NamedNode

from hire.cli.predict import predict
from hire.data.iri import PREFIX, UNREADABLE, check_prefix, iri_of, is_iri, name_of
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.inference.export import to_ntriples


@pytest.mark.parametrize(
    "name",
    [
        "http://example.org/a",
        "HTTPS://example.org/ü?q=1#top",
        "http://example.org/a%20b",
        "ftp://example.org/x",
        "urn:isbn:0451450523",
        "URN:uuid:1",
    ],
)
def test_absolute_iris_stay_as_they_are(name: str) -> None:
    assert is_iri(name) and iri_of(name) == name == name_of(name)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("concept:city:rome", "concept%3Acity%3Arome"),
        ("mailto:someone@example.org", "mailto%3Asomeone%40example.org"),
        ("http://example.org/a b", "http%3A%2F%2Fexample.org%2Fa%20b"),
        ("http://example.org/100%", "http%3A%2F%2Fexample.org%2F100%25"),
        ("http://", "http%3A%2F%2F"),
        ("urn:isbn", "urn%3Aisbn"),
        ("urn:isbn:", "urn%3Aisbn%3A"),
        ("urn:hire:virus", "urn%3Ahire%3Avirus"),  # reserved: `virus` has this IRI
        ("a%20b", "a%2520b"),
        ("Zürich", "Z%C3%BCrich"),
        ('<">', "%3C%22%3E"),
    ],
)
def test_other_names_are_encoded_behind_a_prefix_and_come_back(name: str, encoded: str) -> None:
    assert iri_of(name) == f"urn:hire:{encoded}" and name_of(iri_of(name)) == name
    assert iri_of(name, "https://example.org/") == f"https://example.org/{encoded}"


@pytest.mark.parametrize("iri", ["urn:hire:", "urn:hire:a%2fb", "urn:hire:%ff", "urn:hire:a%09b", "urn:hire:a/b"])
def test_what_no_name_was_encoded_to_is_a_name_itself(iri: str) -> None:
    assert name_of(iri) == iri


@given(st.text(st.characters(codec="utf-8"), min_size=1))
@example("urn:hire:a b")
def test_every_name_has_an_iri_of_its_own(name: str) -> None:
    iri = iri_of(name)
    assert NamedNode(iri).value == iri
    assert UNREADABLE & set(name) or name_of(iri) == name


def test_prefixes_are_checked() -> None:
    check_prefix("https://example.org/#")
    with pytest.raises(HireError, match="not the beginning of an IRI"):
        check_prefix("no prefix")


def test_exported_facts_can_be_built_into_a_dataset_of_the_same_names(run: Callable[..., Any], tmp_path: Path) -> None:
    names = ["concept:city:rome", "http://example.org/a", "a b", 'x<>"{}|^`\\', "urn:hire:virus", "Zürich", "100%"]
    facts = {(head, relation, tail) for head in names for relation in "pqr" for tail in names if head != tail}
    (tmp_path / "facts.nt").write_text(to_ntriples(sorted(facts)), "utf-8")
    result = run("data", "build", tmp_path / "facts.nt", "-o", tmp_path / "built", "--more-than", "2")
    assert result.exit_code == 0, result.output
    dataset = open_dataset(tmp_path / "built")
    entities = dataset.graph.entities
    found = {(entities[h], task.name, entities[t]) for task in dataset.tasks for h, t in task.pairs.tolist()}
    assert found == facts


def test_the_command_line_has_the_same_prefix() -> None:
    (option,) = (option for option in predict.params if option.name == "prefix")
    assert option.default == PREFIX
