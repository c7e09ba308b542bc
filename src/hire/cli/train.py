"""hire pretrain, hire train and hire evaluate."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from hire.cli.output import NATURAL, POSITIVE, json_option, option, print_json, print_table
from hire.errors import HireError

DEVICES = ("auto", "cpu", "cuda")
MODELS = ("hire", "hire-path")
EVIDENCE = ("all", "background")
EMBEDDINGS = ("transe", "transh", "transd", "distmult", "complex", "complex-n3")


@click.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file for them, besides the cache.")
@option("--model", type=click.Choice(EMBEDDINGS), default="transe", help="How triples are scored.")
@option("--dimension", type=POSITIVE, default=100, help="Of the embeddings.")
@option("--steps", type=POSITIVE, help="Of training [that of the presets].")
@option("--seed", type=NATURAL, default=0)
@option("--device", type=click.Choice(DEVICES), default="auto", help="Where to compute.")
@json_option
def pretrain(
    dataset: str,
    output: Path | None,
    model: str,
    dimension: int,
    steps: int | None,
    seed: int,
    device: str,
    as_json: bool,
) -> None:
    """Learn embeddings of the background graph of DATASET, inverse relations included.

    They are kept in the cache, where hire train finds them; hire train does this by itself when there are none.
    Ctrl-C keeps what was learned: the same command goes on.

    \b
    Example:
      hire pretrain umls-one --model complex-n3 --steps 500 -o umls.safetensors
    """
    import time

    from hire.data.open import open_dataset
    from hire.training.pipeline import embeddings_of, embeddings_path
    from hire.training.run import save_embeddings
    from hire.training.settings import RunSettings

    embedding = {"model": model, "dimension": dimension, "steps": steps, "seed": seed}
    settings = RunSettings().changed(embedding=embedding).embedding
    opened = open_dataset(dataset)
    start = time.monotonic()
    found = embeddings_of(opened, settings, _device(device))
    seconds = time.monotonic() - start
    path = embeddings_path(opened, settings)
    if output is not None:
        path = output
        save_embeddings(path, found, opened)
    entities, relations = list(found.entities.shape), list(found.relations.shape)
    if as_json:
        about = {"file": str(path), "seconds": seconds, "entities": entities, "relations": relations}
        print_json(about | {"settings": asdict(settings)})
        return
    click.echo(f"{entities[0]:,} entities and {relations[0]:,} relations (inverse ones included), {model}")
    click.echo(f"{path}: the embeddings, after {seconds:.0f} s")


@click.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder of the run.")
@click.option("--model", type=click.Choice(MODELS), help="The few-shot system, without or with the path level.")
@option("--preset", type=click.Choice(["best", "fast", "paper"]), default="best", help="The other settings' defaults.")
@option("--shots", type=POSITIVE, multiple=True, help="References in training; several times for several K.")
@option("--regime", type=click.Choice(["tasks", "in-train"]), help="What serves as a task.")
@option("--steps", type=POSITIVE, help="Of training.")
@option("--dimension", type=POSITIVE, help="Of the embeddings.")
@option("--decoder", type=click.Choice(["mtransd", "mtransh", "mtranse"]), help="Entity level.")
@option("--learner", type=click.Choice(["set", "mean", "lstm"]), help="Triplet level: MRL, AVG or LSTM.")
@option("--inner-steps", type=NATURAL, help="Of MAML on the references; 0 leaves it out.")
@option("--second-order/--first-order", default=None, help="Whether gradients flow through MAML's steps.")
@option("--context-weight", type=click.FloatRange(0), help="Lambda; 0 leaves the context level out.")
@option("--false-contexts", type=POSITIVE, help="N of the contrastive loss.")
@option("--path-steps", type=POSITIVE, help="Of training the path level.")
@option("--evidence", type=click.Choice(EVIDENCE), help="The path level's: train tasks and background, or that alone.")
@option("--embeddings", type=click.Path(path_type=Path), help="A file of hire pretrain to start from.")
@option("--embedding-steps", type=POSITIVE, help="Of pre-training.")
@option("--evaluate-every", type=POSITIVE, help="Steps between looks at dev.")
@option("--patience", type=POSITIVE, help="Looks at dev without a better one before training stops.")
@option("--max-minutes", type=click.FloatRange(0, min_open=True), help="Stop after this time; --resume goes on.")
@option("--seed", type=NATURAL, default=0)
@option("--device", type=click.Choice(DEVICES), default="auto", help="Where to compute.")
@click.option("--tensorboard", is_flag=True, help="Write the metrics for TensorBoard, too (an extra).")
@click.option("--resume", is_flag=True, help="Go on with the run where it stopped.")
@option("--calibrate/--no-calibrate", default=True, help="Find out at the end what scores mean, as confidences.")
@json_option
def train(dataset: str, output: Path, resume: bool, calibrate: bool, as_json: bool, **options: Any) -> None:
    """Train a model on DATASET, choosing the best step on dev. What is not given is as the preset has it.

    Ctrl-C ends after the current step without loss: the same command with --resume goes on, and the result is the
    same, bit for bit, as without an interruption.

    \b
    Example:
      hire train umls-one --steps 100 -o runs/umls
    """
    from hire.inference.calibrate import calibrate_new
    from hire.training.pipeline import fit
    from hire.training.settings import preset

    dimension, seed = options["dimension"], options["seed"]
    names = ("decoder", "learner", "inner_steps", "second_order", "context_weight", "false_contexts")
    settings = preset(options["preset"]).changed(
        model={"dimension": dimension, **{name: options[name] for name in names}},
        training={
            "steps": options["steps"],
            "shots": options["shots"] or None,
            "regime": options["regime"],
            "seed": seed,
        },
        embedding={"dimension": dimension, "steps": options["embedding_steps"], "seed": seed},
        fit={"evaluate_every": options["evaluate_every"], "patience": options["patience"]},
        path_training={
            "steps": options["path_steps"],
            "train_facts": options["evidence"] and options["evidence"] == "all",
            "seed": seed,
        },
    )
    if options["model"] is not None:
        settings = replace(settings, path=preset("best" if options["model"] == "hire-path" else "fast").path)
    found = fit(
        dataset,
        output,
        settings,
        embeddings=options["embeddings"],
        resume=resume,
        max_minutes=options["max_minutes"],
        device=_device(options["device"]),
        tensorboard=options["tensorboard"],
    )
    calibrated = calibrate and found["finished"] and calibrate_new(output)
    if as_json:
        print_json({"run": str(output), **found, "calibrated": calibrated})
        return
    print_table(
        f"Best on dev, step {found['step']:,}", ["shots", "MRR"], [(k, f"{mrr:.3f}") for k, mrr in found["dev"].items()]
    )
    click.echo(f"{output}: the run; curves.svg shows its course" + ("" if found["finished"] else "; --resume goes on"))


def _device(name: str) -> str:
    import torch

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HireError("no CUDA device was found", remedy="say --device cpu")
    return "cuda" if name == "auto" and available else name.replace("auto", "cpu")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--dataset", help="Where the dataset is now, if it is not where it was at training.")
@option("--split", type=click.Choice(["train", "dev", "test"]), default="dev")
@option("--shots", type=POSITIVE, default=5, help="References of each task: its first K triples.")
@option("--candidates", type=click.Choice(["task", "all"]), default="task", help="Rank among the task's, or all.")
@option("--draws", type=POSITIVE, help="Draw the references at random instead, so many times.")
@option("--seed", type=NATURAL, default=0, help="Of the draws and the intervals.")
@json_option
def evaluate(
    run: Path,
    dataset: str | None,
    split: str,
    shots: int,
    candidates: str,
    draws: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Rank the queries of a split with the model of RUN, other true tails filtered out.

    \b
    Example:
      hire evaluate runs/umls --split dev --shots 3
    """
    from hire.evaluation.ranking import HITS, RANKS, evaluate_draws
    from hire.evaluation.ranking import evaluate as evaluate_model
    from hire.inference.model import load

    trained = load(run, dataset)
    opened, among_all = trained.dataset, candidates == "all"
    names = ["mrr", *(f"hits@{most}" for most in HITS)]

    def figures(part: dict[str, Any]) -> list[str]:
        return [f"{part[name]:.3f}" for name in names]

    if draws is not None:
        found = evaluate_draws(trained.model, opened, split, shots, draws, among_all=among_all, seed=seed)
        if as_json:
            print_json(found)
            return
        title = f"{opened.name}, {split}, {shots} shots, references drawn {draws} times"
        print_table(title, ["draws", *names], [(part, *figures(found[part])) for part in ("mean", "deviation")])
        return
    found = evaluate_model(trained.model, opened, split, shots, among_all=among_all, seed=seed)
    if as_json:
        print_json(found)
        return
    title = f"{opened.name}, {split}, {shots} shots, {found['queries']:,} queries"
    print_table(title, ["ranks", *names], [(kind, *figures(found[kind])) for kind in RANKS])
    low_high = [f"{low:.3f}–{high:.3f}" for low, high in (found["realistic"][f"{name}_interval"] for name in names)]
    print_table("95% of resamples of the queries", ["", *names], [("realistic", *low_high)])
    rows = [(name, part["queries"], *figures(part)) for name, part in found["relations"].items()]
    print_table("Relations", ["relation", "queries", *names], rows)
