"""hire data: datasets made, fetched, checked and looked at."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hire.cli.output import NATURAL, POSITIVE, bar, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from hire.data.build import BuildReport
    from hire.data.dataset import FewShotDataset

MOST_RELATIONS_SHOWN = 40


@click.group()
def data() -> None:
    """Make, fetch, check and look at few-shot datasets.

    DATASET is a bundled name (umls-one), a directory in the published layout (NELL-One, Wiki-One and their like), or
    a directory that `hire data build` made.
    """


@data.command()
@click.argument("dataset")
@json_option
def stats(dataset: str, as_json: bool) -> None:
    """Show what DATASET holds: counts, tasks, degrees, and the context that heads and tails share.

    \b
    Example:
      hire data stats umls-one
    """
    from hire.data.open import open_dataset
    from hire.data.statistics import statistics

    found = statistics(open_dataset(dataset))
    print_json(found) if as_json else print_statistics(found)


def print_statistics(found: dict[str, Any]) -> None:
    """Print the statistics of a dataset for people."""
    relations, triples, degrees, shared = (found[key] for key in ("relations", "triples", "degrees", "shared_context"))
    print_table(
        found["name"],
        ["", "count"],
        [
            ("entities", found["entities"]),
            ("  with a label", found["labelled_entities"]),
            ("  types", found["entity_types"]),
            ("relations", relations["all"]),
            ("  in the background graph", relations["background"]),
            ("  as tasks", relations["tasks"]),
            *((f"triples, {split}", triples[split]) for split in triples),
        ],
    )
    print_table(
        "Tasks",
        ["split", "relation", "triples", "candidates"],
        [[task[key] for key in ("split", "relation", "triples", "candidates")] for task in found["tasks"]],
    )
    largest = max(count for *_, count in degrees["histogram"])
    print_table(
        f"Degrees (mean {degrees['mean']:.2f}, median {degrees['median']:g}, max {degrees['max']:,})",
        ["degree", "entities", ""],
        [
            (f"{low:,}" if low == high else f"{low:,}–{high:,}", count, bar(count, largest))
            for low, high, count in degrees["histogram"]
        ],
    )
    print_table(
        f"Shared context of head and tail, over {shared['triplets']:,} background and train triplets",
        ["", "triplets that share", "share of all", "shared in all"],
        [
            (
                word,
                shared[f"sharing_{key}"],
                f"{shared[f'sharing_{key}'] / shared['triplets']:.2%}",
                shared[f"shared_{key}"],
            )
            for word, key in (("an entity", "entities"), ("a (relation, entity) tuple", "tuples"))
        ],
    )


@data.command()
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
def verify(directory: Path, as_json: bool) -> None:
    """Check every file in DIRECTORY, each reference between files, and known checksums; list all problems.

    The exit code is 2 if there are any.

    \b
    Example:
      hire data verify data/nell-one
    """
    from hire.data.verify import verify as verify_directory

    report = verify_directory(directory)
    if as_json:
        print_json(report.as_json())
    else:
        print_table(
            str(directory),
            ["file", "bytes", "SHA-256", "status"],
            [(f.name, f.size, f.sha256[:16], f.status) for f in report.files],
        )
        for note in report.notes:
            click.echo(f"note: {note}")
        for problem in report.problems:
            click.echo(f"problem: {problem}" + (f" ({problem.remedy})" if problem.remedy else ""))
        count = len(report.problems)
        click.echo("no problems" if not count else f"{count:,} problem{'s' if count > 1 else ''}")
    if report.problems:
        raise SystemExit(2)


def _split_option(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    parts = value.split(":")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 7 and int(part) for part in parts):
        raise click.BadParameter("give three numbers from 1 to 999999, as in 51:5:11")
    return tuple(map(int, parts))


def _columns_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    parts = tuple(part.strip() for part in value.split(","))
    if len(parts) != 3 or not all(0 < len(part) < 1000 for part in parts) or len(set(parts)) != 3:
        raise click.BadParameter("give three different columns, as in subject,predicate,object or 1,2,3")
    return parts


@data.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The directory to make.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it is there.")
@click.option(
    "--format", "form", help="Format of the files, if their names do not tell: tsv, csv, ntriples, turtle ..."
)
@click.option(
    "--columns", callback=_columns_option, help="Columns of head, relation and tail: names, or numbers from 1."
)
@click.option("--header/--no-header", default=None, help="Whether tables have a header [default: found out].")
@click.option("--labels", type=click.Path(path_type=Path), help="A table of entities and labels.")
@click.option("--types", type=click.Path(path_type=Path), help="A table of entities and types.")
@click.option("--type-pattern", help="How a name tells its type, such as 'concept:{type}:{name}'.")
@option("--language", default="en", help="Language of the RDF labels to keep.")
@click.option("--query", help="SPARQL SELECT of ?s ?p ?o, in place of all triples.")
@option("--page-size", type=POSITIVE, default=10_000, help="Rows to ask of a SPARQL endpoint at once.")
@option(
    "--timeout",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=60.0,
    help="Seconds to wait for a SPARQL endpoint.",
)
@option("--retries", type=NATURAL, default=5, help="Tries in vain before a SPARQL endpoint is given up.")
@option("--more-than", type=POSITIVE, default=50, help="A task has more triples than this.")
@option("--fewer-than", type=POSITIVE, default=500, help="A task has fewer triples than this.")
@option("--split", default="51:5:11", callback=_split_option, help="Tasks for train:dev:test.")
@option(
    "--candidates",
    type=click.Choice(["auto", "type", "range", "all"]),
    default="auto",
    help="Possible tails: by the types of the relation's tails, its tails themselves, or all entities. "
    "auto: by type where types are known, otherwise all.",
)
@option("--seed", type=NATURAL, default=0, help="Seed of the split.")
@click.option("--strict", is_flag=True, help="Take duplicates, byte order marks and CRLF for errors.")
@json_option
def build(sources: tuple[str, ...], output: Path, overwrite: bool, strict: bool, as_json: bool, **options: Any) -> None:
    """Make a few-shot dataset of your own graph.

    A SOURCE is a .tsv, .csv, .nt, .nq, .ttl, .trig, .rdf or .xml file, plain or compressed (.gz, .zst), or the address
    of a SPARQL endpoint, whose pages are kept beside the output until they are complete: run the same command again
    to go on after an interruption.

    \b
    Examples:
      hire data build graph.tsv -o my-graph
      hire data build facts.csv --columns subject,predicate,object --labels names.csv -o my-graph
      hire data build dump.nt.gz ontology.ttl --more-than 20 --candidates type -o my-graph
      hire data build https://example.org/sparql -o my-graph
    """
    from hire.data.build import BuildSettings
    from hire.data.build import build as build_dataset
    from hire.data.dataset import MANIFEST
    from hire.data.sources.columns import TripleTable
    from hire.data.sources.reading import SourceOptions, read_names, read_sources
    from hire.errors import HireError
    from hire.util.files import check_replaceable, printable

    check_replaceable(output, overwrite, [MANIFEST])  # before hours of reading, not after
    source_options = SourceOptions(
        format=options["form"],
        columns=options["columns"],
        header=options["header"],
        language=options["language"],
        query=options["query"],
        page_size=options["page_size"],
        timeout_seconds=options["timeout"],
        retries=options["retries"],
    )
    work = output.with_name(f".{output.name}.pages")
    tables = read_sources(sources, source_options, work)
    for kind in ("labels", "types"):
        if options[kind]:
            columns, notes = read_names(options[kind])
            tables.append(TripleTable(str(options[kind]), notes=notes))
            setattr(tables[-1], kind, columns)
    settings = BuildSettings(
        printable(output.resolve().name),
        more_than=options["more_than"],
        fewer_than=options["fewer_than"],
        split=options["split"],
        candidates=options["candidates"],
        type_pattern=options["type_pattern"],
        seed=options["seed"],
    )
    dataset, report = build_dataset(tables, settings)
    if strict and report.notes:
        raise HireError.of(report.notes)
    dataset.save(output, overwrite=overwrite)
    if any("://" in source for source in sources):
        shutil.rmtree(work, ignore_errors=True)
    if as_json:
        print_json({"output": str(output), **report.as_json()})
    else:
        _print_build(dataset, report, output)


def _print_build(dataset: FewShotDataset, report: BuildReport, output: Path) -> None:
    shown = report.relations[:MOST_RELATIONS_SHOWN]
    print_table(
        "Relations",
        ["relation", "triples", "became", "why", "candidates"],
        [(row.name, row.triples, row.role, row.reason, row.candidates) for row in shown],
    )
    if len(report.relations) > len(shown):
        click.echo(f"... and {len(report.relations) - len(shown):,} more relations; --json has all of them\n")
    if report.skipped:
        print_table("Left out", ["what", "how many"], list(report.skipped.items()))
    for note in report.notes:
        click.echo(f"note: {note}")
    sizes = dataset.split_sizes
    click.echo(
        f"{output}: {len(dataset.graph.entities):,} entities, {len(dataset.graph.triples):,} background triples, "
        f"{sizes['train']} train, {sizes['dev']} dev and {sizes['test']} test tasks"
    )


@data.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to put it [default: data/NAME].")
@click.option("--url", help="Fetch the archive from this address instead of the authors'.")
@click.option("--archive", type=click.Path(path_type=Path), help="Unpack an archive that you have already.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it is there.")
def get(name: str, output: Path | None, url: str | None, archive: Path | None, overwrite: bool) -> None:
    """Fetch the published dataset NAME (nell-one or wiki-one), check it, and unpack it.

    An interrupted download goes on where it stopped when the command is run again.

    \b
    Example:
      hire data get nell-one
    """
    from hire.data.sources.download import get_dataset

    target = output or Path("data") / name
    dataset = get_dataset(name, target, url=url, archive=archive, overwrite=overwrite)
    click.echo(f"{target}: {dataset.title}, all {len(dataset.files)} files as published")


@data.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The directory to make.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it is there.")
def export(dataset: str, output: Path, overwrite: bool) -> None:
    """Write DATASET in the published layout, for other systems to read.

    \b
    Example:
      hire data export umls-one -o umls-published
    """
    from hire.data.open import open_dataset
    from hire.data.published.write import write_published

    write_published(open_dataset(dataset), output, overwrite=overwrite)
    click.echo(f"{output}: written in the published layout")


@data.command()
@click.argument("dataset")
@option("--shots", type=POSITIVE, default=3, help="References of each episode.")
@option("--episodes", type=click.IntRange(1, 1000), default=3, help="How many to draw.")
@option("--regime", type=click.Choice(["tasks", "in-train"]), default="tasks")
@option("--seed", type=NATURAL, default=0)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw the context as an SVG picture, too.")
@json_option
def sample(
    dataset: str, shots: int, episodes: int, regime: Any, seed: int, picture: Path | None, as_json: bool
) -> None:
    """Draw a few episodes from the train tasks of DATASET, and the context of the first reference.

    \b
    Example:
      hire data sample umls-one --shots 3 --picture context.svg
    """
    from hire.cli.samples import draw_sample, print_sample
    from hire.data.open import open_dataset

    drawn = draw_sample(open_dataset(dataset), shots=shots, episodes=episodes, regime=regime, seed=seed)
    if picture is not None:
        from hire.errors import HireError
        from hire.sampling.picture import context_svg
        from hire.util.files import atomic_file

        if picture.suffix.lower() != ".svg":
            raise HireError("is not a name for a picture", file=picture, remedy="let it end in .svg")
        with atomic_file(picture) as partial:
            partial.write_text(context_svg(drawn["context"]), "utf-8")
    print_json(drawn) if as_json else print_sample(drawn)
    if picture is not None and not as_json:
        click.echo(f"{picture}: the same context as a picture")
