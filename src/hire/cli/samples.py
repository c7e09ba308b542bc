"""Episodes and contexts as text."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from hire.cli.output import console, plain
from hire.data.dataset import FewShotDataset
from hire.sampling.contexts import HEAD, TAIL, ContextSampler
from hire.sampling.episodes import EpisodeSampler, Regime

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


def describe_context(dataset: FewShotDataset, pair: Any, relation: Any) -> dict[str, Any]:
    """The context of one pair [1, 2] and relation [1], by name."""
    graph = dataset.graph
    context = ContextSampler(graph).true(pair, relation)
    parts = context.relations, context.entities
    tuples = {
        name: [
            {"relation": graph.relation_name(r), "entity": graph.label(e), "number": e}
            for r, e in zip(*(part[0, side][context.mask[0, side]].tolist() for part in parts), strict=True)
        ]
        for name, side in (("head", HEAD), ("tail", TAIL))
    }
    of_head, of_tail = (context.entities[0, side][context.mask[0, side]].numpy() for side in (HEAD, TAIL))
    return {
        "head": graph.label(int(pair[0, 0])),
        "relation": graph.relations[int(relation[0])],
        "tail": graph.label(int(pair[0, 1])),
        "neighbors": tuples,
        "shared": [int(entity) for entity in np.intersect1d(of_head, of_tail)],  # ids: labels may be the same
    }


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
