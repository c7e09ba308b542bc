"""Many clients at once for minutes: no error, memory that stays, every answer the same as offline.

    python -m tests.faults.soak MODEL --clients 64 --minutes 10

Each client teaches a relation, asks, explains, judges, asks again and deletes it, over and over; what it must hear was
computed beforehand in this process. Exits with 1 if an answer differs, a request fails, or memory grows by more than 5%
after the warm-up. Memory is compared when all clients rest and have deleted their relations; at work it depends on what
relations are there just then (64 of them, each of up to 20 MiB for half a minute, on NELL-One), which is told as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from tests.faults.client import Client
from tests.support import serving

REFERENCES, SCENARIOS, ANSWERS = 3, 16, 10
WARM_UP = 0.3  # of the time
GROWTH = 0.05  # of memory after it
REST = 6.0  # seconds, after which the service gives memory back

Pair = tuple[str, str]


@dataclass(frozen=True)
class Scenario:
    """What a client does with a relation, and what it must hear."""

    name: str
    references: list[Pair]
    head: str
    before: list[tuple[str, float]]  # answers: tail and score
    accepted: Pair
    rejected: Pair
    after: list[tuple[str, float]]
    sentence: str  # why the first of them is an answer


@dataclass
class Outcome:
    """What all clients saw together."""

    requests: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def scenarios(model: TrainedModel, seed: int) -> list[Scenario]:
    """Relations of the dataset to teach again, with the answers that the model gives offline."""
    random, entities = Random(seed), model.dataset.graph.entities
    tasks = [task for task in model.dataset.tasks if len(task.pairs) > REFERENCES + 1]
    found = []
    for number in range(SCENARIOS):
        task = tasks[number % len(tasks)]
        chosen = task.pairs[random.sample(range(len(task.pairs)), REFERENCES + 2)].astype(np.int64)
        references, asked, other = chosen[:REFERENCES], chosen[REFERENCES], chosen[REFERENCES + 1]
        head = entities[int(asked[0])]
        name = f"soak {number}"
        first = model.taught(references, name).predict(head, ANSWERS)
        rejected = np.array([[asked[0], entities.id(first[0].tail)]], np.int64)
        if (rejected[0] == other).all():
            continue
        later = model.taught(np.concatenate([references, other[None]]), name, rejected=rejected)
        after = later.predict(head, ANSWERS)
        found.append(
            Scenario(
                name,
                [(entities[int(h)], entities[int(t)]) for h, t in references],
                head,
                [(answer.tail, answer.score) for answer in first],
                (entities[int(other[0])], entities[int(other[1])]),
                (head, first[0].tail),
                [(answer.tail, answer.score) for answer in after],
                later.explain(head, after[0].tail, most=5).to_dict()["sentence"],
            )
        )
    return found


def live(client: Client, of: Scenario) -> tuple[int, str | None]:
    """One round of a client: the number of requests, and what was wrong."""

    def heard(relation: str) -> list[tuple[str, float]]:
        return [(answer["tail"]["id"], answer["score"]) for answer in client.answers(relation, of.head, ANSWERS)]

    relation = client.teach(of.name, of.references)
    if heard(relation) != of.before:
        return 2, f"{of.name}: other answers to {of.head!r} than offline"
    client.judge(relation, *of.accepted, "accept")
    client.judge(relation, *of.rejected, "reject")
    client.learned(relation)
    if heard(relation) != of.after:
        return 5, f"{of.name}: other answers after verdicts than offline"
    if client.explain(relation, of.head, of.after[0][0])["sentence"] != of.sentence:
        return 6, f"{of.name}: another explanation than offline"
    client.delete(relation)
    return 7, None


def work(client: Client, rounds: list[Scenario], random: Random, end: float, outcome: Outcome) -> None:
    """Go on until the end, or until something is wrong."""
    while time.monotonic() < end and not outcome.wrong:
        try:
            requests, wrong = live(client, random.choice(rounds))
        except Exception as error:
            requests, wrong = 0, f"a request failed: {error!r}"
        with outcome.lock:
            outcome.requests += requests
            outcome.rounds += 1
            if wrong is not None:
                outcome.wrong.append(wrong)


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    found = re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def rounds_of(
    address: str, process: int, clients: int, seconds: float, rounds: list[Scenario], seed: int, outcome: Outcome
) -> list[int]:
    """Let clients work for some seconds; the memory of the service meanwhile, and at last when all have rested."""
    end, sizes = time.monotonic() + seconds, []
    threads = [
        threading.Thread(target=work, args=(Client(address), rounds, Random(seed + number), end, outcome))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sizes.append(resident(process))
        time.sleep(min(1.0, seconds / 50))
    live(Client(address), rounds[0])  # it gives memory back when it is asked for something
    time.sleep(REST)
    live(Client(address), rounds[0])
    return [*sizes, resident(process)]


def soak(model: str, clients: int, minutes: float, seed: int = 0) -> dict[str, Any]:
    """Let clients work for some minutes; what was measured."""
    rounds = scenarios(open_model(model), seed)
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        seconds = 60 * minutes
        state = str(Path(folder) / "relations.sqlite")
        with serving(model, "--state", state, seconds=seconds + 300) as (process, address):
            *_, first = rounds_of(address, process.pid, clients, WARM_UP * seconds, rounds, seed, outcome)
            shift = (1 - WARM_UP) * seconds
            *sizes, last = rounds_of(address, process.pid, clients, shift, rounds, seed + clients, outcome)
            left = len(Client(address).relations())
    halves = (sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :])
    return {
        "clients": clients,
        "minutes": minutes,
        "rounds": outcome.rounds,
        "requests": outcome.requests,
        "wrong": outcome.wrong[:5],
        "relations_left": left,
        "memory_after_warm_up_mib": round(first / 2**20, 1),
        "memory_at_the_end_mib": round(last / 2**20, 1),
        "growth": round(last / first - 1, 4),
        "memory_at_work_mib": [round(statistics.median(half) / 2**20, 1) for half in halves],
    }


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = soak(given.model, given.clients, given.minutes, given.seed)
    print(json.dumps(found, indent=1))
    return int(bool(found["wrong"]) or found["growth"] > GROWTH)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
