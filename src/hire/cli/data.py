"""hire data: build, download, verify and inspect datasets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hire.cli.options import POSITIVE, SEED, SHOTS, FiniteRange
from hire.cli.output import bar, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from hire.data.build import BuildReport
    from hire.data.dataset import FewShotDataset

MAX_RELATIONS_SHOWN = 40


@click.group()
def data() -> None:
    """Build, download, verify and inspect few-shot datasets.

    DATASET is the name of a bundled dataset (umls-one), a directory in the published layout of NELL-One and Wiki-One,
    or a directory written by `hire data build`.
    """


@data.command()
@click.argument("dataset")
@json_option
def stats(dataset: str, as_json: bool) -> None:
    """Show statistics of DATASET: counts, tasks, degrees, and the context that heads and tails share.

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
        ["", "triplets sharing one", "proportion", "shared in total"],
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
    """Check the files in DIRECTORY, their references to each other and known checksums, and list all problems.

    The exit code is 2 if there are problems.

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
        raise click.BadParameter("expected three numbers from 1 to 999999, as in 51:5:11")
    return tuple(map(int, parts))


def _columns_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    parts = tuple(part.strip() for part in value.split(","))
    if len(parts) != 3 or not all(0 < len(part) < 1000 for part in parts) or len(set(parts)) != 3:
        raise click.BadParameter("expected three different columns, as in subject,predicate,object or 1,2,3")
    return parts


@data.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Directory to create.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it exists.")
@click.option(
    "--format", "form", help="Format of the files if their suffix does not tell: tsv, csv, ntriples, turtle ..."
)
@click.option(
    "--columns", callback=_columns_option, help="Columns of head, relation and tail, by name or by number from 1."
)
@click.option("--header/--no-header", default=None, help="Whether tables have a header row [default: detected].")
@click.option("--labels", type=click.Path(path_type=Path), help="Table of entities and their labels.")
@click.option("--types", type=click.Path(path_type=Path), help="Table of entities and their types.")
@click.option("--type-pattern", help="Pattern that finds the type in a name, such as 'concept:{type}:{name}'.")
@option("--language", default="en", help="Language of RDF labels.")
@click.option("--query", help="SPARQL query, SELECT ?s ?p ?o, instead of all triples.")
@option("--page-size", type=POSITIVE, default=10_000, help="Rows per request to a SPARQL endpoint.")
@option(
    "--timeout",
    type=FiniteRange(0, 86_400, min_open=True),
    default=60.0,
    help="Seconds to wait for a response of a SPARQL endpoint.",
)
@option("--retries", type=click.IntRange(0, 1_000), default=5, help="Retries of a failed request to a SPARQL endpoint.")
@option("--more-than", type=POSITIVE, default=50, help="Relations with more triples than this become tasks.")
@option("--fewer-than", type=POSITIVE, default=500, help="Relations with fewer triples than this become tasks.")
@option("--split", default="51:5:11", callback=_split_option, help="Proportions of train:dev:test tasks.")
@option(
    "--candidates",
    type=click.Choice(["auto", "type", "range", "all"]),
    default="auto",
    help="Candidates of a task: entities of the same types as its tails (type), its tails (range), or all entities. "
    "auto: type if entities have types, otherwise all.",
)
@option("--seed", type=SEED, default=0, help="Random seed of the split.")
@click.option("--strict", is_flag=True, help="Treat duplicates, byte order marks and CRLF line endings as errors.")
@json_option
def build(sources: tuple[str, ...], output: Path, overwrite: bool, strict: bool, as_json: bool, **options: Any) -> None:
    """Build a few-shot dataset from your own graph.

    A SOURCE is a .tsv, .csv, .nt, .nq, .ttl, .trig, .rdf or .xml file, plain or compressed (.gz, .zst), or the URL of a
    SPARQL endpoint. If reading from an endpoint is interrupted, run the same command again to continue.

    \b
    Examples:
      hire data build graph.tsv -o my-graph
      hire data build facts.csv --columns subject,predicate,object --labels names.csv -o my-graph
      hire data build dump.nt.gz ontology.ttl --more-than 20 --candidates type -o my-graph
      hire data build https://example.org/sparql -o my-graph
    """
    from hire.data.build import BuildSettings
    from hire.data.build import build as build_dataset
    from hire.data.dataset import MANIFEST, FewShotDataset
    from hire.data.sources.columns import TripleTable
    from hire.data.sources.reading import SourceOptions, read_names, read_sources
    from hire.errors import HireError
    from hire.util.files import check_replaceable, printable

    check_replaceable(output, overwrite, [MANIFEST])  # before hours of reading, not after them
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
    dataset, report = build_dataset(tables, settings, take=True)
    if strict and report.notes:
        raise HireError.of(report.notes)
    dataset.save(output, overwrite=overwrite)
    del tables  # a large graph's text, names and numbers need the memory that the index is made in
    dataset = FewShotDataset.open(output)
    _write_index(dataset, overwrite=False)
    if any("://" in source for source in sources):
        shutil.rmtree(work, ignore_errors=True)
    if as_json:
        print_json({"output": str(output), **report.as_json()})
    else:
        _print_build(dataset, report, output)


def _print_build(dataset: FewShotDataset, report: BuildReport, output: Path) -> None:
    shown = report.relations[:MAX_RELATIONS_SHOWN]
    print_table(
        "Relations",
        ["relation", "triples", "role", "reason", "candidates"],
        [(row.name, row.triples, row.role, row.reason, row.candidates) for row in shown],
    )
    if len(report.relations) > len(shown):
        click.echo(f"... and {len(report.relations) - len(shown):,} more relations; --json lists all of them\n")
    if report.skipped:
        print_table("Skipped", ["what", "count"], list(report.skipped.items()))
    for note in report.notes:
        click.echo(f"note: {note}")
    sizes = dataset.split_sizes
    click.echo(
        f"{output}: {len(dataset.graph.entities):,} entities, {len(dataset.graph.triples):,} background triples, "
        f"{sizes['train']} train, {sizes['dev']} dev and {sizes['test']} test tasks"
    )


@data.command()
@click.argument("dataset")
@click.option("--overwrite", is_flag=True, help="Make the index again if there is one.")
@json_option
def index(dataset: str, overwrite: bool, as_json: bool) -> None:
    """Count what the path level needs to know of DATASET, once, into its folder.

    `hire data build` ends with it. It is for folders that an older version built: their models then start in no time.

    \b
    Example:
      hire data index my-graph
    """
    from hire.data.open import open_dataset
    from hire.errors import HireError

    opened = open_dataset(dataset)
    if opened.directory is None or opened.directory != Path(dataset).resolve():
        raise HireError(
            "is not the folder of a built dataset; its index is in the cache",
            file=dataset,
            remedy="hire data build makes a dataset with an index from your own graph",
        )
    counts = _write_index(opened, overwrite=overwrite)
    if as_json:
        print_json({"index": str(opened.directory), **counts})
    else:
        click.echo(f"{dataset}: {counts['edges']:,} edges, {counts['bytes'] / (1 << 20):,.0f} MiB")


def _write_index(dataset: FewShotDataset, *, overwrite: bool) -> dict[str, int]:
    """Write the index into a dataset's folder; what it holds."""
    from hire.systems.path.settings import EvidenceSettings
    from hire.systems.path.stored import index_dataset

    return index_dataset(dataset, EvidenceSettings(), overwrite=overwrite)


