"""Predict for any number of heads, in constant memory; an interrupted run can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hire.data.iri import PREFIX, check_prefix
from hire.data.sources.reading import read_examples, read_lines
from hire.errors import HireError
from hire.inference.export import to_ntriples, to_tsv
from hire.inference.model import TrainedModel
from hire.inference.relation import HEADS_AT_ONCE, UNNAMED, Answer, TaughtRelation
from hire.progress import track
from hire.util.files import explain_os_errors, read_blocks
from hire.util.tensors import write_json

FORMATS = ("json", "tsv", "nt")
SECONDS_BETWEEN_RECORDS = 2.0
COLUMNS = ("head", "tail", "score", "confidence")


Answers = Iterator[tuple[str, list[Answer]]]


class Question(NamedTuple):
    """What to predict for every head."""

    k: int = 10
    known: bool = False
    threshold: float | None = None
    explain: bool = False


def teach_from(trained: TrainedModel, path: Path, name: str | None = None) -> TaughtRelation:
    """Teach a relation from a table of references; problems are reported by line."""
    pairs, problems = [], []
    for line, *pair in read_examples(path):
        for entity in pair:
            try:
                trained.names.id(entity)
            except HireError as error:
                problems += _located(error, path, line).problems
        pairs.append((pair[0], pair[1]))
    if problems:
        raise HireError.of(problems)
    return trained.teach(pairs, name)


def _located(error: HireError, path: Path, line: int) -> HireError:
    problem = error.problems[0]
    return HireError(problem.message, file=path, line=line, remedy=problem.remedy)


def writer(form: str, relation: TaughtRelation, question: Question, prefix: str = PREFIX) -> Writer:
    """The writer of a format."""
    if form == "nt":
        if question.explain:
            raise HireError("N-Triples cannot contain explanations", remedy="use --format json or tsv")
        check_prefix(prefix)
        return Writer("", lambda head, answers: _ntriples(relation, head, answers, prefix))
    if form == "json":
        return Writer("", lambda head, answers: json.dumps(as_data(relation, head, answers, question)) + "\n")
    columns = (*COLUMNS, "why") if question.explain else COLUMNS
    return Writer(to_tsv([columns]), lambda head, answers: _rows(relation, head, answers, question))


class Writer(NamedTuple):
    """A format: its header, if it has one, and how the answers for a head become lines."""

    header: str
    lines: Callable[[str, list[Answer]], str]


def as_data(relation: TaughtRelation, head: str, answers: list[Answer], question: Question) -> dict[str, Any]:
    """The answers for a head as JSON data."""
    found = [answer._asdict() for answer in answers]
    if question.explain:
        for answer in found:
            answer["explanation"] = relation.explain(head, answer["tail"]).to_dict()
    return {"head": head, "relation": relation.name, "answers": found}


def _rows(relation: TaughtRelation, head: str, answers: list[Answer], question: Question) -> str:
    rows = []
    for tail, score, confidence in answers:
        row = [head, tail, f"{score:.6g}", "" if confidence is None else f"{confidence:.4f}"]
        if question.explain:
            row.append(relation.explain(head, tail).sentence)
        rows.append(row)
    return to_tsv(rows)


def _ntriples(relation: TaughtRelation, head: str, answers: list[Answer], prefix: str) -> str:
    trained = relation.owner
    subject = trained.dataset.graph.entities[trained.names.id(head)]  # the head may be given by its label
    return to_ntriples(((subject, relation.name or UNNAMED, answer.tail) for answer in answers), prefix)


@dataclass(frozen=True)
class Heads:
    """The heads to predict for: those in a file, or a single one."""

    path: Path | None = None
    name: str = ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter([(1, self.name)]) if self.path is None else read_lines(self.path)

    def count(self) -> int:
        """The approximate number of heads: blank lines count too."""
        return 1 if self.path is None else sum(block.count(b"\n") for block in read_blocks(self.path))


def answers_for(relation: TaughtRelation, heads: Heads, question: Question, skipped: int = 0) -> Answers:
    """Each head, after the skipped ones, with its answers; an unknown head is reported by line."""
    remaining = islice(heads, skipped, None)
    while some := list(islice(remaining, HEADS_AT_ONCE)):
        names = [name for _, name in some]
        try:
            yield from relation.predict_many(names, question.k, known=question.known, threshold=question.threshold)
        except HireError:
            for line, name in some:
                try:
                    relation.owner.names.id(name)
                except HireError as error:
                    raise (error if heads.path is None else _located(error, heads.path, line)) from error
            raise


def write_answers(
    relation: TaughtRelation,
    heads: Heads,
    question: Question,
    form: Writer,
    target: Path,
    about: dict[str, Any],
    *,
    resume: bool = False,
) -> int:
    """Write the answers for some heads to a file; returns the number of heads.

    Until it is complete, the output is TARGET.partial, and TARGET.progress records how many heads are done. Resuming
    truncates the output to that point and continues. `about` holds the settings that must not change in between.
    """
    output = Output(target, about, resume)
    output.skip(heads)
    with track("Predicting", heads.count(), before=output.heads) as advance, output:
        if not output.size:
            output.write(form.header)
        for head, answers in answers_for(relation, heads, question, output.heads):
            output.write(form.lines(head, answers), head)
            advance(1)
    output.finish()
    return output.heads


class Output:
    """An incomplete output beside its target, and a record of its progress."""

    def __init__(self, target: Path, about: dict[str, Any], resume: bool) -> None:
        self.target = target
        self.partial = target.with_name(f"{target.name}.partial")
        self.progress = target.with_name(f"{target.name}.progress")
        self.about = about
        self.heads = self.size = 0
        self.digest = hashlib.sha256()  # of the finished heads
        self.expected: str | None = None
        self.recorded = time.monotonic()
        if self.interrupted(target):
            if not resume:
                raise HireError(
                    "was interrupted",
                    file=target,
                    remedy="run again with --resume to continue, "
                    f"or delete {self.progress.name} and {self.partial.name} to start over",
                )
            self._read()

    def _read(self) -> None:
        try:
            record = json.loads(self.progress.read_text("utf-8"))
            self.heads, self.size, self.expected = int(record["heads"]), int(record["bytes"]), str(record["sha256"])
            about = dict(record["about"])
            if self.heads < 0 or self.size < 0:
                raise ValueError("a negative count")
            whole = self.partial.stat().st_size >= self.size
        except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
            raise HireError(f"is damaged ({error})", file=self.progress, remedy="delete it to start over") from error
        if not whole:
            raise HireError("is shorter than it was", file=self.partial, remedy="delete it to start over")
        changed = [key for key in self.about if about.get(key) != self.about[key]]
        if changed:
            raise HireError(
                f"was started with different settings: {', '.join(changed)}",
                file=self.target,
                remedy="use the same settings, or choose another -o",
            )

    @staticmethod
    def interrupted(target: Path) -> bool:
        """Whether an output is incomplete."""
        return all(target.with_name(target.name + suffix).exists() for suffix in (".partial", ".progress"))

    def skip(self, heads: Heads) -> None:
        """Skip the finished heads; an error if they have changed."""
        for _, name in islice(heads, self.heads):
            self.digest.update(name.encode() + b"\n")
        if self.expected is not None and self.digest.hexdigest() != self.expected:
            raise HireError(
                f"the first {self.heads:,} heads have changed",
                file=self.target,
                remedy="use the same heads, or choose another -o",
            )

    def __enter__(self) -> None:
        with explain_os_errors(self.partial):
            self.stream = self.partial.open("r+b" if self.size else "wb")
            self.stream.truncate(self.size)
            self.stream.seek(self.size)
        self._record()

    def __exit__(self, *_exception: object) -> None:
        try:
            self._record()
        finally:
            self.stream.close()

    def write(self, text: str, head: str | None = None) -> None:
        """Append the lines of a head, or a header."""
        content = text.encode("utf-8", "backslashreplace")
        with explain_os_errors(self.partial):
            self.stream.write(content)
        self.size += len(content)
        if head is not None:
            self.digest.update(head.encode() + b"\n")
            self.heads += 1
        if time.monotonic() - self.recorded > SECONDS_BETWEEN_RECORDS:
            self._record()

    def _record(self) -> None:
        """Record the progress, once the output is on disk."""
        with explain_os_errors(self.partial):
            self.stream.flush()
            os.fsync(self.stream.fileno())
        record = {"heads": self.heads, "bytes": self.size, "sha256": self.digest.hexdigest(), "about": self.about}
        write_json(self.progress, record)
        self.recorded = time.monotonic()

    def finish(self) -> None:
        """Turn the complete output into the target."""
        with explain_os_errors(self.target):
            self.partial.replace(self.target)
            self.progress.unlink()


def fingerprint_of(pairs: Iterable[Any]) -> str:
    """A short checksum of JSON data."""
    return hashlib.sha256(json.dumps(list(pairs)).encode()).hexdigest()[:16]
