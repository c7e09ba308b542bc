"""From a dataset to a run: embeddings, training, choice on dev, checkpoints; interrupted and resumed is the same."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.tables import RowTable
from hire.embeddings.trainer import Embeddings, EmbeddingSettings, EmbeddingTrainer
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.progress import track
from hire.systems.base import FewShotModel
from hire.systems.hire.trainer import HireTrainer
from hire.systems.path.trainer import PathTrainer
from hire.training.curves import curves_svg
from hire.training.run import (
    CONFIG,
    METRICS,
    PARTS,
    PATH_MODEL,
    PATH_STATE,
    STATE,
    fingerprint,
    load_embeddings,
    load_model,
    load_optimizer,
    optimizer_tensors,
    read_config,
    run_config,
    save_embeddings,
    save_model,
)
from hire.training.settings import RunSettings, preset
from hire.util.files import atomic_file, cache_directory
from hire.util.tensors import load_tensors, save_tensors, write_json

CURVES, CARD, TENSORBOARD = "curves.svg", "README.md", "tensorboard"
SECONDS_BETWEEN_STATES = 60.0  # of pre-training


def fit(
    source: str | Path,
    run: str | Path,
    settings: RunSettings | None = None,
    *,
    embeddings: Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "cpu",
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train a HiRe on a dataset into a run; returns the figures of the best step on dev.

    Embeddings are those of a file, or from the cache, or learned first; max_minutes counts them in.
    """
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    run, settings = Path(run), settings or preset()
    dataset = open_dataset(source)
    shots = _looked_at(dataset, settings)
    config = run_config(dataset, str(source), settings, embeddings)
    if resume:
        _check_same(run, config)
    elif (run / CONFIG).exists():
        raise HireError("is a run already", file=run, remedy="say --resume to go on with it, or choose another place")
    elif run.exists() and not run.is_dir():
        raise HireError("is a file", file=run, remedy="choose another place for the run")
    writer = _tensorboard(run) if tensorboard else None
    if embeddings is None:
        start = embeddings_of(dataset, settings.embedding, device)
    else:
        start = load_embeddings(embeddings, dataset, settings.embedding.dimension)
    trainer = HireTrainer(dataset, start, settings.model, settings.training, device)
    history: list[dict[str, Any]] = []
    if resume and (run / STATE).exists():
        _load_state(trainer, run / STATE)
        lines = (run / METRICS).read_text("utf-8").splitlines()
        history = [entry for entry in map(json.loads, lines) if entry["step"] <= trainer.step]
    elif not resume:
        run.mkdir(parents=True, exist_ok=True)
        write_json(run / CONFIG, config)
    finished = _train(trainer, run, history, settings, shots, deadline, writer)
    if not history:  # stopped before the first look at dev
        history = [_look(trainer, shots)]
        save_model(run, trainer.model())
    best = _best(history)
    if finished and settings.path.members:
        finished = _train_paths(PathTrainer(dataset, settings.path, settings.path_training), run, deadline)
        if finished:
            best = {**best, "dev": dev_figures(load_model(run, dataset), dataset, shots)}
    _write_card(run, dataset, settings, trainer.step, best)
    return {**best, "finished": finished, "steps": trainer.step}


def _train(
    trainer: HireTrainer,
    run: Path,
    history: list[dict[str, Any]],
    settings: RunSettings,
    shots: tuple[int, ...],
    deadline: float | None,
    writer: Any,
) -> bool:
    """Train to the end, or to the deadline; on an interruption the step is finished and kept first."""
    steps = settings.training.steps
    note = ""
    with track("Training", steps) as advance, _postponed_interruption() as interrupted:
        advance(trainer.step)
        while trainer.step < steps and not _given_up(history, settings.fit.patience):
            loss = trainer.train_step()
            advance(1, f"loss {loss:.3f}{note}")
            if trainer.step % settings.fit.evaluate_every == 0 or trainer.step == steps:
                history.append(_look(trainer, shots))
                trainer.losses = []
                if _best(history) is history[-1]:
                    save_model(run, trainer.model())
                _save_state(trainer, run, history)
                note = f", dev MRR {history[-1]['dev']['mean']:.3f}, best {_best(history)['dev']['mean']:.3f}"
                if writer is not None:
                    _write_scalars(writer, history[-1])
            elif interrupted() or (deadline is not None and time.monotonic() > deadline):
                _save_state(trainer, run, history)
            if interrupted():
                raise KeyboardInterrupt
            if deadline is not None and time.monotonic() > deadline:
                return trainer.step == steps
    return True