@data.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory to create [default: data/NAME].")
@click.option("--url", help="Download the archive from this URL instead of the authors'.")
@click.option("--archive", type=click.Path(path_type=Path), help="Unpack an archive that is already on this machine.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it exists.")
def get(name: str, output: Path | None, url: str | None, archive: Path | None, overwrite: bool) -> None:
    """Download the published dataset NAME (nell-one or wiki-one), verify and unpack it.

    If the download is interrupted, run the same command again to continue. fb15k237-one is published as single files:
    give an archive of them (--archive).

    \b
    Example:
      hire data get nell-one
    """
    from hire.data.sources.download import get_dataset

    target = output or Path("data") / name
    dataset = get_dataset(name, target, url=url, archive=archive, overwrite=overwrite)
    click.echo(f"{target}: {dataset.title}, all {len(dataset.files)} files verified")


@data.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Directory to create.")
@click.option("--overwrite", is_flag=True, help="Replace the directory if it exists.")
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
@option("--shots", type=SHOTS, default=3, help="References per episode.")
@option("--episodes", type=click.IntRange(1, 1000), default=3, help="Number of episodes.")
@option(
    "--regime",
    type=click.Choice(["tasks", "in-train"]),
    default="tasks",
    help="Draw from the train tasks, or from background relations too.",
)
@option("--seed", type=SEED, default=0, help="Random seed.")
@click.option("--picture", type=click.Path(path_type=Path), help="Also draw the context as an SVG picture.")
@json_option
def sample(
    dataset: str, shots: int, episodes: int, regime: Any, seed: int, picture: Path | None, as_json: bool
) -> None:
    """Draw a few training episodes of DATASET, and show the context of the first reference.

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
            raise HireError("the picture must be an .svg file", file=picture, remedy="choose a name that ends in .svg")
        with atomic_file(picture) as partial:
            partial.write_text(context_svg(drawn["context"]), "utf-8")
    print_json(drawn) if as_json else print_sample(drawn)
    if picture is not None and not as_json:
        click.echo(f"{picture}: picture of the context")
