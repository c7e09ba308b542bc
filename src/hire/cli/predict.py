"""hire predict, hire explain and hire calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hire.cli.options import FEW, POSITIVE, SHARE, SHOTS, device_option, use_one_thread
from hire.cli.output import bar, json_option, option, print_json, print_table
from hire.errors import HireError
from hire.util.processes import share, told

if TYPE_CHECKING:
    from hire.inference.answers import Answer
    from hire.inference.bulk import Question
    from hire.inference.relation import TaughtRelation

path = click.Path(path_type=Path)
run_argument = click.argument("run", type=path)
model_argument = click.argument("model")
dataset_option = click.option("--dataset", help="The dataset, if it has moved since training.")
references_option = click.option(
    "--references",
    type=path,
    required=True,
    help="The references: a .tsv or .csv file of heads and tails. A header such as 'head, tail' is recognized.",
)
name_option = click.option(
    "--name", help="Name of the relation; if the dataset has a relation of this name, its facts are known facts."
)
facts_option = click.option(
    "--facts", type=path, help="Table of facts (head, relation, tail) about entities that are new since training."
)


def _taught(
    model: str, dataset: str | None, references: Path, name: str | None, facts: Path | None, device: str
) -> TaughtRelation:
    from hire.data.sources.reading import SourceOptions, read_examples, read_sources
    from hire.inference.bulk import teach_from
    from hire.inference.open import open_model

    use_one_thread()
    examples = read_examples(references)  # fail before anything slow
    trained = open_model(model, dataset, device=device)
    if facts is not None:
        (table,) = read_sources([str(facts)], SourceOptions(), facts)
        columns = [column.to_pylist() for column in table.triples.arrays()]
        trained = trained.with_facts(list(zip(*columns, strict=True)))
    return teach_from(trained, examples, references, name)


@click.command()
@model_argument
@references_option
@click.option("--head", help="Head to predict tails for, by id or label.")
@click.option("--heads", type=path, help="File of any number of heads, one per line, plain or compressed.")
@option("-k", type=POSITIVE, default=10, help="Number of answers per head.")
@click.option("--known", is_flag=True, help="Include known facts in the answers.")
@click.option("--threshold", type=SHARE, help="Lowest confidence of an answer; requires a calibrated run.")
@click.option("--explain", is_flag=True, help="Explain each answer.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "tsv", "nt"]),
    help="json: one object per line and head; nt: N-Triples [default: table for --head, tsv for --heads].",
)
@option("--prefix", default="urn:hire:", help="Prefix of names that are not IRIs, in N-Triples.")
@click.option("-o", "--output", type=path, help="File to write the answers to.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run of the same command.")
@name_option
@facts_option
@dataset_option
@device_option
def predict(
    model: str,
    references: Path,
    head: str | None,
    heads: Path | None,
    output: Path | None,
    form: str | None,
    prefix: str,
    resume: bool,
    name: str | None,
    facts: Path | None,
    dataset: str | None,
    device: str,
    **options: Any,
) -> None:
    """Teach a relation from references, and predict the tails of one head or of millions.

    MODEL is a run of hire train, or any graph, which the pre-trained model answers without training: a file of triples
    (TSV, CSV, RDF, plain or compressed), a dataset, or the address of a SPARQL endpoint.

    \b
    Examples:
      hire predict graph.tsv --references part_of.tsv --head tissue
      hire predict runs/umls --references part_of.tsv --head tissue
      hire predict runs/umls --references part_of.tsv --heads heads.txt --threshold 0.5 -o answers.tsv
      hire predict runs/umls --references part_of.tsv --heads heads.txt --format nt -o answers.nt --resume
    """
    from hire.inference.ahead import start_compiling

    start_compiling()
    from hire.inference.bulk import Heads, Question, answers_for, dependencies, lines_for, write_answers, writer
    from hire.inference.open import fingerprint_of_model
    from hire.inference.output import complete_for, is_stream
    from hire.util.tensors import device_named

    if (head is None) == (heads is None):
        raise click.UsageError("give either --head or --heads")
    form = form or ("table" if heads is None and output is None else "tsv")
    if form == "table" and output is not None:
        raise click.UsageError("a table cannot be written to a file: with -o, use --format json, tsv or nt")
    if resume and output is None:
        raise click.UsageError("--resume requires -o")
    streams = [given for given in (references, heads, facts) if given is not None and is_stream(given)]
    if len(streams) > len(set(streams)):
        raise click.UsageError(f"{streams[0]} is a stream, which can be read for one option only")
    if streams and share().processes > 1:
        raise click.UsageError(f"{streams[0]} is a stream, which several processes cannot read: give a file")
    if output is not None:
        _check_not_read(output, Path(model), references, heads, facts)
    relation = _taught(model, dataset, references, name, facts, device)
    question, asked = Question(**options), Heads(heads, head or "")
    if form == "table":
        for of, answers in answers_for(relation, asked, question):
            _print_answers(relation, of, answers, question)
        return
    lines = writer(form, relation, question, prefix)
    if output is None:
        click.echo(lines.header, nl=False)
        for _, text in lines_for(relation, asked, question, lines):
            click.echo(text, nl=False)
        return
    about = {
        "model": fingerprint_of_model(model),
        **dependencies(relation),
        "device": device_named(device).type,
        "name": name,
        "format": form,
        "prefix": prefix,
        **options,
    }
    if resume and told(lambda: complete_for(output, about, asked)):
        _tell(f"{output}: already complete; run without --resume to write it again")
        return
    count = write_answers(relation, asked, question, lines, output, about, resume=resume)
    _tell(f"{output}: answers for {count:,} heads")


def _tell(text: str) -> None:
    if share().first:
        click.echo(text, err=True)


def _check_not_read(output: Path, *given: Path | None) -> None:
    """Raise if the output is a file that is read: it would be gone afterwards."""
    for path in given:
        if path is not None and output.is_file() and path.is_file() and output.samefile(path):
            raise click.UsageError(f"{output} is read by this command: choose another file for the output")


def _print_answers(relation: TaughtRelation, head: str, answers: list[Answer], question: Question) -> None:
    graph = relation.owner.dataset.graph
    title = f"{head} {relation.name or '→'} ..."
    if not answers:
        limit = f" with confidence {question.threshold:g} or more" if question.threshold else ""
        click.echo(f"{title}\n  no answer{limit}")
        return
    labels = [graph.label(relation.owner.names.id(answer.tail)) for answer in answers]
    columns: dict[str, list[Any]] = {
        "": list(range(1, len(answers) + 1)),
        "answer": [answer.tail for answer in answers],
        "label": [label if label != answer.tail else None for label, answer in zip(labels, answers, strict=True)],
        "score": [f"{answer.score:.3f}" for answer in answers],
        "confidence": [None if answer.confidence is None else f"{answer.confidence:.1%}" for answer in answers],
    }
    shown = {name: column for name, column in columns.items() if any(cell is not None for cell in column)}
    print_table(title, list(shown), list(zip(*shown.values(), strict=True)))
    if question.explain:
        for number, answer in enumerate(answers, 1):
            click.echo(f"{number}. {answer.tail}: {relation.explain(head, answer.tail).sentence}")
        click.echo()


@click.command()
@model_argument
@references_option
@click.option("--head", required=True, help="The head, by id or label.")
@click.option("--tail", required=True, help="The tail to explain, by id or label.")
@click.option("-o", "--output", type=path, help="Also draw the evidence as an SVG picture.")
@option("--most", type=POSITIVE, default=10, help="Maximum number of rules, and of shared facts.")
@name_option
@facts_option
@dataset_option
@device_option
@json_option
def explain(
    model: str,
    references: Path,
    head: str,
    tail: str,
    output: Path | None,
    most: int,
    name: str | None,
    facts: Path | None,
    dataset: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Explain why a tail is predicted for a head, of a relation that is taught from references.

    MODEL is a run of hire train, or any graph, as for hire predict.

    \b
    Example:
      hire explain runs/umls --references part_of.tsv --head tissue --tail cell -o why.svg
    """
    if output is not None and output.suffix.lower() != ".svg":
        raise HireError("the picture must be an .svg file", file=output, remedy="choose a name that ends in .svg")
    found = _taught(model, dataset, references, name, facts, device).explain(head, tail, most=most)
    content = found.to_dict()
    if output is not None:
        from hire.inference.picture import explanation_svg
        from hire.util.files import atomic_file

        with atomic_file(output) as partial:
            partial.write_text(explanation_svg(content), "utf-8")
    if as_json:
        print_json(content)
        return
    confidence = "" if found.confidence is None else f", confidence {found.confidence:.1%}"
    click.echo(
        f"{content['head']} — {content['relation']} → {content['tail']}: score {content['score']:.3f}{confidence}"
    )
    click.echo(f"{content['sentence']}\n")
    for speaks_for in (True, False):
        print_evidence(content, speaks_for)
    similar = content["similar"]
    click.echo(
        f"Most similar reference: {similar['head']} → {similar['tail']} "
        f"(heads {similar['head_similarity']:.2f}, tails {similar['tail_similarity']:.2f} of 1)"
    )
    if output is not None:
        click.echo(f"{output}: picture of the evidence")


