from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pyoxigraph
import pytest

from hire.data.sources.reading import read_examples
from hire.errors import HireError
from hire.inference.answers import Answer
from hire.inference.bulk import Heads, Question, answers_for, teach_from, write_answers, writer
from hire.inference.model import load
from hire.inference.output import Output, complete_for
from hire.inference.relation import TaughtRelation

NAMES = ["plant", "virus", "cell", "tissue", "organism"] * 60


@pytest.fixture(scope="module")
def relation(umls_run: Path) -> TaughtRelation:
    return load(umls_run).teach([("virus", "organism"), ("fungus", "organism")], name="is like")


@pytest.fixture
def heads(tmp_path: Path) -> Heads:
    path = tmp_path / "heads.txt"
    path.write_text("\n".join(NAMES) + "\n\n")
    return Heads(path)


@pytest.mark.parametrize("form", ["json", "tsv", "nt"])
@pytest.mark.parametrize("after", [1, 7, 150])
def test_what_was_interrupted_becomes_the_same(
    relation: TaughtRelation, heads: Heads, tmp_path: Path, form: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question(k=3)
    lines = writer(form, relation, question)
    whole, target = tmp_path / "whole", tmp_path / "target"
    assert write_answers(relation, heads, question, lines, whole, {"k": 3}) == len(NAMES)
    monkeypatch.setattr("hire.inference.output.SECONDS_BETWEEN_RECORDS", 0.05)
    written = 0

    def failing(head: str, answers: list[Answer]) -> str:
        nonlocal written
        written += 1
        if written > after:
            raise KeyboardInterrupt
        return lines.lines(head, answers)

    with pytest.raises(KeyboardInterrupt):
        write_answers(relation, heads, question, lines._replace(lines=failing), target, {"k": 3})
    assert not target.exists() and Output.interrupted(target)
    with Path(f"{target}.partial").open("ab") as stream:
        stream.write(b"half a li")  # as a crash may leave it
    with pytest.raises(HireError, match="interrupted"):
        write_answers(relation, heads, question, lines, target, {"k": 3})
    with pytest.raises(HireError, match="different settings: k"):
        write_answers(relation, heads, question, lines, target, {"k": 4}, resume=True)
    assert write_answers(relation, heads, question, lines, target, {"k": 3}, resume=True) == len(NAMES)
    assert target.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"heads.txt", "whole", "target"}


def test_an_unknown_head_is_told_by_line_and_can_be_mended(
    relation: TaughtRelation, heads: Heads, tmp_path: Path
) -> None:
    assert heads.path is not None
    question = Question(k=1)
    lines, target = writer("tsv", relation, question), tmp_path / "out.tsv"
    names = [*NAMES[:280], "vrius", *NAMES[280:]]
    heads.path.write_text("\n".join(names))
    with pytest.raises(HireError, match=r"heads\.txt:281: unknown entity 'vrius'") as caught:
        write_answers(relation, heads, question, lines, target, {})
    assert "virus" in str(caught.value.problems[0].remedy)
    heads.path.write_text("\n".join(["cell", *NAMES[1:]]))
    with pytest.raises(HireError, match="heads have changed"):
        write_answers(relation, heads, question, lines, target, {}, resume=True)
    heads.path.write_text("\n".join(NAMES))
    assert write_answers(relation, heads, question, lines, target, {}, resume=True) == len(NAMES)
    assert [line.split("\t")[0] for line in target.read_text().splitlines()] == ["head", *NAMES]


@pytest.mark.parametrize("content", ["", "{}", '{"heads": 1, "bytes": 99999999, "sha256": "", "about": {}}'])
def test_damaged_progress_is_told(relation: TaughtRelation, heads: Heads, tmp_path: Path, content: str) -> None:
    target = tmp_path / "out.tsv"
    Path(f"{target}.partial").write_text("x")
    Path(f"{target}.progress").write_text(content)
    with pytest.raises(HireError, match=r"damaged|shorter"):
        write_answers(relation, heads, Question(), writer("tsv", relation, Question()), target, {}, resume=True)


def test_a_flipped_bit_in_what_was_written_before_is_told(
    relation: TaughtRelation, heads: Heads, tmp_path: Path
) -> None:
    target = tmp_path / "out.tsv"
    lines = writer("tsv", relation, Question())

    def stopping(head: str, answers: list[Answer]) -> str:
        if head == "cell":
            raise ZeroDivisionError
        return lines.lines(head, answers)

    stopped = lines._replace(lines=stopping)
    with pytest.raises(ZeroDivisionError):
        write_answers(relation, heads, Question(), stopped, target, {})
    partial = Path(f"{target}.partial")
    content = partial.read_bytes()
    partial.write_bytes(content.replace(b"plant", b"pmant", 1))
    with pytest.raises(HireError, match=r"out\.tsv\.partial: is damaged") as caught:
        write_answers(relation, heads, Question(), lines, target, {}, resume=True)
    assert "start over" in str(caught.value.problems[0].remedy)


def test_complete_is_told_by_what_it_was_written_with(relation: TaughtRelation, heads: Heads, tmp_path: Path) -> None:
    target = tmp_path / "out.tsv"
    write_answers(relation, heads, Question(), writer("tsv", relation, Question()), target, {"k": 3})
    assert complete_for(target, {"k": 3}, heads)
    for other in ({"k": 4}, {}, {"k": 3, "references": "others"}):
        with pytest.raises(HireError, match="was written with different settings"):
            complete_for(target, other, heads)
    with pytest.raises(HireError, match="was written for other heads"):
        complete_for(target, {"k": 3}, Heads(name="cell"))
    target.write_text("edited")
    assert not complete_for(target, {"k": 3}, heads)  # nobody knows what it is: written again
    target.unlink()
    assert not complete_for(target, {"k": 3}, heads)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_heads_are_read_exactly(tmp_path: Path, end: str) -> None:
    path = tmp_path / "heads.txt"
    path.write_bytes(end.join(["\ufefftissue ", "", " cell", "\tx", "  ", "last"]).encode())
    assert [name for _, name in Heads(path)] == ["tissue ", " cell", "\tx", "  ", "last"]


