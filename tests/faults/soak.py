"""Many clients at once for minutes: no error, memory that stays, every answer the same as offline.

    python -m tests.faults.soak MODEL --clients 64 --minutes 10

Each client teaches a relation, asks, explains, judges, asks again and deletes it, over and over; what it must hear was
computed beforehand in this process. Exits with 1 if an answer differs, a request fails, or memory grows by more than 5%
after the warm-up, at work or at rest.

Memory is what the process has for itself, without mapped files and libraries. At work it is the median of the first and
of the second half after the warm-up, because it depends on what relations are there just then (64 of them, each of 3 to
20 MiB, on NELL-One). At rest it is measured after each part of the time, in the same state: all relations are deleted,
and the model, which keeps those that it was taught last, was taught the same ones in the same order.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hire.cli.options import use_one_thread
from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from tests.faults.client import Client
from tests.support import serving

REFERENCES, SCENARIOS, ANSWERS = 3, 16, 10
PARTS = 5  # of the time; the first is the warm-up
GROWTH = 0.05  # of memory after it
REST = 8.0  # seconds, after which the service has given memory back
PATIENCE = 300.0  # seconds until the model has learned from verdicts, if 64 clients wait on a busy machine

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

    def note(self, requests: int, wrong: str | None) -> None:
        """Add one round."""
        with self.lock:
            self.requests += requests
            self.rounds += 1
            self.wrong += [] if wrong is None else [wrong]


@dataclass(frozen=True)
class Service:
    """A service at work."""

    client: Client
    process: int
    rounds: list[Scenario]
    outcome: Outcome


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


def heard(client: Client, relation: str, of: Scenario) -> list[tuple[str, float]]:
    """What a service answers: tail and score."""
    return [(answer["tail"]["id"], answer["score"]) for answer in client.answers(relation, of.head, ANSWERS)]


def live(client: Client, of: Scenario) -> tuple[int, str | None]:
    """One round of a client: the number of requests, and what was wrong."""
    relation = client.teach(of.name, of.references)
    if heard(client, relation, of) != of.before:
        return 2, f"{of.name}: other answers to {of.head!r} than offline"
    client.judge(relation, *of.accepted, "accept")
    client.judge(relation, *of.rejected, "reject")
    client.learned(relation, PATIENCE)
    if heard(client, relation, of) != of.after:
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
        outcome.note(requests, wrong)


def own_memory(pid: int) -> int:
    """Bytes of memory that a process has for itself."""
    found = re.search(r"RssAnon:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def work_together(service: Service, clients: int, seconds: float, seed: int) -> list[int]:
    """Let clients work for some seconds; the memory of the service meanwhile."""
    end, sizes = time.monotonic() + seconds, []
    threads = [
        threading.Thread(target=work, args=(service.client, service.rounds, Random(seed + i), end, service.outcome))
        for i in range(clients)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sizes.append(own_memory(service.process))
        time.sleep(min(1.0, seconds / 50))
    return sizes


def rest(service: Service) -> int:
    """Bring the service into the same state each time; its memory then.

    Without verdicts: how many of them are learned at once depends on how quickly they come.
    """
    for number, of in enumerate([*service.rounds, *service.rounds]):  # more relations than the model keeps
        relation = service.client.teach(f"at rest {number}", of.references)
        wrong = None if heard(service.client, relation, of) == of.before else f"{of.name}: other answers at rest"
        service.client.delete(relation)
        service.outcome.note(3, wrong)
    time.sleep(REST)
    return own_memory(service.process)


def soak(model: str, clients: int, minutes: float, seed: int = 0) -> dict[str, Any]:
    """Let clients work for some minutes; what was measured."""
    use_one_thread()  # as all commands do: with other numbers of threads, the last bits of a score may be others
    rounds, outcome, seconds = scenarios(open_model(model), seed), Outcome(), 60 * minutes / PARTS
    at_work: list[list[int]] = []
    at_rest: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        state = str(Path(folder) / "relations.sqlite")
        with serving(model, "--state", state, seconds=60 * minutes + 1_200) as (process, address):
            service = Service(Client(address), process.pid, rounds, outcome)
            for part in range(PARTS):
                at_work.append(work_together(service, clients, seconds, seed + part * clients))
                if outcome.wrong:
                    return {"wrong": outcome.wrong[:5], "rounds": outcome.rounds, "requests": outcome.requests}
                at_rest.append(rest(service))
            left = len(service.client.relations())
    middle = (PARTS + 1) // 2
    halves = [statistics.median(chain(*parts)) for parts in (at_work[1:middle], at_work[middle:])]
    return {
        "clients": clients,
        "minutes": minutes,
        "rounds": outcome.rounds,
        "requests": outcome.requests,
        "wrong": outcome.wrong[:5],
        "relations_left": left,
        "memory_at_rest_mib": [round(size / 2**20, 1) for size in at_rest],
        "memory_at_work_mib": [round(size / 2**20, 1) for size in halves],
        "growth_at_rest": round(max(at_rest[1:]) / at_rest[0] - 1, 4),
        "growth_at_work": round(halves[1] / halves[0] - 1, 4),
    }


def growth(found: Mapping[str, Any]) -> float:
    """By how much memory has grown after the warm-up, at rest or at work."""
    return float(max(found["growth_at_rest"], found["growth_at_work"]))


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
    return int(bool(found["wrong"]) or found["relations_left"] > 0 or growth(found) > GROWTH)


if __name__ == "__main__":
    sys.exit(main())
