"""hire pretrain, hire train, hire evaluate and hire systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hire.cli.options import (
    FEW,
    MINUTES,
    POSITIVE,
    SEED,
    SHOTS,
    SIZE,
    device_option,
    threads_option,
    use_one_thread,
)
from hire.cli.output import json_option, option, print_json, print_table

EMBEDDINGS = ("transe", "transh", "transd", "distmult", "complex", "complex-n3")
PRESETS = ("best", "levels", "fast", "paper")
RECIPES = ("published", "common")


@click.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file for them, besides the cache.")
@option("--model", type=click.Choice(EMBEDDINGS), default="transe", help="How triples are scored.")
@option("--dimension", type=SIZE, default=100, help="Dimension of the embeddings.")
@option("--steps", type=POSITIVE, help="Number of training steps [default: that of the presets].")
@option("--seed", type=SEED, default=0, help="Random seed.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; may be repeated.")
@device_option
@json_option
def pretrain(
    dataset: str,
    output: Path | None,
    model: str,
    dimension: int,
    steps: int | None,
    seed: int,
    assignments: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Learn embeddings of the background graph of DATASET, inverse relations included.

    They are kept in the cache, where hire train finds them; hire train does this by itself when there are none. After
    Ctrl-C, the same command continues where it stopped.

    \b
    Example:
      hire pretrain umls-one --model complex-n3 --steps 500 -o umls.safetensors
      hire pretrain umls-one --set storage.place=file --set batch_size=4096
    """
    import time

    from hire.data.open import open_dataset
    from hire.embeddings.settings import EmbeddingSettings
    from hire.training.embedding import embeddings_of, embeddings_path, save_embeddings
    from hire.util.files import check_file
    from hire.util.settings import changed, parse_assignment, to_plain

    settings = EmbeddingSettings(dimension=dimension, seed=seed)
    for name, value in (("model", model), ("steps", steps), *map(parse_assignment, assignments)):
        settings = settings if value is None else changed(settings, name, value)
    if output is not None:
        check_file(output)
    opened = open_dataset(dataset)
    start = time.monotonic()
    found = embeddings_of(opened, settings, device)
    seconds = time.monotonic() - start
    path = embeddings_path(opened, settings)
    if output is not None:
        path = output
        save_embeddings(path, found, opened)
    entities, relations = list(found.entities.shape), list(found.relations.shape)
    if as_json:
        about = {"file": str(path), "seconds": seconds, "entities": entities, "relations": relations}
        print_json(about | {"settings": to_plain(settings)})
        return
    click.echo(f"{entities[0]:,} entities and {relations[0]:,} relations (inverse ones included), {model}")
    click.echo(f"{path}: the embeddings, after {seconds:.0f} s")