def _best(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The first of the best looks at dev."""
    return max(history, key=lambda entry: float(entry["dev"]["mean"]))


def _given_up(history: list[dict[str, Any]], patience: int | None) -> bool:
    """Whether the last looks at dev, as many as patience has it, brought nothing better."""
    return patience is not None and bool(history) and len(history) - 1 - history.index(_best(history)) >= patience


def embeddings_of(dataset: FewShotDataset, settings: EmbeddingSettings, device: str = "cpu") -> Embeddings:
    """The embeddings of a dataset's background graph, from the cache if they were learned before.

    What was learned until an interruption is in the cache as well, and is gone on with.
    """
    path = embeddings_path(dataset, settings)
    try:
        return load_embeddings(path, dataset, settings.dimension)
    except HireError:  # there is none, or it is damaged and made anew
        pass
    found = _learn_embeddings(dataset, settings, path.with_suffix(".state.safetensors"), device)
    with suppress(HireError, OSError):  # the cache is a convenience
        path.parent.mkdir(parents=True, exist_ok=True)
        save_embeddings(path, found, dataset)
        path.with_suffix(".state.safetensors").unlink(missing_ok=True)
    return found


def embeddings_path(dataset: FewShotDataset, settings: EmbeddingSettings) -> Path:
    """Where embeddings are kept."""
    state = json.dumps([asdict(settings), fingerprint(dataset)])
    return cache_directory() / f"embeddings-{hashlib.sha256(state.encode()).hexdigest()[:16]}.safetensors"


def _learn_embeddings(dataset: FewShotDataset, settings: EmbeddingSettings, state: Path, device: str) -> Embeddings:
    trainer = EmbeddingTrainer(dataset.graph, settings, device)
    with suppress(HireError, KeyError):
        tensors = load_tensors(state)
        _load_tables(trainer.tables(), tensors)
        trainer.step = int(tensors["step"])

    def keep() -> None:
        with suppress(HireError, OSError):
            state.parent.mkdir(parents=True, exist_ok=True)
            save_tensors(state, {**_table_tensors(trainer.tables()), "step": torch.tensor(trainer.step)})

    losses = (trainer.train_step() for _ in range(trainer.step, trainer.steps))
    _take_steps(f"Embedding with {settings.model}", trainer.steps, losses, keep, start=trainer.step)
    return trainer.embeddings()


def _train_paths(trainer: PathTrainer, run: Path, deadline: float | None) -> bool:
    """Train the path level into a run, or go on with it; whether it came to its end before the deadline."""
    if (run / PATH_MODEL).exists():
        return True
    if (run / PATH_STATE).exists():
        _load_state(trainer, run / PATH_STATE)
    steps = trainer.steps

    def keep() -> None:
        save_tensors(run / PATH_STATE, _state(trainer))

    _take_steps("Path level", steps, trainer.steps_left(), keep, start=trainer.step, deadline=deadline)
    if trainer.step < steps:
        return False
    save_tensors(run / PATH_MODEL, trainer.averaged_network.state_dict())
    (run / PATH_STATE).unlink(missing_ok=True)
    return True


def _take_steps(
    name: str,
    steps: int,
    losses: Iterator[float],
    keep: Callable[[], None],
    *,
    start: int,
    deadline: float | None = None,
) -> None:
    """Train to the end or to the deadline; what was learned is kept now and then, and on an interruption."""
    kept = time.monotonic()
    with track(name, steps) as advance, _postponed_interruption() as interrupted:
        advance(start)
        for loss in losses:
            advance(1, f"loss {loss:.3f}")
            now = time.monotonic()
            over = deadline is not None and now > deadline
            if interrupted() or over or now - kept > SECONDS_BETWEEN_STATES:
                keep()
                kept = now
            if interrupted():
                raise KeyboardInterrupt
            if over:
                return


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


def _looked_at(dataset: FewShotDataset, settings: RunSettings) -> tuple[int, ...]:
    """For how many references dev is looked at: what the settings say, as far as the dev tasks have triples."""
    tasks = dataset.split("dev")
    if not tasks:
        raise HireError("has no dev tasks to choose the best step on", file=dataset.name, remedy="build it with some")
    fewest = min(len(task.pairs) for task in tasks)
    possible = tuple(shots for shots in settings.evaluated_shots if shots < fewest)
    if not possible:
        dataset.split("dev", min(settings.evaluated_shots))  # tells which task has too few
    return possible


def _look(trainer: HireTrainer, shots: tuple[int, ...]) -> dict[str, Any]:
    figures = dev_figures(trainer.model(), trainer.dataset, shots)
    return {"step": trainer.step, "loss": sum(trainer.losses) / max(1, len(trainer.losses)), "dev": figures}


def dev_figures(model: FewShotModel, dataset: FewShotDataset, shots: tuple[int, ...]) -> dict[str, float]:
    """MRR on dev for each number of shots, and their mean."""
    figures = {f"{k}-shot": evaluate(model, dataset, "dev", k)["realistic"]["mrr"] for k in shots}
    return {**figures, "mean": sum(figures.values()) / len(figures)}


def _save_state(trainer: HireTrainer, run: Path, history: list[dict[str, Any]]) -> None:
    with atomic_file(run / METRICS) as partial:
        partial.write_text("".join(json.dumps(entry) + "\n" for entry in history), "utf-8")
    with atomic_file(run / CURVES) as partial:
        partial.write_text(curves_svg(history), "utf-8")
    save_tensors(run / STATE, _state(trainer))


def _state(trainer: HireTrainer | PathTrainer) -> dict[str, Tensor]:
    """Everything needed to go on."""
    tensors = _table_tensors(trainer.tables())
    for name, network in _networks(trainer).items():
        tensors |= {f"{name}.{part}": tensor for part, tensor in network.state_dict().items()}
    tensors |= optimizer_tensors(trainer.optimizer)
    return tensors | {"step": torch.tensor(trainer.step), "losses": torch.tensor(trainer.losses, dtype=torch.float64)}


def _load_state(trainer: HireTrainer | PathTrainer, path: Path) -> None:
    tensors = load_tensors(path)
    for name, network in _networks(trainer).items():
        network.load_state_dict({part: tensors[f"{name}.{part}"] for part in network.state_dict()})
    _load_tables(trainer.tables(), tensors)
    load_optimizer(trainer.optimizer, tensors)
    trainer.step = int(tensors["step"])
    trainer.losses = tensors["losses"].tolist()


def _networks(trainer: HireTrainer | PathTrainer) -> dict[str, nn.Module]:
    return {"network": trainer.network, "averaged": trainer.averaged_network}


def _table_tensors(tables: dict[str, RowTable]) -> dict[str, Tensor]:
    return {f"{name}.{part}": tensor for name, table in tables.items() for part, tensor in table.state().items()}


def _load_tables(tables: dict[str, RowTable], tensors: dict[str, Tensor]) -> None:
    for name, table in tables.items():
        table.load({part: tensors[f"{name}.{part}"] for part in table.state()})


def _tensorboard(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise HireError("TensorBoard is not installed", remedy="pip install 'hire[tensorboard]'") from error
    return SummaryWriter(str(run / TENSORBOARD))


def _write_scalars(writer: Any, entry: dict[str, Any]) -> None:
    writer.add_scalar("loss", entry["loss"], entry["step"])
    for name, value in entry["dev"].items():
        writer.add_scalar(f"dev MRR/{name}", value, entry["step"])
    writer.flush()


def _check_same(run: Path, config: dict[str, Any]) -> None:
    before = read_config(run)
    if before["dataset"]["fingerprint"] != config["dataset"]["fingerprint"]:
        raise HireError("was begun with another dataset", file=run, remedy="give the same DATASET, or another -o")
    now = json.loads(json.dumps(config))
    changed = [
        f"{name} is {value!r}, was {before[part].get(name)!r}"
        for part in PARTS
        for name, value in now[part].items()
        if value != before[part].get(name)
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
    settings: RunSettings,
    steps: int,
    best: dict[str, Any],
) -> None:
    training = settings.training
    figures = ", ".join(f"{name} {value:.3f}" for name, value in best["dev"].items())
    text = f"""# HiRe on {dataset.name}

Few-shot knowledge graph completion: ranks the tail of (head, relation, ?) for a relation taught by a few examples.

- trained for {steps:,} of {training.steps:,} steps, regime `{training.regime}`, seed {training.seed}, \
shots {", ".join(map(str, training.shots))}
- chosen on dev at step {best["step"]:,}: MRR {figures}
- `model.safetensors` holds HiRe's weights, `path.safetensors` those of the path level if there is one
- `config.json` has all settings, `metrics.jsonl` and `curves.svg` the course

Use it with the dataset it was trained on: `hire evaluate {run.name}`. It knows the entities of that dataset only.
"""
    with atomic_file(run / CARD) as partial:
        partial.write_text(text, "utf-8")
