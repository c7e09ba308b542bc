"""From a dataset to a run: each part is trained, the best step chosen on dev, and all of it can be resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.errors import HireError
from hire.evaluation.ranking import evaluate
from hire.progress import say
from hire.systems.base import FewShotSystem
from hire.systems.registry import system_class
from hire.training.card import write_card
from hire.training.embedding import embeddings_in, embeddings_of
from hire.training.loop import STATE, Entry, Stage, train
from hire.training.members import bring, check_new, owners
from hire.training.needs import check_training
from hire.training.run import (
    CONFIG,
    MEMBERS,
    MODEL,
    check_processes,
    exclusive_run,
    read_config,
    restore,
    run_config,
    save_system,
)
from hire.training.settings import RunSettings, preset
from hire.util.checksums import write_record
from hire.util.files import atomic_file, make_directory
from hire.util.processes import each_alone, in_turn, joined, launch, share, told, told_by_all, was_restarted
from hire.util.settings import items
from hire.util.tensors import device_named

TENSORBOARD = "tensorboard"
LAUNCH = ".launch"  # which start of torchrun trains the run
EVALUATED_SHOTS = (1, 3, 5)


def train_run(
    source: str | Path,
    run: str | Path,
    settings: RunSettings | None = None,
    *,
    embeddings: Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
    threads: int = 1,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train a system on a dataset into a run; returns the metrics of the best step on dev.

    Embeddings are those of a file, or from the cache, or learned first; max_minutes counts them in.
    """
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    run, settings, where = Path(run), settings or preset(), device_named(device)
    with joined():
        try:
            with exclusive_run(run):  # from the first second: whatever is interrupted can be resumed
                dataset = in_turn(lambda: open_dataset(source))
                check_dev(dataset)
                check_training(dataset, settings.system, settings.settings)
                check_processes(dataset, settings, embeddings=str(embeddings))
                new = told(lambda: _begin(run, run_config(dataset, str(source), settings, embeddings), resume))
                workshop = Workshop(dataset, where, embeddings, deadline, threads, tensorboard, new=new)
                result = workshop.train(run, settings.system, settings.settings)
                write_card(run, dataset, settings, result)
                if share().first:
                    (run / LAUNCH).unlink(missing_ok=True)
                return result
        except HireError:
            if not resume and share().first and not _written_by_others(run, settings):
                _remove_if_empty(run)
            raise


def _begin(run: Path, config: dict[str, Any], resume: bool) -> bool:
    """Write what a new run is, or check that a run that is resumed is the same; whether it is new."""
    resume = resume or _restarted(run)
    if (run / CONFIG).exists():
        if not resume:
            raise HireError(
                "the run folder already exists",
                file=run,
                remedy="give --resume to continue it, or choose another folder",
            )
        _check_same(run, config)
        _remember_launch(run)
        return False
    if resume and any(not path.name.startswith(".") for path in run.iterdir()):
        raise HireError("is not a run", file=run, remedy="hire train makes one")
    write_record(run / CONFIG, config)  # resumed or not, it had not begun
    _remember_launch(run)
    return True


def _restarted(run: Path) -> bool:
    """Whether torchrun has started its processes again while they trained this run: then it goes on."""
    path = run / LAUNCH
    return was_restarted() and path.exists() and path.read_text("utf-8", "replace") == launch()


def _remember_launch(run: Path) -> None:
    if share().processes > 1:
        with atomic_file(run / LAUNCH) as partial:
            partial.write_text(launch(), "utf-8")


def _written_by_others(run: Path, settings: RunSettings) -> bool:
    """Whether other processes may be about to write their members into the folder."""
    return (run / CONFIG).exists() and bool(owners(system_class(settings.system).parts(settings.settings)))


def _remove_if_empty(run: Path) -> None:
    """Take back a run folder in which nothing was trained yet."""
    begun = (CONFIG, LAUNCH)
    if not run.is_dir() or any(path.is_file() and path.name not in begun for path in run.rglob("*")):
        return
    for name in begun:
        (run / name).unlink(missing_ok=True)
    for folder in [*sorted((path for path in run.rglob("*") if path.is_dir()), reverse=True), run]:
        folder.rmdir()


