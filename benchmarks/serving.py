"""How soon `hire serve` is up, and how soon it answers 16 clients at once, over loopback.

    python benchmarks/serving.py [RUN | DATASET]

For a dataset, a run of the preset `best` that learned nothing is served: its answers cost the same. First every client
asks again as soon as it has its answer, so that the service never rests; then, as people do, each waits a second in
between. Besides what the clients wait there is the processor time of an answer, in the service and in the clients,
which tells what a machine that is busy with other work does not. The targets, on NELL-One: up within 3 s; answers
within 50 ms at the median and 200 ms at the 99th percentile.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from hire.data.open import open_dataset
from hire.training.run import CONFIG, run_config, save_system
from hire.util.checksums import write_record

CLIENTS = 16
REQUESTS = 1_600  # of all clients, of each kind
MOST_SECONDS = 20.0  # for each kind
PAUSE = 1.0  # seconds that a person takes at least
SHOTS = 3
MOST_RELATIONS = 16
MOST_HEADS = 100  # of a relation


def untrained_run(dataset: str, run: Path) -> None:
    """A run as `hire train` would leave it, with random weights."""
    from hire.systems.path.graph import EvidenceGraph
    from hire.systems.path.model import PathModel
    from hire.systems.path.network import PathNetwork
    from hire.training.settings import preset

    settings, opened = preset("best"), open_dataset(dataset)
    of_path = settings.settings
    system = PathModel(PathNetwork(of_path.model), EvidenceGraph.of(opened, of_path.evidence))
    save_system(run, system, of_path)
    write_record(run / CONFIG, run_config(opened, dataset, settings))


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_SECONDS)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The JSON of an answer; an error if it is none of success."""
        content = None if body is None else json.dumps(body)
        method = method or ("GET" if body is None else "POST")
        self.connection.request(method, path, content, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {text[:200]!r}")
        return json.loads(text)


def cpu_seconds(process: int) -> float:
    """The processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, process: int, paths: list[str], pause: float = 0.0) -> dict[str, float]:
    """Ask for paths with all clients at once: milliseconds of an answer, answers a second, the service's own work."""
    seconds: list[float] = []
    worked, asked = cpu_seconds(process), time.process_time()
    deadline = time.monotonic() + MOST_SECONDS

    def work(number: int) -> None:
        client = Client(port)
        time.sleep(pause * number / CLIENTS)
        for path in paths[number::CLIENTS]:
            if time.monotonic() > deadline:
                return
            start = time.perf_counter()
            client.ask(path)
            seconds.append(time.perf_counter() - start)
            time.sleep(pause)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median, late = np.percentile(np.array(seconds) * 1000, [50, 99])
    return {
        "answers": len(seconds),
        "median_ms": median,
        "p99_ms": late,
        "a_second": len(seconds) / (time.perf_counter() - start),
        "cpu_ms_each": 1000 * (cpu_seconds(process) - worked) / len(seconds),
        "clients_cpu_ms_each": 1000 * (time.process_time() - asked) / len(seconds),
    }


def main() -> None:
    """Serve, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", nargs="?", default="umls-one", help="a run, or a dataset")
    given = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder:
        run = Path(given)
        if not (run / CONFIG).exists():
            run = Path(folder) / "run"
            run.mkdir()
            untrained_run(given, run)
        serve_and_measure(run, Path(folder) / "state.sqlite")


def serve_and_measure(run: Path, state: Path) -> None:
    """Start the service of a run and ask it."""
    command = [sys.executable, "-m", "hire", "serve", str(run), "--port", "0", "--state", str(state)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rsplit(":", 1)[1].split("/")[0])
            client = Client(port)
            client.ask("/health")
            print(f"up after {time.perf_counter() - start:.2f} s, {cpu_seconds(process.pid):.2f} s of processor time")
            about, examples = client.ask("/v1/graph"), client.ask("/v1/examples")["examples"]
            print(f"{about['name']}, {about['entities']:,} entities, {CLIENTS} clients")
            requests = kinds_of_requests(client, examples, heads_of(run))
            for pause in (0.0, PAUSE):
                print(f"with {pause:g} s between an answer and the next question")
                for kind, paths in requests.items():
                    found = measure(port, process.pid, paths, pause)
                    values = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
                    print(f"  {kind:12} {values}", flush=True)
        finally:
            process.terminate()


def heads_of(run: Path) -> dict[str, list[str]]:
    """Heads of every dev and test relation: more than the service keeps the scores of."""
    dataset = open_dataset(json.loads((run / CONFIG).read_text("utf-8"))["dataset"]["source"])
    entities = dataset.graph.entities
    return {
        task.name: [entities[head] for head in dict.fromkeys(task.pairs[SHOTS:, 0].tolist())][:MOST_HEADS]
        for split in ("dev", "test")
        for task in dataset.split(split)
    }


def kinds_of_requests(client: Client, examples: list[Any], of_relations: dict[str, list[str]]) -> dict[str, list[str]]:
    """What the clients ask, of each kind: heads of every example relation, in a fixed random order."""
    generator = random.Random(0)
    taught = []
    for example in examples[:MOST_RELATIONS]:
        pairs = [{side: pair[side]["id"] for side in ("head", "tail")} for pair in example["references"]]
        relation = client.ask("/v1/relations", {"name": example["name"], "references": pairs[:SHOTS]})
        heads = of_relations[example["name"]]
        address = f"/v1/relations/{quote(relation['id'])}"
        tail = client.ask(f"{address}/answers?{urlencode({'head': heads[0], 'k': 1})}")["answers"][0]["tail"]["id"]
        taught.append((address, heads, tail))
    found: dict[str, list[str]] = {"predict": [], "explain": [], "search": []}
    for _ in range(REQUESTS):
        address, heads, tail = generator.choice(taught)
        head = generator.choice(heads)
        found["predict"].append(f"{address}/answers?{urlencode({'head': head, 'k': 10})}")
        found["explain"].append(f"{address}/explanation?{urlencode({'head': head, 'tail': tail})}")
        name = head.split(":")[-1]
        found["search"].append(f"/v1/entities?{urlencode({'q': name[: generator.randint(2, 8)]})}")
    return found


if __name__ == "__main__":
    main()
