"""From a dataset to a run: embeddings, training, choice on dev, checkpoints; interrupted and resumed is the same."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hire.catalog import cache_directory, open_dataset
from hire.checkpoint import (
    CONFIG,
    METRICS,
    STATE,
    fingerprint,
    load_model,
    load_optimizer,
    load_tensors,
    optimizer_tensors,
    read_config,
    save_config,
    save_model,
    save_tensors,
)
from hire.datasets import FewShotDataset
from hire.drawing import curves_svg
from hire.embeddings import Embeddings, EmbeddingSettings, pretrain
from hire.errors import HireError
from hire.evaluation import evaluate
from hire.files import atomic_file
from hire.models.hire import Hire, HireSettings
from hire.progress import track
from hire.training import HireTrainer, TrainingSettings

CURVES, CARD = "curves.svg", "README.md"


@dataclass(frozen=True)
class FitSettings:
    """When to look at dev, and when to stop."""

    evaluate_every: int = 500
    evaluate_shots: tuple[int, ...] = (1, 3, 5)  # the choice is by the mean of their MRR on dev
    max_minutes: float | None = None


def embeddings_of(dataset: FewShotDataset, settings: EmbeddingSettings) -> Embeddings:
    """The embeddings of a dataset's background graph, from the cache if they were learned before."""
    state = json.dumps([asdict(settings), fingerprint(dataset)])
    path = cache_directory() / f"embeddings-{hashlib.sha256(state.encode()).hexdigest()[:16]}.safetensors"
    if path.exists():
        try:
            tensors = load_tensors(path)
            return Embeddings(tensors["entities"], tensors["relations"])
        except (HireError, KeyError):  # a damaged cache is made anew
            pass
    found = pretrain(dataset.graph, settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(path, {"entities": found.entities, "relations": found.relations})
    except (HireError, OSError):  # the cache is a convenience
        pass
    return found


def fit(
    source: str,
    run: Path,
    model: HireSettings,
    training: TrainingSettings,
    embedding: EmbeddingSettings,
    settings: FitSettings,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Train a HiRe on a dataset into a run; returns the figures of the best step on dev."""
    dataset = open_dataset(source)
    for shots in settings.evaluate_shots:
        dataset.split("dev", shots)
    if resume:
        _check_same(run, dataset, model, training)
    elif (run / CONFIG).exists():
        raise HireError("is a run already", file=run, remedy="say --resume to go on with it, or choose another place")
    trainer = HireTrainer(dataset, embeddings_of(dataset, embedding), model, training)
    history: list[dict[str, Any]] = []
    if resume and (run / STATE).exists():
        _load_state(trainer, run)
        lines = (run / METRICS).read_text("utf-8").splitlines()
        history = [entry for entry in map(json.loads, lines) if entry["step"] <= trainer.step]
    elif not resume:
        run.mkdir(parents=True, exist_ok=True)
        save_config(run, dataset, source, model, training)
    deadline = None if settings.max_minutes is None else time.monotonic() + 60 * settings.max_minutes
    finished = _train(trainer, run, history, settings, deadline)
    if not history:  # stopped before the first look at dev
        history = [_look(trainer, settings, [0.0])]
        save_model(run, trainer.model())
    best = max(history, key=lambda entry: entry["dev"]["mean"])
    _write_card(run, dataset, training, trainer.step, best)
    return {**best, "finished": finished, "steps": trainer.step}


def _train(
    trainer: HireTrainer, run: Path, history: list[dict[str, Any]], settings: FitSettings, deadline: float | None
) -> bool:
    """Train to the end, or to the deadline; on an interruption the step is finished and kept first."""
    with track("Training", trainer.training.steps) as advance, _postponed_interruption() as interrupted:
        advance(trainer.step)
        while trainer.step < trainer.training.steps:
            trainer.train_step()
            advance(1)
            if trainer.step % settings.evaluate_every == 0 or trainer.step == trainer.training.steps:
                best = max((past["dev"]["mean"] for past in history), default=-1.0)
                history.append(_look(trainer, settings, trainer.losses))
                trainer.losses = []
                if history[-1]["dev"]["mean"] > best:
                    save_model(run, trainer.model())
                _save_state(trainer, run, history)
            elif interrupted() or (deadline is not None and time.monotonic() > deadline):
                _save_state(trainer, run, history)
            if interrupted():
                raise KeyboardInterrupt
            if deadline is not None and time.monotonic() > deadline:
                return trainer.step == trainer.training.steps
    return True


@contextmanager
def _postponed_interruption() -> Iterator[Callable[[], bool]]:
    """Hold back SIGINT and SIGTERM, and tell when one has come: half a step must never be kept."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers]
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _look(trainer: HireTrainer, settings: FitSettings, losses: list[float]) -> dict[str, Any]:
    figures = dev_figures(trainer.model(), trainer.dataset, settings.evaluate_shots)
    return {"step": trainer.step, "loss": sum(losses) / len(losses), "dev": figures}


def dev_figures(model: Hire, dataset: FewShotDataset, shots: tuple[int, ...]) -> dict[str, float]:
    """MRR on dev for each number of shots, and their mean."""
    figures = {f"{k}-shot": evaluate(model, dataset, "dev", k)["realistic"]["mrr"] for k in shots}
    return {**figures, "mean": sum(figures.values()) / len(figures)}


def _save_state(trainer: HireTrainer, run: Path, history: list[dict[str, Any]]) -> None:
    tensors = {f"network.{name}": tensor for name, tensor in trainer.network.state_dict().items()}
    for name, table in trainer.tables().items():
        tensors |= {f"{name}.{part}": tensor for part, tensor in table.state().items()}
    tensors |= optimizer_tensors(trainer.optimizer)
    tensors |= {"step": torch.tensor(trainer.step), "losses": torch.tensor(trainer.losses, dtype=torch.float64)}
    with atomic_file(run / METRICS) as partial:
        partial.write_text("".join(json.dumps(entry) + "\n" for entry in history), "utf-8")
    with atomic_file(run / CURVES) as partial:
        partial.write_text(curves_svg(history), "utf-8")
    save_tensors(run / STATE, tensors)


def _load_state(trainer: HireTrainer, run: Path) -> None:
    tensors = load_tensors(run / STATE)
    trainer.network.load_state_dict(
        {name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")}
    )
    for name, table in trainer.tables().items():
        table.load({part: tensors[f"{name}.{part}"] for part in table.state()})
    load_optimizer(trainer.optimizer, tensors)
    trainer.step = int(tensors["step"])
    trainer.losses = tensors["losses"].tolist()


def _check_same(run: Path, dataset: FewShotDataset, model: HireSettings, training: TrainingSettings) -> None:
    config = read_config(run)
    if config["dataset"]["fingerprint"] != fingerprint(dataset):
        raise HireError("was begun with another dataset", file=run, remedy="give the same DATASET, or another -o")
    now = json.loads(json.dumps({"model": asdict(model), "training": asdict(training)}))
    changed = [
        f"{name} is {value!r}, was {config[part].get(name)!r}"
        for part in now
        for name, value in now[part].items()
        if value != config[part].get(name)
    ]
    if changed:
        raise HireError(
            f"was begun with other settings: {'; '.join(changed)}",
            file=run,
            remedy="give the same, or choose another -o",
        )


def _write_card(
    run: Path,
    dataset: FewShotDataset,
    training: TrainingSettings,
    steps: int,
    best: dict[str, Any],
) -> None:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in best["dev"].items())
    text = f"""# HiRe on {dataset.name}

Few-shot knowledge graph completion: ranks the tail of (head, relation, ?) for a relation taught by a few examples.

- trained for {steps:,} of {training.steps:,} steps, regime `{training.regime}`, seed {training.seed}, \
shots {", ".join(map(str, training.shots))}
- chosen on dev at step {best["step"]:,}: MRR {figures}
- `model.safetensors` holds the weights, `config.json` all settings, `metrics.jsonl` and `curves.svg` the course

Use it with the dataset it was trained on: `hire evaluate {run.name}`. It knows the entities of that dataset only.
"""
    with atomic_file(run / CARD) as partial:
        partial.write_text(text, "utf-8")


def load(run: str | Path, dataset: str | Path | None = None) -> tuple[Hire, FewShotDataset]:
    """The model of a run and its dataset, which is looked for where it was unless another place is given."""
    run = Path(run)
    source = dataset if dataset is not None else read_config(run)["dataset"]["source"]
    opened = open_dataset(source)
    return load_model(run, opened), opened
