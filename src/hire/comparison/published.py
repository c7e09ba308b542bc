"""The figures of HiRe's paper, to stand beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from hire.data.dataset import FewShotDataset

Figures = dict[int, dict[str, float]]  # by number of references, then by metric


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


def hire_figures(dataset: str | None) -> tuple[Figures, Figures]:
    """Of HiRe with its best settings, and without the context level, for whatever numbers of references there are."""
    whole = figures("comparison", dataset).get("HiRe", {}) | figures("ablation", dataset).get("HiRe", {})
    return whole, figures("ablation", dataset).get("w/o Context", {})
