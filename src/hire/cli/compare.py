"""hire compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hire.cli.options import FEW, MINUTES, SHOTS, device_option, threads_option, use_one_thread
from hire.cli.output import json_option, option, print_json, print_table

if TYPE_CHECKING:
    from hire.comparison.plan import Job
    from hire.comparison.run import Bench, Outcome
    from hire.comparison.table import Comparison

RECIPES = ("published", "common")


def names(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise click.BadParameter("give at least one, with commas between several", param=parameter)
    return found


def recipe_names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Recipes with commas between them."""
    return tuple(click.Choice(RECIPES).convert(name, parameter, context) for name in names(context, parameter, value))


def numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(SHOTS(number, parameter, context) for number in names(context, parameter, value))


budget_option = click.option(
    "--budget",
    type=MINUTES,
    metavar="MINUTES",
    help="Most minutes of training for each run; the tables say what it cut.",
)
discard_option = click.option(
    "--discard-weights", is_flag=True, help="Remove the weights of a run as soon as it is ranked: its ranks are enough."
)
plan_option = click.option(
    "--plan",
    is_flag=True,
    help="Only show what remains to be done, and about how long it takes, from a few steps of each system.",
)
report_option = click.option(
    "--report", "report_only", is_flag=True, help="Only show what is done so far: train and rank nothing."
)
seeds_option = option("--seeds", type=FEW, default=3, help="How many seeds to train, from 0 on.")


