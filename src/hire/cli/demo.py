"""hire demo: the main job on the bundled data."""

from __future__ import annotations

import sys
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hire.cli.options import POSITIVE, SEED
from hire.cli.output import option, print_table
from hire.cli.serve import serve_model

if TYPE_CHECKING:
    from hire.data.dataset import FewShotDataset
    from hire.inference.model import TrainedModel
    from hire.systems.base import FewShotSystem

DATASET, RELATION, SHOTS = "umls-one", "part_of", 3
DRAWS = 10  # of the references: with a single one, chance decides which system is ahead
TRANSE, HIRE = "TransE, mean of t - h", "HiRe"


@click.command()
@option("-o", "--output", type=click.Path(path_type=Path), default=Path("runs/demo"), help="The folder of the run.")
@option("--steps", type=POSITIVE, default=100, help="Number of training steps of HiRe.")
@option("--path-steps", type=POSITIVE, default=60, help="Number of training steps of the path level.")
@option("--seed", type=SEED, default=0, help="Random seed.")
@click.option("--serve", is_flag=True, help="Serve the run at the end, for the browser.")
def demo(output: Path, steps: int, path_steps: int, seed: int, serve: bool) -> None:
    """Ask about a relation without training, then train on the bundled dataset, compare, and ask again.

    First the pre-trained model answers from three examples in seconds. Then HiRe and the path level are trained and
    compared with baselines. A second time the run exists already, and only the rest is shown.

    \b
    Example:
      hire demo
      hire demo --serve
    """
    from hire.inference.fit import fit
    from hire.inference.model import load
    from hire.inference.open import open_model
    from hire.training.run import CONFIG
    from hire.training.settings import preset

    settings = (
        preset("levels")
        .seeded(seed)
        .changed(
            {
                "hire.model.learner_start": 0.1,  # in so small a graph, training should not lead far away
                "hire.training.steps": steps,
                "hire.selection.evaluate_every": 50,  # two dev relations tell too little to choose among many steps
                "path.model.members": 2,
                "path.training.steps": path_steps,
            }
        )
    )
    click.echo("Without training: the pre-trained model, three examples of a relation that it has never seen.\n")
    _ask(open_model(DATASET))
    click.echo("Now trained on this graph:\n")
    fit(DATASET, output, settings, resume=(output / CONFIG).exists())
    trained = load(output)
    _compare(trained)
    _ask(trained)
    program = _program()
    click.echo(f"The run is in {output}; {output / 'members' / 'hire' / 'curves.svg'} shows its training.")
    if not serve:
        click.echo(f"In the browser: {program} serve {output}")
    click.echo(f"Your own graph, without training: {program} predict graph.tsv --references examples.tsv --head NAME")
    click.echo(f"and trained on it: {program} data build graph.tsv -o my-graph")
    click.echo(f"                   {program} train my-graph -o runs/my-graph")
    if serve:
        serve_model(output)


def _program() -> str:
    """How this program was called, so that what is printed can be typed."""
    called = Path(sys.argv[0])
    if called.name != "hire":
        return "hire"
    try:
        return str(called.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(called)


def _compare(trained: TrainedModel) -> None:
    """Rank the test tasks with the trained systems and with baselines, from several draws of the references."""
    from hire.evaluation.ranking import HITS, evaluate_draws

    dataset, names = trained.dataset, ["mrr", *(f"hits@{most}" for most in HITS)]
    systems = _systems(trained, dataset)
    found = {name: evaluate_draws(system, dataset, "test", SHOTS, DRAWS) for name, system in systems.items()}
    print_table(
        f"{DATASET}, test: relations never seen, {SHOTS} references each, mean of {DRAWS} draws of them",
        ["", *names, "mrr, ± over draws"],
        [
            (name, *(f"{of['mean'][metric]:.3f}" for metric in names), f"{of['deviation']['mrr']:.3f}")
            for name, of in found.items()
        ],
    )
    tasks = {split: len(dataset.split(split)) for split in ("train", "test")}
    click.echo(f"These are {tasks['test']} relations of a small graph; README.md has the metrics on NELL-One.")
    if HIRE in found:
        hire, start = ([draw["mrr"] for draw in found[name]["draws"]] for name in (HIRE, TRANSE))
        click.echo(
            f"HiRe is above the mean of t - h, where it starts, in {sum(map(gt, hire, start))} of the {DRAWS} draws; "
            f"with another --seed that may differ.\nOn the {tasks['train']} train relations, each held out of training "
            "in turn, docs/results.md has it ahead.\n"
        )


def _systems(trained: TrainedModel, dataset: FewShotDataset) -> dict[str, FewShotSystem]:
    """Baselines, the pre-trained model, and what was trained."""
    from hire.embeddings.settings import EmbeddingSettings
    from hire.systems.ensemble import Ensemble
    from hire.systems.mean_translation import MeanTranslation
    from hire.systems.path.pretrained import pretrained
    from hire.systems.popularity import Popularity
    from hire.training.embedding import embeddings_of

    found: dict[str, FewShotSystem] = {
        "popularity": Popularity(dataset.graph),
        TRANSE: MeanTranslation(embeddings_of(dataset, EmbeddingSettings()).entities),
        "the pre-trained model": pretrained(dataset),
    }
    if isinstance(trained.system, Ensemble):
        found[HIRE] = trained.system.members["hire"]
    return {**found, "HiRe and the path level": trained.system}


def _ask(trained: TrainedModel) -> None:
    """Teach a relation that is new to the model, and ask for the tails of a head."""
    dataset = trained.dataset
    task = next(task for task in dataset.tasks if task.name == RELATION)
    entities = dataset.graph.entities
    pairs = [(entities[int(h)], entities[int(t)]) for h, t in task.pairs]
    relation = trained.teach(pairs[:SHOTS])
    click.echo(f"Taught: {'; '.join(f'{h} {RELATION} {t}' for h, t in pairs[:SHOTS])}\n")
    head = pairs[SHOTS][0]
    true = {tail for of, tail in pairs if of == head}
    print_table(
        f"{head} {RELATION} ...",
        ["", "answer", "confidence", "in the dataset"],
        [
            (rank, answer.tail, f"{answer.confidence:.0%}", "yes" if answer.tail in true else "")
            for rank, answer in enumerate(relation.predict(head, 5), 1)
        ],
    )
