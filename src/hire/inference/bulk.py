"""Predict for any number of heads, in constant memory; an interrupted run can be resumed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hire import __version__
from hire.data.iri import PREFIX, check_prefix
from hire.data.sources.reading import read_lines
from hire.errors import HireError
from hire.inference.answers import UNNAMED, Answer
from hire.inference.export import to_ntriples, to_tsv
from hire.inference.model import TrainedModel
from hire.inference.output import Output, StreamOutput, is_stream
from hire.inference.relation import HEADS_AT_ONCE, TaughtRelation
from hire.progress import track
from hire.util.checksums import checksum_of
from hire.util.files import behind_links, explain_os_errors, read_blocks
from hire.util.locks import locked
from hire.util.processes import share, spread, told

FORMATS = ("json", "tsv", "nt")
COLUMNS = ("head", "tail", "score", "confidence")


Answers = Iterator[tuple[str, list[Answer]]]


class Question(NamedTuple):
    """What to predict for every head."""

    k: int = 10
    known: bool = False
    threshold: float | None = None
    explain: bool = False


def teach_from(
    trained: TrainedModel, examples: list[tuple[int, str, str]], path: Path, name: str | None = None
) -> TaughtRelation:
    """Teach a relation from a table of references that was read; problems are reported by line."""
    pairs, problems = [], []
    for line, *pair in examples:
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
    """The heads to predict for: those in a file or a stream, or a single one."""

    path: Path | None = None
    name: str = ""
    _copies: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)  # of a stream, one

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter([(1, self.name)]) if self.path is None else read_lines(self._readable(self.path), self.path)

    def count(self) -> int:
        """The approximate number of heads: blank lines count too."""
        if self.path is None:
            return 1
        return sum(block.count(b"\n") for block in read_blocks(self._readable(self.path)))

    def _readable(self, path: Path) -> Path:
        """What can be read again and again: of a stream, a copy on disk."""
        if not is_stream(path):
            return path
        if not self._copies:
            copy = NamedTemporaryFile(prefix="hire-heads-", suffix=path.suffix)  # noqa: SIM115  (removed with self)
            with explain_os_errors(path), path.open("rb") as stream:
                shutil.copyfileobj(stream, copy)
            copy.flush()
            self._copies.append(copy)
        return Path(self._copies[0].name)


def answers_for(relation: TaughtRelation, heads: Heads, question: Question, skipped: int = 0) -> Answers:
    """Each head, after the skipped ones, with its answers; an unknown head is reported by line."""
    remaining = islice(heads, skipped, None)
    while some := list(islice(remaining, HEADS_AT_ONCE)):
        yield from _answers(relation, heads, some, question)


def _answers(relation: TaughtRelation, heads: Heads, some: list[tuple[int, str]], question: Question) -> Answers:
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


def lines_for(
    relation: TaughtRelation, heads: Heads, question: Question, form: Writer, skipped: int = 0
) -> Iterator[tuple[str, str]]:
    """Each head, after the skipped ones, with the lines of its answers; several processes do a block of heads each."""
    if share().processes == 1:
        for head, answers in answers_for(relation, heads, question, skipped):
            yield head, form.lines(head, answers)
        return
    remaining = islice(heads, skipped, None)
    blocks = iter(lambda: list(islice(remaining, HEADS_AT_ONCE)), [])
    while some := list(islice(blocks, share().processes)):

        def lines(number: int, some: list[list[tuple[int, str]]] = some) -> list[NDArray[Any]]:
            found = _answers(relation, heads, some[number], question)
            content = [(head, form.lines(head, answers)) for head, answers in found]
            return [np.frombuffer(json.dumps(content).encode(), np.uint8)]

        for (content,) in spread(lines, [1.0] * len(some)):
            yield from map(tuple, json.loads(content.tobytes()))


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
    """Write the answers for some heads to a file, a link's file or a stream; returns the number of heads.

    Until it is complete, the output is TARGET.partial, and TARGET.progress records how many heads are done. Resuming
    truncates the output to that point and continues. `about` holds all that must not change in between. Of several
    processes, the first one writes.
    """
    if not share().first:
        return sum(1 for _ in lines_for(relation, heads, question, form, told(lambda: 0)))
    if is_stream(target):
        if resume:
            raise HireError("cannot be resumed: it is not a file", file=target, remedy="leave out --resume")
        return _write(relation, heads, question, form, StreamOutput(target))
    target = behind_links(target)  # replace what a link points to, not the link
    with explain_os_errors(target):
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with locked(target.with_name(f"{target.name}.lock"), target):
        return _write(relation, heads, question, form, Output(target, about, resume))


def _write(
    relation: TaughtRelation, heads: Heads, question: Question, form: Writer, output: Output | StreamOutput
) -> int:
    output.skip(heads)
    skipped = told(lambda: output.heads)
    with track("Predicting", heads.count(), before=output.heads) as advance, output:
        if not output.size:
            output.write(form.header)
        for head, lines in lines_for(relation, heads, question, form, skipped):
            output.write(lines, head)
            advance(1)
    output.finish()
    return output.heads


def dependencies(relation: TaughtRelation) -> dict[str, str]:
    """Checksums of all that the answers of a taught relation depend on, besides weights and settings of the run."""
    dataset = relation.owner.dataset
    graph = dataset.graph
    arrays = [graph.entities.text, graph.entities.offsets, graph.relations.text, graph.relations.offsets]
    arrays += [graph.triples, dataset.facts.keys, dataset.task_pairs, dataset.task_relations]
    if graph.labels is not None:
        arrays += [graph.labels.text, graph.labels.offsets]
    if graph.types is not None:
        arrays += [graph.types.names.text, graph.types.offsets, graph.types.members]
    calibrations = {str(k): found.to_dict() for k, found in relation.owner.calibrations.items()}
    return {
        "version": __version__,
        "graph": checksum_of(np.ascontiguousarray(array) for array in arrays),
        "references": checksum_of([np.ascontiguousarray(relation.references)]),
        "calibration": checksum_of([json.dumps(calibrations, sort_keys=True).encode()]),
    }
