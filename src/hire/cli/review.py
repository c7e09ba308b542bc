"""hire review: what people decided with hire serve, as files and back."""

from __future__ import annotations

from pathlib import Path

import click

from hire.cli.options import device_option, use_one_thread
from hire.cli.output import json_option, option, print_json
from hire.cli.serve import need_service, state_of
from hire.errors import HireError

path = click.Path(path_type=Path)
FORMATS = ("tsv", "ntriples", "turtle", "quickstatements", "sparql", "log")
SQLITE = b"SQLite format 3\x00"
state_option = click.option(
    "--state", type=path, help="File of the taught relations [default: where hire serve keeps them]."
)


@click.group()
def review() -> None:
    """Export what was accepted with hire serve, or import verdicts.

    \b
    Examples:
      hire review export runs/umls part_of --format turtle -o part_of.ttl
      hire review import runs/umls part_of verdicts.tsv --by ana
    """


@review.command("export")
@click.argument("model")
@click.argument("relation")
@option("--format", "form", type=click.Choice(FORMATS), default="tsv", help="Format of the facts; log: every verdict.")
@option("--prefix", default="urn:hire:", help="In RDF, the prefix of names that are not IRIs.")
@click.option("--batch", help="Only facts that were accepted with this batch.")
@click.option("-o", "--output", type=path, help="File to write [default: standard output].")
@state_option
@json_option
def export_facts(
    model: str,
    relation: str,
    form: str,
    prefix: str,
    batch: str | None,
    output: Path | None,
    state: Path | None,
    as_json: bool,
) -> None:
    """Export the accepted facts of a relation, by id or name; hire serve may be running.

    MODEL is the run or graph that is served, or the file of its taught relations.

    \b
    Examples:
      hire review export graph.tsv part_of
      hire review export runs/umls part_of --format quickstatements -o part_of.qs.tsv
      hire review export runs/umls part_of --format log -o verdicts.ndjson --json
    """
    from hire.service.exports import Export
    from hire.service.relations import RelationTable
    from hire.service.store import Store
    from hire.util.files import atomic_file, explain_os_errors

    if as_json and output is None:
        raise click.UsageError("--json requires -o: standard output has the facts")
    file = _state(model, state)
    store = Store(file)
    try:
        stored = RelationTable(store).named(relation)
        found = Export(store, stored, prefix, batch)
        count, parts = found.count(), found.parts(form)
        if output is None:
            for part in parts:
                click.echo(part, nl=False)
            return
        with explain_os_errors(output), atomic_file(output) as partial, partial.open("w", encoding="utf-8") as stream:
            stream.writelines(parts)
    finally:
        store.close()
    if as_json:
        print_json({"relation": stored.id, "name": stored.name, "format": form, "facts": count, "file": str(output)})
    else:
        click.echo(f"{output}: {count:,} fact{'' if count == 1 else 's'} of {stored.name}", err=True)


@review.command("import")
@click.argument("model")
@click.argument("relation")
@click.argument("verdicts", type=path)
@option("--by", default="anonymous", help="Who has judged.")
@state_option
@click.option("--dataset", help="The dataset, if it has moved since training.")
@device_option
@json_option
def import_verdicts(
    model: str,
    relation: str,
    verdicts: Path,
    by: str,
    state: Path | None,
    dataset: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Import verdicts as one batch, which can be reverted; hire serve may be running.

    VERDICTS is a .tsv or .csv table of heads, tails and verdicts (accept, reject, unsure, no_tail with - as its tail);
    without a third column, all pairs are accepted. Or it is a log that was exported, with the suffix .ndjson.

    \b
    Examples:
      hire review import graph.tsv part_of verdicts.tsv --by ana
      hire review import runs/umls part_of verdicts.ndjson --json
    """
    need_service()
    from hire.data.sources.reading import TABLE_DELIMITERS, format_of
    from hire.inference.open import fingerprint_of_model, open_model
    from hire.service.service import Service
    from hire.service.store import Store
    from hire.service.tables_of_pairs import read_judged_file
    from hire.util.files import explain_os_errors

    form = "log" if verdicts.suffix == ".ndjson" else format_of(verdicts)
    if form != "log" and form not in TABLE_DELIMITERS:
        raise HireError("is not a table", file=verdicts, remedy="use a .tsv, .csv or .ndjson file")
    store = Store(_state(model, state))
    try:
        use_one_thread()
        service = Service(open_model(model, dataset, device=device), store, fingerprint_of_model(model))
        stored = service.relations.named(relation)
        with explain_os_errors(verdicts):
            found = read_judged_file(service.teaching, verdicts, log=form == "log")
        review_ = service.review
        batch = review_.batch(review_.take_in(stored, found, review_.author(by, "hire review import")))
    finally:
        store.close()
    if as_json:
        print_json({"relation": stored.id, "name": stored.name, "batch": batch["id"], "entries": batch["entries"]})
    else:
        click.echo(f"{stored.name}: {batch['entries']:,} new verdicts of {len(found):,}, batch {batch['id']}", err=True)


def _state(model: str, state: Path | None) -> Path:
    """The state file of a model, which may be named itself."""
    given = Path(model)
    if state is None and given.is_file():
        with given.open("rb") as stream:
            if stream.read(len(SQLITE)) == SQLITE:
                state = given
    found = state or state_of(model)
    if not found.exists():
        raise HireError("there are no taught relations here", file=found, remedy="teach one with hire serve first")
    return found
