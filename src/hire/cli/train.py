"""hire train and hire evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hire.cli.output import NATURAL, POSITIVE, json_option, option, print_json, print_table


@click.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder of the run.")
@option("--shots", type=POSITIVE, multiple=True, help="Train for K references; several times for several K [1 to 5].")
@option("--regime", type=click.Choice(["tasks", "in-train"]), default="in-train", help="What serves as a task.")
@option("--steps", type=POSITIVE, default=5_000, help="Steps of training.")
@option("--dimension", type=POSITIVE, default=100, help="Of the embeddings.")
@option("--decoder", type=click.Choice(["mtransd", "mtransh", "mtranse"]), default="mtransd", help="Entity level.")
@option("--learner", type=click.Choice(["set", "mean", "lstm"]), default="set", help="Triplet level.")
@option("--inner-steps", type=NATURAL, default=1, help="Of MAML on the references; 0 leaves it out.")
@option("--context-weight", type=click.FloatRange(0), default=0.05, help="Lambda; 0 leaves the context level out.")
@option("--false-contexts", type=POSITIVE, default=1, help="N of the contrastive loss.")
@option("--embedding-steps", type=POSITIVE, default=6_000, help="Of pre-training with TransE.")
@option("--evaluate-every", type=POSITIVE, default=500, help="Steps between looks at dev.")
@option("--max-minutes", type=click.FloatRange(0, min_open=True), help="Stop after this time; --resume goes on.")
@option("--seed", type=NATURAL, default=0)
@click.option("--resume", is_flag=True, help="Go on with the run where it stopped.")
@json_option
def train(dataset: str, output: Path, resume: bool, as_json: bool, **options: Any) -> None:
    """Train HiRe on DATASET, choosing the best step on dev.

    Ctrl-C ends after the current step without loss: the same command with --resume goes on, and the result is the
    same, bit for bit, as without an interruption.

    \b
    Example:
      hire train umls-one --steps 500 --dimension 32 -o runs/umls
    """
    from hire.embeddings import EmbeddingSettings
    from hire.fitting import FitSettings, fit
    from hire.models.hire import HireSettings
    from hire.training import TrainingSettings

    all_shots = tuple(options["shots"]) or (1, 2, 3, 4, 5)
    model = HireSettings(
        dimension=options["dimension"],
        decoder=options["decoder"],
        learner=options["learner"],
        inner_steps=options["inner_steps"],
        context_weight=options["context_weight"],
        false_contexts=options["false_contexts"],
    )
    training = TrainingSettings(steps=options["steps"], shots=all_shots, regime=options["regime"], seed=options["seed"])
    embedding = EmbeddingSettings(
        dimension=options["dimension"], steps=options["embedding_steps"], seed=options["seed"]
    )
    settings = FitSettings(
        evaluate_every=options["evaluate_every"],
        evaluate_shots=(1, 3, 5) if len(all_shots) > 1 else all_shots,
        max_minutes=options["max_minutes"],
    )
    found = fit(dataset, output, model, training, embedding, settings, resume=resume)
    if as_json:
        print_json({"run": str(output), **found})
        return
    print_table(
        f"Best on dev, step {found['step']:,}", ["shots", "MRR"], [(k, f"{mrr:.3f}") for k, mrr in found["dev"].items()]
    )
    click.echo(f"{output}: the run; curves.svg shows its course" + ("" if found["finished"] else "; --resume goes on"))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--dataset", help="Where the dataset is now, if it is not where it was at training.")
@option("--split", type=click.Choice(["train", "dev", "test"]), default="dev")
@option("--shots", type=POSITIVE, default=5, help="References of each task: its first K triples.")
@option("--candidates", type=click.Choice(["task", "all"]), default="task", help="Rank among the task's, or all.")
@json_option
def evaluate(run: Path, dataset: str | None, split: str, shots: int, candidates: str, as_json: bool) -> None:
    """Rank the queries of a split with the model of RUN, other true tails filtered out.

    \b
    Example:
      hire evaluate runs/umls --split dev --shots 3
    """
    from hire.evaluation import HITS, RANKS
    from hire.evaluation import evaluate as evaluate_model
    from hire.fitting import load

    model, opened = load(run, dataset)
    found = evaluate_model(model, opened, split, shots, among_all=candidates == "all")
    if as_json:
        print_json(found)
        return
    names = ["mrr", *(f"hits@{most}" for most in HITS)]

    def figures(part: dict[str, Any]) -> list[str]:
        return [f"{part[name]:.3f}" for name in names]

    title = f"{opened.name}, {split}, {shots} shots, {found['queries']:,} queries"
    print_table(title, ["ranks", *names], [(kind, *figures(found[kind])) for kind in RANKS])
    low_high = [f"{low:.3f}–{high:.3f}" for low, high in (found["realistic"][f"{name}_interval"] for name in names)]
    print_table("95% of resamples of the queries", ["", *names], [("realistic", *low_high)])
    rows = [(name, part["queries"], *figures(part)) for name, part in found["relations"].items()]
    print_table("Relations", ["relation", "queries", *names], rows)
