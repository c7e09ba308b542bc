from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result

from hire.cli.predict import print_evidence

Run = Callable[..., Result]


@pytest.fixture
def references(tmp_path: Path) -> Path:
    path = tmp_path / "refs.tsv"
    path.write_text("head\ttail\nvirus\torganism\nbacterium\torganism\n")
    return path


def test_one_head_as_a_table(run: Run, umls_run: Path, references: Path) -> None:
    found = run("predict", umls_run, "--references", references, "--head", "plant", "-k", 3, "--explain", "--name", "r")
    assert found.exit_code == 0 and "plant r ..." in found.stdout and "confidence" in found.stdout
    assert "3. " in found.stdout and "the most similar reference is" in found.stdout
    none = run("predict", umls_run, "--references", references, "--head", "plant", "--threshold", 1)
    assert none.exit_code == 0 and "no answer with confidence 1 or more" in none.stdout


def test_many_heads_into_a_file(run: Run, umls_run: Path, references: Path, tmp_path: Path) -> None:
    heads, output = tmp_path / "heads.txt", tmp_path / "out.json"
    heads.write_text("plant\ncell\n")
    arguments = ("predict", umls_run, "--references", references, "--heads", heads, "-k", 2)
    found = run(*arguments, "--format", "json", "-o", output)
    assert found.exit_code == 0 and "2 heads" in found.stderr and found.stdout == ""
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["head"] for row in rows] == ["plant", "cell"] and len(rows[0]["answers"]) == 2
    again = run(*arguments, "--format", "json", "-o", output, "--resume")
    assert again.exit_code == 0 and "already complete" in again.stderr
    shown = run(*arguments)
    assert shown.stdout.splitlines()[0] == "head\ttail\tscore\tconfidence" and len(shown.stdout.splitlines()) == 5


def test_entities_that_were_not_there(run: Run, umls_run: Path, references: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.tsv"
    facts.write_text("moss\tisa\tplant\nmoss\tisa\torganism\n")
    found = run("predict", umls_run, "--references", references, "--head", "moss", "--facts", facts, "--format", "tsv")
    assert found.exit_code == 0 and found.stdout.splitlines()[1].startswith("moss\t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--head", "plnat"], "error: unknown entity 'plnat'\n       did you mean 'plant'"),
        ([], "give either --head or --heads"),
        (["--head", "plant", "--heads", "x"], "give either --head or --heads"),
        (["--heads", "missing.txt"], "missing.txt: no such file"),
        (["--head", "plant", "--resume"], "--resume requires -o"),
        (["--head", "plant", "--format", "table", "-o", "x"], "a table cannot be written"),
        (["--head", "plant", "--format", "nt", "--prefix", "a b"], "not the beginning of an IRI"),
        (["--head", "plant", "--threshold", "2"], "threshold"),
    ],
)
def test_bad_input_is_told(run: Run, umls_run: Path, references: Path, arguments: list[str], message: str) -> None:
    found = run("predict", umls_run, "--references", references, *arguments)
    assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.output


def test_reasons_in_words_in_json_and_as_a_picture(run: Run, umls_run: Path, references: Path, tmp_path: Path) -> None:
    picture = tmp_path / "why.svg"
    arguments = ("explain", umls_run, "--references", references, "--head", "plant", "--tail", "animal", "--name", "r")
    found = run(*arguments, "-o", picture)
    assert found.exit_code == 0 and "plant — r → animal: score" in found.stdout
    assert "Most similar reference: " in found.stdout and str(picture) in found.stdout.replace("\n", "")
    assert ElementTree.fromstring(picture.read_text("utf-8")).tag.endswith("svg")
    content = json.loads(run(*arguments, "--json").stdout)
    assert set(content) >= {"head", "tail", "score", "confidence", "sentence", "rules", "shared", "similar"}
    assert content["rules"] and content["shared"]
    assert "Paths that speak for the answer" in found.stdout and "against" not in found.stdout
    assert "Shared facts that speak for the answer" in found.stdout
    wrong = run(*arguments, "-o", "why.png")
    assert wrong.exit_code == 2 and "ends in .svg" in wrong.stderr


def test_calibrating_and_checking(run: Run, umls_run: Path) -> None:
    before = (umls_run / "calibration.json").read_bytes()
    found = run("calibrate", umls_run, "--check", "test", "--shots", 3, "--draws", 1, "--json")
    report = json.loads(found.stdout)["reports"]["3"]
    assert {"ece", "bins", "count"} <= set(report["answers"]) and report["coverage"][2]["confidence"] == 0.9
    shown = run("calibrate", umls_run, "--check", "test", "--shots", 3, "--draws", 1)
    assert shown.exit_code == 0 and "expected calibration error" in shown.stdout and "Answer sets" in shown.stdout
    assert (umls_run / "calibration.json").read_bytes() == before
    made = run("calibrate", umls_run, "--shots", 1, "--shots", 3, "--draws", 1)
    assert made.exit_code == 0 and "left-out" in made.stdout and (umls_run / "calibration.json").read_bytes() == before


def test_evidence_against_has_tables_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"support": 0, "references": 3}
    rule = {"text": "coach(h, t) <- knows(h, t): none of 3 references", "paths": [["a", "b"]], **figures}
    fact = {"relation": "works_at", "entity": "gym", **figures}
    content = {
        "rules": [{**rule, "for": True, "weight": 0.5}, {**rule, "for": False, "weight": -0.25}],
        "shared": [{**fact, "for": False, "weight": -0.125}],
    }
    print_evidence(content, True)
    told = capsys.readouterr().out
    assert "Paths that speak for the answer" in told and "+0.500" in told and "works_at" not in told
    print_evidence(content, False)
    told = capsys.readouterr().out
    assert "Paths that speak against the answer" in told and "-0.250" in told
    assert "Shared facts that speak against the answer" in told and "-0.125" in told
