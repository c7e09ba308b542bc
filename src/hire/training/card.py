"""The model card of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hire.data.dataset import FewShotDataset
from hire.systems.registry import system_class
from hire.training.settings import RunSettings
from hire.util.files import atomic_file
from hire.util.processes import share
from hire.util.settings import items

CARD = "README.md"


def write_card(run: Path, dataset: FewShotDataset, settings: RunSettings, result: dict[str, Any]) -> None:
    """Say what a run is, how it was trained, and what it is good for."""
    if not share().first:
        return
    metrics = ", ".join(f"{name} {value:.3f}" for name, value in result["dev"].items())
    kind = system_class(settings.system)
    seeds = sorted({str(value) for path, value in items(settings.settings) if path.rpartition(".")[2] == "seed"})
    parts = "".join(
        f"- `members/{name}/` is its member {name}: {system_class(system).summary}\n"
        for name, (system, _) in kind.parts(settings.settings).items()
    )
    state = "" if result["finished"] else "\nTraining has not finished; `hire train ... --resume` continues it.\n"
    text = f"""# {settings.system} on {dataset.name}

Few-shot knowledge graph completion: ranks the tail of (head, relation, ?) for a relation taught by a few examples.
{state}
- system `{settings.system}`: {kind.summary}
{parts}- seed {", ".join(seeds) or "none"}; chosen on dev: MRR {metrics}
- `config.json` has every setting, the versions and the commit; `model.safetensors` holds the weights
- `metrics.jsonl` and `curves.svg`, where there are steps, have the course of the training

Use it with the dataset it was trained on: `hire evaluate {run.name}`. It knows the entities of that dataset only.
"""
    with atomic_file(run / CARD) as partial:
        partial.write_text(text, "utf-8")
