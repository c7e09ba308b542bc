"""hire reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hire.cli.compare import (
    RECIPES,
    budget_option,
    continued,
    discard_option,
    fail_if_incomplete,
    fail_if_nothing_is_done,
    plan_option,
    plan_or_report,
    print_plan,
    report_option,
    say,
    seeds_option,
)
from hire.cli.options import device_option, threads_option, use_one_thread
from hire.cli.output import json_option, option, print_json, print_table

if TYPE_CHECKING:
    from hire.comparison.page import Section

EXPERIMENTS = ("comparison", "ablation", "false-contexts", "lambda", "context-statistics", "complexity", "all")


@click.command()
@click.argument("experiment", type=click.Choice(EXPERIMENTS))
@option("--dataset", default="data/nell-one", help="Where NELL-One, Wiki-One or any other dataset is.")
@option("--recipe", type=click.Choice(RECIPES), default="published", help="As in each paper, or all trained alike.")
@seeds_option
@budget_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder  [default: runs/reproduce-DATASET].")
@discard_option
@plan_option
@report_option
@device_option
@threads_option
@json_option
def reproduce(
    experiment: str,
    dataset: str,
    recipe: Any,
    seeds: int,
    budget: float | None,
    output: Path | None,
    discard_weights: bool,
    plan: bool,
    report_only: bool,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Carry out an EXPERIMENT of HiRe's paper, each figure beside the published one.

    \b
    comparison           all systems of Table 2, at 1 and 5 shots
    ablation             HiRe without one of its parts, at 3 and 5 shots
    false-contexts       the figure over N, the number of false contexts
    lambda               the figure over the weight of the context loss
    context-statistics   what head and tail of a triplet share
    complexity           parameters and operations: formula beside measurement
    all                  each of them

    The result is one HTML page with charts in the folder, and the same as JSON: ablation.html, table-2.html for the
    comparison, or reproduction.html for all; in the recipe common ablation-common.html and so on. As with hire
    compare, what is in the folder already is reused, and after Ctrl-C the same command continues.

    \b
    Examples:
      hire reproduce context-statistics --dataset data/nell-one
      hire reproduce ablation --dataset data/nell-one --recipe common --seeds 1 --budget 20
    """
    from hire.comparison.experiments import expanded
    from hire.comparison.reproduce import Reproduction
    from hire.comparison.run import Bench
    from hire.data.open import open_dataset

    plan_or_report(plan, report_only)
    opened = open_dataset(dataset)
    folder = output or Path("runs") / f"reproduce-{opened.name}"
    use_one_thread()
    kept = not discard_weights
    bench = Bench(folder, dataset, opened, budget=budget, device=device, keep_weights=kept, threads=threads)
    reproduction = Reproduction(bench, expanded([experiment]), recipe, seeds, report_only)
    if plan:
        print_plan(bench, reproduction.all_jobs(), as_json)
        return
    if report_only:
        fail_if_nothing_is_done(bench, reproduction.all_jobs())
    with continued():
        sections, content, outcomes = reproduction.carry_out(say)
    if as_json:
        print_json(content)
    else:
        _print_sections(sections)
        click.echo(f"{reproduction.page}: the page, with charts and every metric")
    if not report_only:
        fail_if_incomplete(outcomes)


def _print_sections(sections: list[Section]) -> None:
    """Print every table; of metrics beside published ones, MRR alone."""
    for section in sections:
        for table in section.tables:
            width = 5 if table.head[1] == "recipe" else len(table.head)
            rows = [[cell.text for cell in row[:width]] for row in table.rows]
            mrr = " (MRR)" if width < len(table.head) else ""
            print_table(f"{section.title}: {table.title}{mrr}", table.head[:width], rows)
        for note in section.notes:
            click.echo(note)
        click.echo()