@click.command()
@click.argument("dataset")
@option("--systems", callback=names, default="all", metavar="all|NAME,...", help="Systems, presets or TOML files.")
@option(
    "--recipe",
    "recipes",
    callback=recipe_names,
    default="common",
    metavar="published|common",
    help="How to train them.",
)
@option("--shots", callback=numbers, default="1,3,5", metavar="K,...", help="Numbers of references.")
@seeds_option
@option("--draws", type=FEW, help="Draw the references at random, so many times, instead of taking the first.")
@budget_option
@option("--split", type=click.Choice(["dev", "test"]), default="test", help="Whose tasks to rank.")
@option(
    "--candidates", type=click.Choice(["task", "all"]), default="task", help="Rank among the task's, or all entities."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder  [default: runs/compare-DATASET].")
@discard_option
@plan_option
@report_option
@device_option
@threads_option
@json_option
def compare(
    dataset: str,
    systems: tuple[str, ...],
    recipes: tuple[Any, ...],
    shots: tuple[int, ...],
    seeds: int,
    draws: int | None,
    budget: float | None,
    split: str,
    candidates: str,
    output: Path | None,
    discard_weights: bool,
    plan: bool,
    report_only: bool,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Train and evaluate several systems on DATASET, and tell which differences are more than chance.

    Runs that are in the folder already are reused, and an interrupted one is continued: after Ctrl-C, give the same
    command again. Tables are written as Markdown, CSV, JSON and LaTeX, beside a chart. A system without the recipe has
    its default settings; an ensemble is named by its preset, levels. Of two recipes, written published,common, each has
    rows of its own. Several processes may work in one folder at once.

    \b
    Examples:
      hire compare umls-one --systems any-link,mean-translation,path --shots 1,3 --seeds 1
      hire compare data/nell-one --recipe published,common --shots 1,5 --budget 30 -o runs/nell-one
    """
    from hire.comparison.plan import jobs_of, rows_of
    from hire.comparison.run import Bench, Protocol
    from hire.comparison.table import compare as compare_rows
    from hire.comparison.write import to_plain, write_comparison
    from hire.data.open import open_dataset
    from hire.training.run import fingerprint

    plan_or_report(plan, report_only)
    rows = rows_of(systems, recipes)
    opened = open_dataset(dataset)
    folder = output or Path("runs") / f"compare-{opened.name}"
    jobs = jobs_of(rows, shots, seeds, fingerprint(opened))
    use_one_thread()
    protocol = Protocol(split, draws, candidates == "all")
    bench = Bench(folder, dataset, opened, protocol, budget, device, not discard_weights, threads)
    if plan:
        print_plan(bench, jobs, as_json)
        return
    with continued():
        if report_only:
            fail_if_nothing_is_done(bench, jobs)
        outcomes = bench.outcomes(jobs) if report_only else bench.carry_out(jobs, say)
        comparison = compare_rows(rows, outcomes, shots, bench.about() | {"seeds": seeds})
        files = write_comparison(folder, comparison)
    if as_json:
        print_json(to_plain(comparison))
    else:
        print_comparison(comparison)
        click.echo(f"{folder}: {', '.join(path.name for path in files)}")
    if not report_only:
        fail_if_incomplete(outcomes)


def plan_or_report(plan: bool, report_only: bool) -> None:
    """What remains and what is done are told by two calls."""
    if plan and report_only:
        raise click.UsageError("give --plan or --report, not both")


def say(message: str) -> None:
    """Tell how the work goes, beside what the command prints."""
    click.echo(message, err=True)


@contextmanager
def continued() -> Iterator[None]:
    """An interruption says how to continue."""
    from hire.errors import HireError

    try:
        yield
    except KeyboardInterrupt:
        raise HireError("interrupted", remedy="the same command continues; --report shows what is done") from None


def fail_if_incomplete(outcomes: list[Outcome]) -> None:
    """Tell which runs have no metrics."""
    from hire.errors import HireError

    missing = [outcome for outcome in outcomes if not outcome.evaluations]
    if missing:
        names = "; ".join(f"{outcome.job} ({outcome.training.problem or 'not done yet'})" for outcome in missing)
        remedy = "the same command tries again"
        raise HireError(f"{len(missing)} of {len(outcomes)} runs have no metrics: {names}", remedy=remedy)


def fail_if_nothing_is_done(bench: Bench, jobs: list[Job]) -> None:
    """A report of nothing would leave empty tables."""
    from hire.errors import HireError

    if jobs and not any(outcome.evaluations for outcome in bench.outcomes(jobs)):
        message = f"none of the {len(jobs)} runs is done yet"
        raise HireError(message, file=bench.folder, remedy="the command without --report trains them")


def print_comparison(comparison: Comparison) -> None:
    """Print one table: all metrics for one number of references, MRR for several."""
    from hire.comparison.table import METRIC_TITLES
    from hire.comparison.write import legend, marked_rows, minutes, spread, title

    single = comparison.shots[0] if len(comparison.shots) == 1 else None
    if single is not None:
        columns = [(single, metric, name) for metric, name in METRIC_TITLES.items()]
    else:
        columns = [(shots, "mrr", f"{shots}-shot MRR") for shots in comparison.shots]
    rows = []
    for line, mark in marked_rows(comparison):
        cells = [line.cells.get((shots, metric)) for shots, metric, _ in columns]
        shown = ["–" if cell is None else spread(cell) + " best" * cell.best + "*" * cell.worse for cell in cells]
        name = f"{line.row.name} {mark}".strip()
        rows.append((name, line.row.recipe, len(line.evaluated(single)), *shown, minutes(line, single)))
    head = ["system", "recipe", "runs", *(name for _, _, name in columns), "minutes"]
    only = "" if single is None else f", {single}-shot"
    print_table(title(comparison) + only, head, rows)
    for note in legend(comparison):
        click.echo(note)
    click.echo()


def print_plan(bench: Bench, jobs: list[Job], as_json: bool) -> None:
    """Print what is there, what remains to be done, and about how long each takes."""
    from hire.comparison.estimate import Expected, Forecast

    bench.check(jobs)
    forecast = Forecast(bench, jobs)
    forecast.measure(say)
    runs = [(bench.outcome(job), forecast.of(job) if job in forecast.left else None) for job in jobs]
    embeddings = [(settings, forecast.of_embeddings(settings)) for settings in forecast.embeddings]
    if as_json:
        of_runs = [
            {
                "run": str(there.job),
                "folder": there.job.name,
                "seconds": there.training.seconds,
                "done": left is None,
                "expected": None if left is None else left._asdict(),
            }
            for there, left in runs
        ]
        of_embeddings = [{"model": of.model, "seed": of.seed, "expected": seconds} for of, seconds in embeddings]
        content = {"expected": forecast.seconds, "unknown": forecast.unknown, "remaining": forecast.summary}
        print_json({"runs": of_runs, "embeddings": of_embeddings, **content})
        return
    rows = [(f"{of.model} embeddings, seed {of.seed}", "to do", in_minutes(0, left), "") for of, left in embeddings]
    for there, left in runs:
        done, ranked = there.training.seconds, sum(evaluation.seconds for evaluation in there.evaluations)
        state = "there" if left is None else "begun" if done else "to do"
        training, ranking = left or Expected(0.0, 0.0)
        rows.append((str(there.job), state, in_minutes(done, training), in_minutes(ranked, ranking)))
    if forecast.left:
        parts = zip(*(left for _, left in runs if left is not None), strict=True)
        training, ranking = (sum(seconds or 0.0 for seconds in of) for of in parts)
        training += sum(seconds or 0.0 for _, seconds in embeddings)
        rows.append(("sum of what is to do", "", in_minutes(0, training), in_minutes(0, ranking)))
    print_table(f"{bench.folder}: {forecast.summary}", ["run", "", "minutes of training", "of ranking"], rows)
    if forecast.left:
        click.echo("Estimates are for one thread on an idle machine, and for trainings that go on to their last step.")


def in_minutes(done: float, left: float | None) -> str:
    """Seconds that were measured, and those that are expected from now on, as minutes for people."""
    measured = f"{done / 60:.1f}" if done >= 3 else "under 0.1"
    if left is None:
        return "unknown"
    if not left:
        return measured
    expected = f"about {left / 60:.0f}" if left >= 60 else "under 1"
    return f"{measured}, {expected} more" if done else expected
