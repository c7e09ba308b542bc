"""The figures of HiRe's paper, to stand beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from hire.data.dataset import FewShotDataset

Figures = dict[int, dict[str, float]]  # by number of references, then by metric
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {  # as the paper calls them: which system, and what to change
    "TransE": ("transe", {}),
    "TransH": ("transh", {}),
    "DistMult": ("distmult", {}),
    "ComplEx": ("complex", {}),
    "ComplEx-N3": ("complex-n3", {}),
    "GMatching": ("gmatching", {}),
    "MetaR-I": ("metar", {"training.regime": "in-train"}),
    "MetaR-P": ("metar", {"training.regime": "tasks", "training.initial": "pretrained"}),
    "FSRL": ("fsrl", {}),
    "FAAN": ("faan", {}),
    "HiRe": ("hire", {}),
}


@cache
def facts() -> dict[str, Any]:
    """Everything in the file."""
    content: dict[str, Any] = json.loads((files("hire.comparison") / "published.json").read_text("utf-8"))
    return content


def published_name(dataset: FewShotDataset) -> str | None:
    """Which dataset of the paper this one is, by its name or by its size."""
    size = len(dataset.graph.triples), len(dataset.tasks)
    for name, about in facts()["datasets"].items():
        if dataset.name == name or size == (about["triplets"], about["tasks"]):
            return str(name)
    return None


def figures(table: str, dataset: str | None) -> dict[str, Figures]:
    """The rows of a table of the paper, `comparison` or `ablation`, by name; none for any other dataset."""
    metrics = facts()["metrics"]
    return {
        name: {int(shots): dict(zip(metrics, values, strict=True)) for shots, values in of_row.items()}
        for name, of_row in facts()[table].get(dataset, {}).items()
    }


def of_system(name: str, dataset: str | None) -> Figures:
    """What the paper's main table has for a system, by its name there or here; nothing for any other."""
    table = figures("comparison", dataset)
    known = next((title for title, (system, _) in SYSTEMS.items() if name in (title, system)), name)
    return table.get(known, {})


def hire_figures(dataset: str | None) -> tuple[Figures, Figures]:
    """Of HiRe with its best settings, and without the context level, for whatever numbers of references there are."""
    whole = figures("comparison", dataset).get("HiRe", {}) | figures("ablation", dataset).get("HiRe", {})
    return whole, figures("ablation", dataset).get("w/o Context", {})
