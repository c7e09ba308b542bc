"""hire demo: the main job on the bundled data."""

from __future__ import annotations

from pathlib import Path

import click

from hire.cli.output import NATURAL, POSITIVE, option, print_table
from hire.cli.serve import serve_run

DATASET, RELATION, SHOTS = "umls-one", "part_of", 3


@click.command()
@option("-o", "--output", type=click.Path(path_type=Path), default=Path("runs/demo"), help="The folder of the run.")
@option("--steps", type=POSITIVE, default=100, help="Of training.")
@option("--path-steps", type=POSITIVE, default=60, help="Of training the path level.")
@option("--seed", type=NATURAL, default=0)
@click.option("--serve", is_flag=True, help="Serve the run at the end, for the browser.")
def demo(output: Path, steps: int, path_steps: int, seed: int, serve: bool) -> None:
    """Train HiRe on the bundled dataset, compare it with baselines, and ask it about a relation it has never seen.

    A second time the run is there already, and only the rest is shown.

    \b
    Example:
      hire demo
      hire demo --serve
    """
    from hire.evaluation.ranking import HITS, evaluate
    from hire.inference.calibrate import calibrate_new
    from hire.inference.model import load
    from hire.systems.base import FewShotModel
    from hire.systems.ensemble import HirePath
    from hire.systems.mean_translation import MeanTranslation
    from hire.systems.popularity import Popularity
    from hire.training.pipeline import CURVES, embeddings_of, fit
    from hire.training.run import CONFIG
    from hire.training.settings import preset

    settings = preset("best").changed(
        model={"learner_start": 0.1},  # in so small a graph, training should not lead far away
        training={"seed": seed, "steps": steps},
        embedding={"seed": seed},
        fit={"evaluate_every": 10, "patience": 6},
        path={"members": 2},
        path_training={"seed": seed, "steps": path_steps},
    )
    fit(DATASET, output, settings, resume=(output / CONFIG).exists())
    calibrate_new(output)
    trained = load(output)
    dataset = trained.dataset
    assert isinstance(trained.model, HirePath)  # noqa: S101 - that is what was trained
    systems: dict[str, FewShotModel] = {
        "popularity": Popularity(dataset.graph),
        "TransE, mean of t - h": MeanTranslation(embeddings_of(dataset, settings.embedding).entities),
        "HiRe": trained.model.hire,
        "HiRe and the path level": trained.model,
    }
    names = ["mrr", *(f"hits@{most}" for most in HITS)]
    figures = {name: evaluate(model, dataset, "test", SHOTS)["realistic"] for name, model in systems.items()}
    print_table(
        f"{DATASET}, test: relations never seen, {SHOTS} references each",
        ["", *names],
        [(name, *(f"{found[figure]:.3f}" for figure in names)) for name, found in figures.items()],
    )
    click.echo("These are 4 relations of a small graph; README.md has the figures on NELL-One.\n")
    task = next(task for task in dataset.tasks if task.name == RELATION)
    graph = dataset.graph
    pairs = [(graph.entities[int(h)], graph.entities[int(t)]) for h, t in task.pairs]
    relation = trained.teach(pairs[:SHOTS])
    click.echo(f"Taught: {'; '.join(f'{h} {RELATION} {t}' for h, t in pairs[:SHOTS])}\n")
    head = pairs[SHOTS][0]
    true = {tail for of, tail in pairs if of == head}
    print_table(
        f"{head} {RELATION} ...",
        ["", "answer", "confidence", "in the dataset"],
        [
            (place, answer.tail, f"{answer.confidence:.0%}", "yes" if answer.tail in true else "")
            for place, answer in enumerate(relation.predict(head, 5), 1)
        ],
    )
    click.echo(f"The run is in {output}, its course in {output / CURVES}.")
    if not serve:
        click.echo(f"In the browser: hire serve {output}")
    click.echo("Your own graph: hire data build graph.tsv -o my-graph, then hire train my-graph -o runs/my-graph")
    if serve:
        serve_run(output)