def test_a_stream_of_heads_is_read_once_and_completely(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer_thread = threading.Thread(target=lambda: path.write_bytes(b"cell\n" * 50_000))
    writer_thread.start()
    heads = Heads(path)
    assert heads.count() == len(list(heads)) == len(list(heads)) == 50_000
    writer_thread.join()


def test_what_is_not_a_file_is_written_into_and_links_are_followed(
    relation: TaughtRelation, heads: Heads, tmp_path: Path
) -> None:
    lines = writer("tsv", relation, Question())
    whole, pipe, link = tmp_path / "whole", tmp_path / "pipe", tmp_path / "link"
    write_answers(relation, heads, Question(), lines, whole, {})
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    assert write_answers(relation, heads, Question(), lines, pipe, {}) == len(NAMES)
    reader.join()
    assert found == [whole.read_bytes()] and pipe.is_fifo()
    link.symlink_to("behind")
    write_answers(relation, heads, Question(), lines, link, {})
    assert link.is_symlink() and (tmp_path / "behind").read_bytes() == whole.read_bytes()
    with pytest.raises(HireError, match="cannot be resumed"):
        write_answers(relation, heads, Question(), lines, pipe, {}, resume=True)
    with pytest.raises(HireError, match="is a directory"):
        write_answers(relation, heads, Question(), lines, tmp_path, {})
    assert {path.name for path in tmp_path.iterdir()} == {"heads.txt", "whole", "pipe", "link", "behind"}


def test_ntriples_are_valid_whatever_the_names(relation: TaughtRelation) -> None:
    tails = ["http://example.org/a b", "https://example.org/ü", 'x<>"{}|^`\\', "concept:city:rome", "100%"]
    answers = [Answer(tail, 0.0) for tail in tails]
    text = writer("nt", relation, Question()).lines("virus", answers)
    triples = list(pyoxigraph.parse(text.encode(), format=pyoxigraph.RdfFormat.N_TRIPLES))
    assert [triple.object.value for triple in triples] == [
        "urn:hire:http%3A%2F%2Fexample.org%2Fa%20b",
        "https://example.org/ü",
        "urn:hire:x%3C%3E%22%7B%7D%7C%5E%60%5C",
        "urn:hire:concept%3Acity%3Arome",
        "urn:hire:100%25",
    ]
    assert {(t.subject.value, t.predicate.value) for t in triples} == {("urn:hire:virus", "urn:hire:is%20like")}
    other = writer("nt", relation, Question(), "https://example.org/").lines("virus", answers[4:])
    assert other == "<https://example.org/virus> <https://example.org/is%20like> <https://example.org/100%25> .\n"
    with pytest.raises(HireError, match="not the beginning of an IRI"):
        writer("nt", relation, Question(), "no prefix")
    with pytest.raises(HireError, match="cannot contain explanations"):
        writer("nt", relation, Question(explain=True))


def test_reasons_and_thresholds_go_into_the_lines(relation: TaughtRelation) -> None:
    question = Question(k=2, explain=True)
    ((head, answers),) = answers_for(relation, Heads(name="plant"), question)
    found = json.loads(writer("json", relation, question).lines(head, answers))
    assert [answer["tail"] for answer in found["answers"]] == [answer.tail for answer in answers]
    assert found["answers"][0]["explanation"]["head"] == "plant"
    form = writer("tsv", relation, question)
    assert form.header == "head\ttail\tscore\tconfidence\twhy\n"
    assert [line.count("\t") for line in form.lines(head, answers).splitlines()] == [4, 4]
    assert list(answers_for(relation, Heads(name="plant"), Question(threshold=1.0))) == [("plant", [])]
    with pytest.raises(HireError, match=r"^unknown entity 'plannt'"):
        list(answers_for(relation, Heads(name="plannt"), question))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("virus\torganism\nvirsu\torganism\nplant\torgnism\n", "refs.tsv:2: unknown entity 'virsu'\n.*refs.tsv:3"),
        ("virus organism\n", "refs.tsv:1: expected 2 columns, found 1"),
        ("virus\torganism\nvirus\n", "refs.tsv:2: expected 2 columns, found 1"),
        ("virus\tisa\torganism\n", "refs.tsv:1: expected 2 columns, found 3"),
        ("head\ttail\n", "contains no pairs"),
        ("", "is empty"),
    ],
)
def test_wrong_examples_are_told_by_line(umls_run: Path, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "refs.tsv"
    path.write_text(content)
    with pytest.raises(HireError, match=f"(?s){message}"):
        teach_from(load(umls_run), read_examples(path), path)


def test_facts_are_no_references_unless_their_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "refs.tsv"
    path.write_text("virus\tisa\torganism\n")
    with pytest.raises(HireError) as error:
        read_examples(path)
    assert "leave out the relation" in (error.value.problems[0].remedy or "")
    path.write_text("head\trelation\ttail\nvirus\tisa\torganism\n")
    assert read_examples(path) == [(2, "virus", "organism")]


def test_examples_may_have_a_header(umls_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "refs.csv"
    path.write_text('tail,head\norganism,virus\n"organism",fungus\n')
    relation = teach_from(load(umls_run), read_examples(path), path)
    assert len(relation.references) == 2
    assert relation.predict_heads("organism", 1)[0].head not in ("virus", "fungus")