@click.command()
@click.argument("dataset")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder of the run.")
@click.option("--preset", "preset_name", help=f"Ready settings: {', '.join(PRESETS)} [default: best].")
@click.option("--system", help="A system with its default settings, in place of a preset; hire systems lists them.")
@click.option("--recipe", type=click.Choice(RECIPES), help="Settings of --system: as published, or common to all.")
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of settings, in the form of a preset.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; may be repeated.")
@option("--steps", type=POSITIVE, help="Number of training steps: --set training.steps=N.")
@option("--shots", type=SHOTS, multiple=True, help="References in training; may be repeated, for several K.")
@option("--seed", type=SEED, help="Random seed of everything.")
@option("--embeddings", type=click.Path(path_type=Path), help="A file of hire pretrain to start from.")
@option("--max-minutes", type=MINUTES, help="Stop after this time; --resume continues.")
@device_option
@threads_option
@click.option("--tensorboard", is_flag=True, help="Also write the metrics for TensorBoard (an extra).")
@click.option("--resume", is_flag=True, help="Continue the run where it stopped.")
@option("--calibrate/--no-calibrate", default=True, help="Find out at the end what scores mean, as confidences.")
@json_option
def train(
    dataset: str,
    output: Path,
    preset_name: str | None,
    system: str | None,
    recipe: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    steps: int | None,
    shots: tuple[int, ...],
    seed: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a system on DATASET and choose the best step on dev.

    Every setting can be set: from a preset, a system's defaults (hire systems) or one of its recipes, a TOML file, and
    --set, in this order. Ctrl-C ends after the current step without loss: the same command with --resume continues, and
    the result is the same, bit for bit, as without an interruption.

    \b
    Examples:
      hire train umls-one -o runs/umls --steps 100
      hire train umls-one -o runs/hire --system hire --set training.steps=200 --set model.decoder=mtransh
      hire train data/nell-one -o runs/paper --preset paper --shots 3 --seed 1
      hire train data/nell-one -o runs/metar --system metar --recipe published --shots 3
    """
    from hire.inference.fit import fit
    from hire.training.run import CONFIG

    if sum(given is not None for given in (preset_name, system, config)) > 1:
        raise click.UsageError("give one of --preset, --system and --config")
    if recipe is not None and system is None:
        raise click.UsageError("--recipe needs --system")
    changes = [("training.steps", steps), ("training.shots", shots or None)]
    settings = _settings(preset_name, system, recipe, config, assignments, changes, seed)
    if options["resume"] and not (output / CONFIG).exists():
        click.echo(f"{output}: there is nothing to resume yet; starting from the beginning", err=True)
    use_one_thread()  # in what follows the steps, which have their own number
    found = fit(dataset, output, settings, **options)
    if as_json:
        print_json({"run": str(output), "system": settings.system, **found})
        return
    title = f"Best on dev, step {found['step']:,}" if found["step"] else "On dev"
    print_table(title, ["shots", "MRR"], [(k, f"{mrr:.3f}") for k, mrr in found["dev"].items()])
    click.echo(f"{output}: the run" + ("" if found["finished"] else "; not finished, --resume continues"))


def _settings(
    preset_name: str | None,
    system: str | None,
    recipe: Any,
    config: Path | None,
    assignments: tuple[str, ...],
    changes: list[tuple[str, Any]],
    seed: int | None,
) -> Any:
    from hire.training.settings import DEFAULT, RunSettings, preset, read_settings
    from hire.util.settings import parse_assignment

    if config is not None:
        settings = read_settings(config)
    elif system is not None:
        settings = RunSettings.of(system) if recipe is None else RunSettings.of_recipe(system, recipe)
    else:
        settings = preset(preset_name or DEFAULT)
    settings = settings if seed is None else settings.seeded(seed)
    settings = settings.changed({name: value for name, value in changes if value is not None})
    return settings.changed(dict(map(parse_assignment, assignments)))


@click.command()
@click.argument("model")
@click.option("--dataset", help="Where the dataset is now, if it is not where it was at training.")
@option("--split", type=click.Choice(["train", "dev", "test"]), default="dev", help="Whose tasks to rank.")
@option("--shots", type=SHOTS, default=5, help="References of each task: its first K triples.")
@option(
    "--candidates", type=click.Choice(["task", "all"]), default="task", help="Rank among the task's, or all entities."
)
@option("--draws", type=FEW, help="Draw the references at random instead, so many times.")
@option("--seed", type=SEED, default=0, help="Random seed of the draws and the intervals.")
@device_option
@json_option
def evaluate(
    model: str,
    dataset: str | None,
    split: str,
    shots: int,
    candidates: str,
    draws: int | None,
    seed: int,
    device: str,
    as_json: bool,
) -> None:
    """Rank the queries of a split, other true tails filtered out.

    MODEL is a run of hire train, or a dataset, which is ranked by the pre-trained model.

    \b
    Examples:
      hire evaluate runs/umls --split dev --shots 3
      hire evaluate umls-one --split dev --shots 3
    """
    from hire.evaluation.ranking import evaluate as evaluate_system
    from hire.evaluation.ranking import evaluate_draws
    from hire.inference.open import open_model

    use_one_thread()
    trained = open_model(model, dataset, device=device)
    opened, among_all = trained.dataset, candidates == "all"
    if draws is not None:
        found = evaluate_draws(trained.system, opened, split, shots, draws, among_all=among_all, seed=seed)
    else:
        found = evaluate_system(trained.system, opened, split, shots, among_all=among_all, seed=seed)
    title = f"{opened.name}, {split}, {shots} shots, " + ("among all entities, " if among_all else "")
    if as_json:
        print_json(found)
    elif draws is not None:
        rows = [(part, *_row(found[part])) for part in ("mean", "deviation")]
        print_table(f"{title}references drawn {draws} times", ["draws", *_metric_names()], rows)
    else:
        _print_evaluation(f"{title}{found['queries']:,} queries", found)


def _metric_names() -> list[str]:
    from hire.evaluation.ranking import HITS

    return ["mrr", *(f"hits@{most}" for most in HITS)]


def _row(metrics: dict[str, Any]) -> list[str]:
    return [f"{metrics[name]:.3f}" for name in _metric_names()]


def _print_evaluation(title: str, found: dict[str, Any]) -> None:
    from hire.evaluation.ranking import RANKS

    names = _metric_names()
    print_table(title, ["ranks", *names], [(kind, *_row(found[kind])) for kind in RANKS])
    intervals = (found["realistic"][f"{name}_interval"] for name in names)
    low_high = [f"{low:.3f}–{high:.3f}" for low, high in intervals]
    print_table("95% of resamples of the queries", ["", *names], [("realistic", *low_high)])
    rows = [(name, part["queries"], *_row(part)) for name, part in found["relations"].items()]
    print_table("Relations", ["relation", "queries", *names], rows)


@click.command()
@click.argument("name", required=False)
@json_option
def systems(name: str | None, as_json: bool) -> None:
    """List the few-shot systems, with their papers and capabilities; with NAME also its settings.

    \b
    Examples:
      hire systems
      hire systems hire
    """
    from hire.systems.base import CAPABILITIES
    from hire.systems.registry import describe, system_names

    found = [describe(each) for each in ([name] if name else system_names())]
    if as_json:
        print_json(found)
        return
    rows = [(each["name"], each["summary"], each["paper"], ", ".join(each["capabilities"])) for each in found]
    print_table("Few-shot systems", ["name", "what it does", "paper", "capabilities"], rows)
    if name:
        about, allowed = found[0]["about_settings"], found[0]["allowed"]
        settings = [
            (path, str(value), allowed.get(path, ""), about.get(path, ""))
            for path, value in found[0]["settings"].items()
        ]
        columns = ["setting", "default", "allowed", "what it is"]
        print_table(f"Settings of {name}, for --set and --config", columns, settings)
        return
    for capability, meaning in CAPABILITIES.items():
        click.echo(f"{capability}: {meaning}")
    click.echo("\nhire systems NAME lists the settings of one.")
