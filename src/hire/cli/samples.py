"""Episodes and contexts as text."""

from __future__ import annotations

from typing import Any

import click

from hire.cli.output import console, plain
from hire.data.dataset import FewShotDataset
from hire.sampling.episodes import EpisodeSampler, Regime
from hire.sampling.picture import describe_context

MAX_TUPLES_SHOWN = 8


def draw_sample(dataset: FewShotDataset, *, shots: int, episodes: int, regime: Regime, seed: int) -> dict[str, Any]:
    """A few episodes and the context of the first one's first reference, by name."""
    graph = dataset.graph
    sampler = EpisodeSampler(dataset, shots=shots, batch_size=episodes, regime=regime, seed=seed)
    batch = sampler.batch(0)

    def triples(pairs: Any, negatives: Any) -> list[dict[str, Any]]:
        return [
            {"head": graph.label(h), "tail": graph.label(t), "negatives": [graph.label(n) for n in false]}
            for (h, t), false in zip(pairs.tolist(), negatives.tolist(), strict=True)
        ]

    drawn = [
        {
            "relation": graph.relations[int(relation)],
            "references": triples(batch.references[i], batch.reference_negatives[i]),
            "queries": triples(batch.queries[i], batch.query_negatives[i]),
        }
        for i, relation in enumerate(batch.relations)
    ]
    return {"episodes": drawn, "context": describe_context(dataset, batch.references[0, :1], batch.relations[:1])}


def print_sample(drawn: dict[str, Any]) -> None:
    """Print episodes, and draw the context as two trees whose shared entities are marked."""
    from rich.columns import Columns
    from rich.tree import Tree

    for number, episode in enumerate(drawn["episodes"], 1):
        tree = Tree(plain(f"Episode {number}: {episode['relation']}", "bold"))
        for part in ("references", "queries"):
            branch = tree.add(part)
            for triple in episode[part]:
                line = plain(f"{triple['head']} → {triple['tail']}")
                branch.add(line.append_text(plain(f"  not {', '.join(triple['negatives'])}", "dim")))
        console().print(tree)
        click.echo()
    context = drawn["context"]
    shared = set(context["shared"])
    trees = []
    for side in ("head", "tail"):
        tree = Tree(plain(f"{side}: {context[side]}", "bold"))
        tuples = sorted(context["neighbors"][side], key=lambda found: found["number"] not in shared)
        for found in tuples[:MAX_TUPLES_SHOWN]:
            mark, style = ("●", "bold green") if found["number"] in shared else ("○", "")
            tree.add(plain(f"{mark} {found['relation']} → {found['entity']}", style))
        if len(tuples) > MAX_TUPLES_SHOWN:
            tree.add(plain(f"... {len(tuples) - MAX_TUPLES_SHOWN} more", "dim"))
        trees.append(tree)
    console().print(plain(f"Context of the first reference  ● shared by head and tail: {len(shared)}", "bold"))
    console().print(Columns(trees, padding=(0, 4)))
    click.echo()
