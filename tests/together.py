"""Several processes of a test that work together: forked ones, which start at once, or those of torchrun.

Run by torchrun, this file trains and evaluates with all of them, and every process writes what it found:

    torchrun --nproc-per-node 2 -m tests.together FOLDER
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import TCPStore

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import Embeddings, EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer
from hire.evaluation.ranking import evaluate, evaluate_draws
from hire.inference.calibrate import ask
from hire.optim.storage import StorageSettings
from hire.optim.trainer import Trainer
from hire.systems.base import FewShotSystem
from hire.systems.episodic.drawing import random_embeddings
from hire.systems.registry import system_class
from hire.training.pipeline import Workshop
from hire.util.checksums import checksum_of
from hire.util.processes import joined
from hire.util.settings import paths
from tests.support import random_model, small_settings

SECONDS = 120  # that a group of processes may take

STEPS = 100
NAMELESS = "[c10d] The hostname of the client socket cannot be retrieved"
TRAINED = ("embeddings", "hire", "path")
BY_ROWS = ", sharded"
SHARDED = (f"embeddings{BY_ROWS}", f"hire{BY_ROWS}", f"gmatching{BY_ROWS}")
DROPOUTS = tuple(
    f"model.{name}" for name in ("dropout", "relation_dropout", "drop_path", "drop_relation", "neighbor_dropout")
)


class Given(Workshop):
    """A workshop whose embeddings have been learned."""

    def embeddings(self, settings: EmbeddingSettings) -> Embeddings:
        graph = self.dataset.graph
        return random_embeddings(len(graph.entities), len(graph.relations), settings.dimension, seed=1)


def trainer_of(name: str, dataset: FewShotDataset, *, sharded: bool = False) -> Trainer[Any, Any]:
    """What trains a small system without dropout, whose masks depend on how a batch is shared."""
    if name == "embeddings":
        storage = StorageSettings(sharded=sharded)
        settings = EmbeddingSettings(dimension=8, batch_size=65, negatives=16, storage=storage)
        return EmbeddingTrainer(dataset.graph, settings)
    changes: dict[str, Any] = {"training__steps": 100, "training__tasks": 3}
    known = paths(small_settings(name).settings)
    changes |= {path.replace(".", "__"): 0.0 for path in DROPOUTS if path in known}
    if "training.batch_size" in known:
        changes = {"training__batch_size": 65, "training__dimension": 8, "training__negatives": 16}
    if name == "path":
        # Some of its gradients are rounding alone, and Adam makes steps of a learning rate's size of them.
        changes |= {"optimizer__learning_rate": 1e-7, "training__candidates": 200, "training__epochs": 1e4}
    if sharded:
        changes["optimizer__storage__sharded"] = True
    settings = small_settings(name, **changes).settings
    trainer = system_class(name).trainer(dataset, settings, Given(dataset, torch.device("cpu")))
    assert trainer is not None
    return trainer


def findings(dataset: FewShotDataset) -> dict[str, Any]:
    """The losses and final weights of some trainings, and evaluations of a system that has learned nothing."""
    found: dict[str, Any] = {}
    for name in (*TRAINED, *SHARDED):
        trainer = trainer_of(name.removesuffix(BY_ROWS), dataset, sharded=name in SHARDED)
        losses = [trainer.train_step() for _ in range(STEPS)]
        weights = [*trainer.network.parameters(), *(table.averaged() for table in trainer.tables.values())]
        found[name] = {"losses": losses, "weights": checksum_of(part.detach().contiguous().numpy() for part in weights)}
    model = random_model(dataset)
    system: FewShotSystem = model.system
    found["evaluation"] = evaluate(system, dataset, "dev", 3)
    found["draws"] = evaluate_draws(system, dataset, "dev", 1, 2)
    outcomes, sizes = ask(model, "dev", 1, 2)
    found["outcomes"] = checksum_of([*map(np.ascontiguousarray, vars(outcomes).values()), np.ascontiguousarray(sizes)])
    return found


def torchrun(*arguments: str | Path, processes: int = 2) -> list[str]:
    """The command that starts something with several processes on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    return [*command, "--master-port", str(free_port()), "-m", *map(str, arguments)]


def free_port() -> int:
    """A port that no one listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Ended:
    """How a process ended, and what it said."""

    code: int
    output: str


class Together:
    """Forked processes that work together, as torchrun would start them; each has another environment."""

    def __init__(
        self, works: Sequence[Callable[[], object]], folder: Path, seconds: float = 60, late: float = 0.0
    ) -> None:
        self.outputs = [folder / f"output-{rank}" for rank in range(len(works))]
        port = free_port()
        self.store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)  # torchrun has it, too
        self.ids = []
        for rank, work in enumerate(works):
            sys.stdout.flush()
            sys.stderr.flush()
            child = os.fork()
            if not child:
                place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
                place |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
                place |= {"RANK": str(rank), "WORLD_SIZE": str(len(works)), "HIRE_PROCESS_TIMEOUT": str(seconds)}
                self._work(work, place, late * rank, self.outputs[rank])
            self.ids.append(child)

    def _work(self, work: Callable[[], object], environment: dict[str, str], late: float, output: Path) -> None:
        code = 1
        try:
            signal.alarm(SECONDS)
            stream = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(stream, 1)
            os.dup2(stream, 2)
            faulthandler.dump_traceback_later(SECONDS - 5, file=2)  # where it hangs, if it does
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.environ.update(environment)
            time.sleep(late)
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self) -> list[Ended]:
        """How all of them ended."""
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in self.ids]
        del self.store  # a test that fails would keep its thread, and forks beside two of them were seen to hang
        return [Ended(code, said(path)) for code, path in zip(codes, self.outputs, strict=True)]


def said(output: Path) -> str:
    """What a process said, without a word of torch about a machine that could not look up a name in time."""
    lines = output.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if NAMELESS not in line)


def hire(*arguments: str | Path) -> Callable[[], None]:
    """A command of hire, as work for a process."""
    from hire.cli import main

    return lambda: main([str(argument) for argument in arguments])


def main() -> None:
    """Find all, and write it."""
    torch.set_num_threads(1)
    with joined() as share:
        found = findings(open_dataset("umls-one"))
        (Path(sys.argv[1]) / f"{share.rank}.json").write_text(json.dumps(found))
    os._exit(0)  # as hire does: threads of the connections may abort an interpreter that takes itself apart


if __name__ == "__main__":
    main()