def print_evidence(content: dict[str, Any], speaks_for: bool) -> None:
    """The tables of what speaks for an answer, or of what speaks against it."""
    verb = "speak for" if speaks_for else "speak against"
    rules, shared = ([piece for piece in content[kind] if piece["for"] == speaks_for] for kind in ("rules", "shared"))
    if rules:
        print_table(
            f"Paths that {verb} the answer",
            ["rule", "weight", "here", "paths"],
            [
                (rule["text"], f"{rule['weight']:+.3f}", " → ".join(rule["paths"][0]), len(rule["paths"]))
                for rule in rules
            ],
        )
    if shared:
        print_table(
            f"Shared facts that {verb} the answer",
            ["relation", "entity", "references", "weight"],
            [
                (
                    fact["relation"],
                    fact["entity"],
                    f"{fact['support']} of {fact['references']}",
                    f"{fact['weight']:+.3f}",
                )
                for fact in shared
            ],
        )


@click.command()
@run_argument
@click.option(
    "--shots",
    type=SHOTS,
    multiple=True,
    help="Number of references to calibrate for; may be repeated [default: 1, 3, 5].",
)
@option("--draws", type=FEW, default=3, help="Random sets of references per task.")
@option(
    "--candidates",
    "among",
    type=click.Choice(["taught", "task"]),
    default="taught",
    help="Rank the candidates that hire predict would rank (taught), or those that the dataset lists (task).",
)
@click.option("--check", type=click.Choice(["train", "dev", "test"]), help="Only measure the calibration on a split.")
@dataset_option
@device_option
@json_option
def calibrate(
    run: Path,
    shots: tuple[int, ...],
    draws: int,
    among: Any,
    check: str | None,
    dataset: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Calibrate the scores of RUN on the dev tasks, so that answers have a confidence.

    Writes RUN/calibration.json, which hire predict and hire.load use. --check SPLIT changes nothing: it reports the
    expected calibration error, the reliability curve, and the coverage of answer sets.

    \b
    Examples:
      hire calibrate runs/umls
      hire calibrate runs/umls --check test --json
    """
    from hire.inference.calibrate import SHOTS
    from hire.inference.calibrate import calibrate as calibrate_run
    from hire.inference.calibrate import check as check_split
    from hire.inference.model import load
    from hire.training.run import exclusive_run, read_config

    use_one_thread()
    wanted = shots or SHOTS
    if check:
        found = check_split(load(run, dataset, device=device), check, wanted, draws, among)
    else:
        read_config(run)  # a folder that is no run is not made one
        with exclusive_run(run):
            found = calibrate_run(load(run, dataset, device=device), run, wanted, draws, among)
    if as_json:
        print_json({"run": str(run), **found})
        return
    for k, report in found["reports"].items():
        of = "reference" if k == "1" else "references"
        if check:
            _print_report(f"{check}, {k} {of}", report)
        else:
            _print_report(f"dev, {k} {of}, as fitted", report["fitted"])
            if report["left_out"]:
                _print_report(f"dev, {k} {of}, on left-out relations", report["left_out"])
    if not check:
        click.echo(f"{run / 'calibration.json'}: calibration written")


def _print_report(title: str, report: dict[str, Any]) -> None:
    errors = ", ".join(
        f"{word} {report[key]['ece']:.3f}"
        for word, key in (
            ("of all answers", "answers"),
            ("of top answers", "first_answers"),
            ("of all answers, known facts hidden", "novel_answers"),
            ("of top answers, known facts hidden", "novel_first_answers"),
        )
    )
    click.echo(f"{title}: {report['relations']} relations, {report['queries']:,} queries")
    click.echo(f"expected calibration error {errors}; {report['reachable']:.1%} of the true tails are candidates\n")
    print_table(
        "Reliability of the top answers",
        ["confidence", "mean confidence", "accuracy", "answers", ""],
        [
            (
                f"{bin_['low']:.1f}–{bin_['high']:.1f}",
                f"{bin_['confidence']:.3f}",
                f"{bin_['right']:.3f}",
                bin_["count"],
                bar(bin_["right"], 1),
            )
            for bin_ in report["first_answers"]["bins"]
        ],
    )
    print_table(
        "Answer sets",
        ["confidence", "coverage", "mean of relations", "worst relation", "mean size"],
        [
            (
                f"{entry['confidence']:.0%}",
                f"{entry['covered']:.1%}",
                f"{entry['mean_of_relations']:.1%}",
                f"{entry['worst_relation']:.1%}",
                entry.get("mean_size"),
            )
            for entry in report["coverage"]
        ],
    )
