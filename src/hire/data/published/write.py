"""Write a dataset in the published layout, for other systems to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hire.data.dataset import FewShotDataset
from hire.data.graph import INVERSE_SUFFIX
from hire.data.published.read import FILES, TASK_FILES
from hire.errors import HireError
from hire.progress import track
from hire.util.files import atomic_directory

TRIPLES_AT_ONCE = 1 << 16


def write_published(dataset: FewShotDataset, directory: Path, *, overwrite: bool = False) -> None:
    """Write a dataset in the published layout, for other systems to read."""
    graph = dataset.graph
    names: list[str] = list(graph.entities)
    relations: list[str] = list(graph.relations)
    background = [relations[int(relation)] for relation in graph.background_relations]
    clash = {name + INVERSE_SUFFIX for name in background} & set(background)
    if clash:
        raise HireError(
            f"the relation {min(clash)!r} has the name of the inverse of another relation",
            remedy=f"rename it: the published layout appends {INVERSE_SUFFIX!r} to every relation",
        )
    true_tails: dict[str, tuple[tuple[int, int], list[str]]] = {}
    for task in dataset.tasks:
        for head in np.unique(task.pairs[:, 0]):
            key, pair = names[head] + task.name, (int(head), task.relation)
            tails = [names[tail] for tail in dataset.facts.tails(*pair)]
            if true_tails.setdefault(key, (pair, tails))[0] != pair:
                raise HireError(
                    f"two (head, relation) pairs have the same key {key!r} in e1rel_e2.json",
                    remedy="rename one of the entities: the published layout cannot tell them apart",
                )
    documents: dict[str, Any] = {
        "e1rel_e2.json": {key: tails for key, (_, tails) in true_tails.items()},
        "ent2ids": {name: entity for entity, name in enumerate(names)},
        "relation2ids": {
            name: relation
            for relation, name in enumerate([n for name in background for n in (name, name + INVERSE_SUFFIX)])
        },
    }
    for split, file in TASK_FILES.items():
        documents[file] = {
            task.name: [[names[head], task.name, names[tail]] for head, tail in task.pairs]
            for task in dataset.split(split)
        }
    with (
        atomic_directory(directory, overwrite=overwrite, ours=FILES) as partial,
        track("Writing the published layout", len(graph.triples) + len(dataset.tasks)) as advance,
    ):
        for file, content in documents.items():
            (partial / file).write_text(_json(content), "utf-8")
        with (partial / "path_graph").open("w", encoding="utf-8", newline="\n") as stream:
            for start in range(0, len(graph.triples), TRIPLES_AT_ONCE):
                part = graph.triples[start : start + TRIPLES_AT_ONCE].tolist()
                stream.writelines(f"{names[h]}\t{relations[r]}\t{names[t]}\n" for h, r, t in part)
                advance(len(part))
        with (partial / "rel2candidates.json").open("w", encoding="utf-8") as stream:
            separator = "{"
            for task in dataset.tasks:  # one at a time: each may list every entity
                members = names if task.candidates is None else [names[entity] for entity in task.candidates]
                stream.write(f"{separator}{_json(task.name)}: {_json(members)}")
                separator = ", "
                advance(1)
            stream.write("}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
