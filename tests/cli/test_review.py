from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hire.inference.open import open_model
from hire.service.log import NewEntry
from hire.service.relations import Draft
from hire.service.service import Service
from hire.service.store import Store


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state file with a relation, of which two pairs are accepted."""
    path = tmp_path / "state.sqlite"
    store = Store(path)
    service = Service(open_model("umls-one"), store)
    relation = service.relations.add(Draft("part_of", [("tissue", "animal")], "http://example.org/part"))
    for head in ("tissue", "cell"):
        service.review.judge(relation, NewEntry(head, "plant", "accept", 0.5), service.review.author("ana"))
    service.relations.add(Draft("other", [("tissue", "animal")]))
    store.close()
    return path


def test_facts_are_exported(run: Callable[..., Result], state: Path, tmp_path: Path) -> None:
    assert run("review", "export", state, "part_of").output == "tissue\tpart_of\tplant\ncell\tpart_of\tplant\n"
    target = tmp_path / "facts.nt"
    found = run(
        "review", "export", "umls-one", "part_of", "--state", state, "--format", "ntriples", "-o", target, "--json"
    )
    assert json.loads(found.output)["facts"] == 2
    assert target.read_text().splitlines()[0] == "<urn:hire:tissue> <http://example.org/part> <urn:hire:plant> ."
    told = run("review", "export", state, "part_of", "-o", target)
    assert told.exit_code == 0 and "2 facts of part_of" in told.output and "tissue" in target.read_text()
    refused = run("review", "export", state, "part_of", "--format", "quickstatements", "-o", target)
    assert refused.exit_code == 2 and "Wikidata" in refused.output
    assert "tissue" in target.read_text()  # a failed export leaves the file as it was


def test_verdicts_are_imported_and_exported_again(run: Callable[..., Result], state: Path, tmp_path: Path) -> None:
    table = tmp_path / "verdicts.csv"
    table.write_text("head,tail,verdict\nvirus,organism,accept\nfungus,cell,reject\n")
    found = run("review", "import", "umls-one", "part_of", table, "--state", state, "--by", "bob", "--json")
    assert json.loads(found.output)["entries"] == 2, found.output
    log = tmp_path / "log.ndjson"
    run("review", "export", state, "part_of", "--format", "log", "-o", log)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(entry["head"], entry["by"]) for entry in entries[2:]] == [("virus", "bob"), ("fungus", "bob")]
    again = run("review", "import", "umls-one", "other", log, "--state", state)
    assert "4 new verdicts of 4" in again.output
    assert run("review", "export", state, "other").output == (
        "tissue\tother\tplant\ncell\tother\tplant\nvirus\tother\torganism\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [("virsu\torganism\n", ":1: unknown entity 'virsu'"), ("a\n", "expected"), ("virus\tcell\tperhaps\n", "perhaps")],
)
def test_mistakes_are_told_by_line(
    run: Callable[..., Result], state: Path, tmp_path: Path, text: str, words: str
) -> None:
    table = tmp_path / "verdicts.tsv"
    table.write_text(text)
    found = run("review", "import", "umls-one", "part_of", table, "--state", state)
    assert found.exit_code == 2 and words in found.output and "verdicts.tsv" in found.output


def test_what_is_not_there_is_told(run: Callable[..., Result], state: Path, tmp_path: Path) -> None:
    assert "there are other, part_of" in run("review", "export", state, "nobody").output
    missing = run("review", "export", tmp_path / "nothing.tsv", "part_of")
    assert missing.exit_code == 2 and "no taught relations" in missing.output
    assert "requires -o" in run("review", "export", state, "part_of", "--json").output
    assert "hire review export" in run("review", "export", "--help").output