@dataclass(frozen=True)
class Workshop:
    """Where systems are trained: the resources they may ask for, and what trains them."""

    dataset: FewShotDataset
    device: torch.device
    embeddings_file: Path | None = None
    deadline: float | None = None
    threads: int = 1
    tensorboard: bool = False
    parts: Mapping[str, FewShotSystem] = field(default_factory=dict)
    new: bool = False  # whether the run begins, and no training can have a state

    def embeddings(self, settings: EmbeddingSettings) -> Embeddings:
        """Embeddings of the background graph."""
        path = self.embeddings_file
        if path is not None:
            return embeddings_in(path, self.dataset, settings)
        return embeddings_of(self.dataset, settings, self.device, self.threads)

    def evaluate(self, system: FewShotSystem) -> float:
        """The mean MRR on dev."""
        return dev_metrics(system, self.dataset)["mean"]

    def train(self, folder: Path, name: str, settings: Any) -> dict[str, Any]:
        """Train a system into a folder, its parts first; returns the metrics of the best step."""
        kind = system_class(name)
        parts: dict[str, FewShotSystem] = {}
        results = self._trained_alone(folder / MEMBERS, kind.parts(settings))
        for part, (system, of_part) in kind.parts(settings).items():
            result = results.get(part) or self.train(folder / MEMBERS / part, system, of_part)
            if not result["finished"]:
                return {**result, "part": part}
            parts[part] = restore(folder / MEMBERS / part, system, of_part, self.dataset, self.device)
        workshop = replace(self, parts=parts)
        trainer = kind.trainer(self.dataset, settings, workshop)
        if share().first:
            make_directory(folder)
        if trainer is None:
            return workshop._without_training(folder, kind, settings)
        shots = possible_shots(self.dataset, trainer.shots)
        writer = _tensorboard(folder) if self.tensorboard and share().first else None
        stage = Stage(
            f"Training {name}",
            folder / STATE,
            self.deadline,
            trainer.selection,
            lambda: dev_metrics(trainer.system(), self.dataset, shots),
            lambda: save_system(folder, trainer.system(), settings),
            writer,
            self.threads,
        )
        try:
            finished, entries = train(trainer, stage)
        finally:
            if writer is not None:
                writer.close()
        if not told((folder / MODEL).exists):
            raise HireError(
                "is missing, though the training had come past its best step",
                file=folder / MODEL,
                remedy=f"delete {folder / STATE} to train again",
            )
        return {**_best(entries), "finished": finished, "steps": trainer.step}

    def _trained_alone(self, folder: Path, parts: Mapping[str, tuple[str, Any]]) -> dict[str, dict[str, Any]]:
        """Train parts, each by one process as if there were no other, where there are enough for all.

        Returns what came of each; a part after one that has not finished may be missing.
        """
        trained_by = owners(parts)
        if not trained_by:
            return {}
        say(f"Training {', '.join(f'{part} in process {owner}' for part, owner in trained_by.items())}")
        rank, own = share().rank, {}
        with each_alone():
            for part in [part for part, owner in trained_by.items() if owner == rank]:
                if self.new:
                    check_new(folder / part)
                own[part] = self.train(folder / part, *parts[part])
                if not own[part]["finished"]:
                    break
        for part, owner in trained_by.items():
            bring(folder / part, owner)
        return {part: result for results in told_by_all(own) for part, result in results.items()}

    def _without_training(self, folder: Path, kind: type[FewShotSystem], settings: Any) -> dict[str, Any]:
        if told((folder / MODEL).exists):
            system = restore(folder, kind.name, settings, self.dataset, self.device)
        else:
            system = kind.without_training(self.dataset, settings, self)
            save_system(folder, system, settings)
        return {"step": 0, "dev": dev_metrics(system, self.dataset), "finished": True, "steps": 0}


def _best(entries: list[Entry]) -> Entry:
    return max(entries, key=lambda entry: float(entry["dev"]["mean"]))


def dev_metrics(
    system: FewShotSystem, dataset: FewShotDataset, shots: tuple[int, ...] | None = None
) -> dict[str, float]:
    """MRR on dev for each number of shots, and their mean."""
    shots = shots or possible_shots(dataset)
    metrics = {f"{k}-shot": evaluate(system, dataset, "dev", k)["realistic"]["mrr"] for k in shots}
    return {**metrics, "mean": sum(metrics.values()) / len(metrics)}


def check_dev(dataset: FewShotDataset) -> None:
    """Refuse a dataset on which no step can be chosen."""
    if not dataset.split("dev"):
        raise HireError("has no dev tasks to choose the best step on", file=dataset.name, remedy="build it with some")
    dataset.split("dev", min(EVALUATED_SHOTS))  # tells which task has too few triples


def possible_shots(dataset: FewShotDataset, shots: tuple[int, ...] = EVALUATED_SHOTS) -> tuple[int, ...]:
    """Those numbers of references that leave every dev task a query."""
    fewest = min(len(task.pairs) for task in dataset.split("dev"))
    possible = tuple(k for k in shots if k < fewest)
    if not possible:
        dataset.split("dev", min(shots))  # tells which task has too few
    return possible


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise HireError("TensorBoard is not installed", remedy="pip install 'hire[tensorboard]'") from error
    return SummaryWriter(str(folder / TENSORBOARD))


def _check_same(run: Path, config: dict[str, Any]) -> None:
    before, now = read_config(run), json.loads(json.dumps(config))
    if before["dataset"]["fingerprint"] != now["dataset"]["fingerprint"]:
        raise HireError("was begun with another dataset", file=run, remedy="give the same DATASET, or another -o")
    old, new = ({**dict(items(part["settings"])), **_other(part)} for part in (before, now))
    changed = [
        f"{name} is {new.get(name)!r}, was {old.get(name)!r}" for name in {**old, **new} if _differ(name, old, new)
    ]
    if changed:
        raise HireError(
            f"was begun with other settings: {'; '.join(changed)}",
            file=run,
            remedy="give the same, or choose another -o",
        )


def _other(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "system": config["system"],
        "embeddings": config["embeddings"],
        "processes": config.get("processes", 1),
        **dict(items(config["teaching"], "teaching")),
    }


def _differ(name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    return name not in old or name not in new or bool(old[name] != new[name])
