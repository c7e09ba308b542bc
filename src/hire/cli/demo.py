"""hire demo: the main job on the bundled data."""

from __future__ import annotations

import click


@click.command()
def demo() -> None:
    """Show the bundled dataset: its statistics, a few tasks, and the context of one triplet.

    \b
    Example:
      hire demo
    """
    from hire.catalog import open_dataset
    from hire.cli.data import print_statistics
    from hire.cli.samples import draw_sample, print_sample
    from hire.statistics import statistics

    dataset = open_dataset("umls-one")
    print_statistics(statistics(dataset))
    print_sample(draw_sample(dataset, shots=3, episodes=3, regime="tasks", seed=0))
    click.echo("Your own graph: hire data build graph.tsv -o my-graph    (hire data build --help)")
