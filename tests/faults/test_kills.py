"""A crash at any moment loses nothing that was confirmed, and leaves nothing that is half: kill -9 everywhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hire.cli import main
from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.inference.bulk import Heads, Question, write_answers, writer
from hire.inference.model import load
from hire.training.loop import STATE
from hire.training.run import CONFIG, MODEL
from hire.util.checksums import read_record, write_record
from tests.faults.support import contents, how_many, killed_after, killed_at, randomness, torture
from tests.service.stored import everything_in
from tests.support import request, serving

OPERATIONS = 200  # more than any of the short works here has


Tell = Callable[..., None]
TABLE = "what is killed"


def killed_everywhere(work: Callable[[], object], check: Callable[[], None], at_most: int) -> int:
    """Kill some work at its first file operation, its second and so on, until it comes through; how many kills it took.

    Of the operations about a share of `at_most` in OPERATIONS is taken.
    """
    kills = 0
    for operation in range(OPERATIONS):
        if randomness("kills", operation).random() > at_most / OPERATIONS:
            continue
        came_so_far = killed_at(operation, work)
        check()
        if not came_so_far:
            return kills
        kills += 1
    raise AssertionError(f"more than {OPERATIONS} file operations")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_dataset_that_is_replaced_is_always_there(umls: FewShotDataset, tmp_path: Path, tell: Tell) -> None:
    target = tmp_path / "made"
    umls.save(target)
    expected = contents(target)

    def check() -> None:
        assert len(open_dataset(target).tasks) == len(umls.tasks)

    kills = killed_everywhere(lambda: umls.save(target, overwrite=True), check, how_many(10, OPERATIONS))
    umls.save(target, overwrite=True)
    assert kills > how_many(0, 20) and names_in(tmp_path) == ["made"] and contents(target) == expected
    tell(TABLE, "a dataset that is replaced, at each file operation", kills=kills)


def test_a_new_dataset_is_whole_or_not_there(umls: FewShotDataset, tmp_path: Path, tell: Tell) -> None:
    target = tmp_path / "made"

    def check() -> None:
        if target.exists():
            open_dataset(target)
            shutil.rmtree(target)

    kills = killed_everywhere(lambda: umls.save(target), check, how_many(10, OPERATIONS))
    tell(TABLE, "a dataset that is new, at each file operation", kills=kills)
    assert names_in(tmp_path) == []  # the last one came through, and tidied up after all the others


def test_a_record_is_the_old_or_the_new_one(tmp_path: Path, tell: Tell) -> None:
    path = tmp_path / "record"
    write_record(path, {"value": 0})

    def check() -> None:
        assert read_record(path, "")["value"] in (0, 1)

    kills = killed_everywhere(lambda: write_record(path, {"value": 1}), check, OPERATIONS)
    tell(TABLE, "a record (`config.json` and the like), at each file operation", kills=kills)
    assert names_in(tmp_path) == ["record"] and read_record(path, "") == {"value": 1}


def test_a_prediction_is_resumed_from_any_moment(
    umls_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    monkeypatch.setattr("hire.inference.output.SECONDS_BETWEEN_RECORDS", 0.0)
    relation = load(umls_run).teach([("virus", "organism"), ("fungus", "organism")])
    (tmp_path / "heads.txt").write_text("plant\nvirus\ncell\n")
    heads, question = Heads(tmp_path / "heads.txt"), Question(k=3)
    lines = writer("tsv", relation, question)
    whole, target = tmp_path / "whole", tmp_path / "out"
    write_answers(relation, heads, question, lines, whole, {})

    def check() -> None:
        write_answers(relation, heads, question, lines, target, {}, resume=True)
        assert target.read_bytes() == whole.read_bytes()
        assert names_in(tmp_path) == ["heads.txt", "out", "whole"]
        target.unlink()

    def write() -> int:
        return write_answers(relation, heads, question, lines, target, {})

    kills = killed_everywhere(write, check, how_many(12, OPERATIONS))
    tell(TABLE, "a prediction, at each file operation", kills=kills)


def test_no_confirmed_change_of_taught_relations_is_lost(tmp_path: Path, tell: Tell) -> None:
    confirmed, path = tmp_path / "confirmed", tmp_path / "state"
    generator = randomness("store")
    work = (
        "import sys; from pathlib import Path; from hire.service.store import Store\n"
        "from hire.service.relations import Draft, RelationTable\n"
        "table = RelationTable(Store(Path(sys.argv[1])))\n"
        "for number in range(100_000):\n"
        "    print(table.add(Draft(f'relation {number}', [('a', 'b')])).id, flush=True)\n"
    )
    said: list[str] = []
    kills = how_many(2, 40)
    for _ in range(kills):
        with confirmed.open("w") as stream:
            process = subprocess.Popen([sys.executable, "-c", work, str(path)], stdout=stream)
            enough = generator.randrange(2, 30)
            while len(confirmed.read_text().splitlines()) < enough:
                assert process.poll() is None
                time.sleep(0.001)
            time.sleep(generator.uniform(0, 0.05))
            process.kill()
            process.wait()
        said += confirmed.read_text().splitlines()[:-1]  # the last line may be half
        assert set(said) <= {row[1] for row in everything_in(path)["relations"]}
    assert said
    tell(TABLE, "a process that teaches relations without pause, at random moments", kills=kills)


SMALL = ("model.dimension=8", "embedding.dimension=8", "embedding.steps=100", "training.tasks=4")
TRAIN: tuple[str, ...] = ("train", "umls-one", "--preset", "fast", "--no-calibrate", "--steps", "20")
TRAIN += tuple(part for setting in SMALL for part in ("--set", setting))


def hire(*arguments: str | Path) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "hire", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a command that should succeed."""
    output = process.communicate(timeout=600)[0]
    assert process.returncode == 0 and "Traceback" not in output, output


TINY = ("model.dimension=8", "training.tasks=2", "training.negatives=16", "embedding.steps=40", "embedding.dimension=8")
TRAININGS = {  # the options of a training of a second or two, and how often `make torture` kills it
    "of HiRe, and of its embeddings": (("--system", "hire", "--steps", "20", *(f"--set={set_}" for set_ in TINY)), 35),
    "of the path level": (("--system", "path", "--steps", "5", "--set=training.tasks=1"), 15),
}


@pytest.mark.parametrize(
    "name", [next(iter(TRAININGS)), *(pytest.param(name, marks=torture) for name in list(TRAININGS)[1:])]
)
def test_a_training_is_resumed_from_any_moment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    """Also from the moments before it had begun, while it learned embeddings, and again while it was resumed."""
    monkeypatch.setattr("hire.training.loop.SECONDS_BETWEEN_STATES", 0.0)  # it saves its state after every step
    options, kills = TRAININGS[name][0], how_many(1, TRAININGS[name][1])
    generator, log = randomness("train", name), tmp_path / "log"

    def train(run: str, seconds: float | None = None) -> bool:
        monkeypatch.setenv("HIRE_CACHE", str(tmp_path / f"cache of {run}"))
        command = ("train", "umls-one", "-o", str(tmp_path / run), "--no-calibrate", "--resume", *options)
        return killed_after(seconds, lambda: main(list(command)), log)

    start = time.monotonic()
    assert train("whole") and "Traceback" not in log.read_text()
    seconds, expected = time.monotonic() - start, contents(tmp_path / "whole")
    done = Counter[str]()
    while done["kills"] < kills:
        run = tmp_path / f"run {done['kills']}"
        for _ in range(generator.choice((1, 1, 2))):
            new, start = not run.exists(), time.monotonic()
            if not train(run.name, generator.uniform(0, seconds)):
                done["kills"] += 1
                done[_moment(run, tmp_path / f"cache of {run.name}")] += 1
            elif new:  # quicker than the first, which may have had to compile
                seconds = min(seconds, time.monotonic() - start)
        assert train(run.name), log.read_text()
        for file in (MODEL, CONFIG):
            assert (run / file).read_bytes() == expected[tmp_path / "whole" / file], f"after kill {done['kills']}"
        assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
        shutil.rmtree(run)
    assert "Traceback" not in log.read_text()
    tell(TABLE, f"a training {name}, at random moments", **done)


def _moment(run: Path, cache: Path) -> str:
    """What a training was about when it was killed."""
    if (run / STATE).exists():
        return "in_training"
    return "in_pre-training" if list(cache.rglob("*.safetensors")) else "before"


@torture
def test_a_service_that_is_killed_has_all_that_it_confirmed(umls_run: Path, tmp_path: Path, tell: Tell) -> None:
    generator, kills = randomness("serve"), 5
    for _ in range(kills):
        said: list[str] = []
        options = ("--state", str(tmp_path / "state"))
        with serving(umls_run, *options) as (process, address):
            for number in range(generator.randrange(2, 12)):
                body = {"name": f"r{number}", "references": [{"head": "virus", "tail": "organism"}]}
                said.append(request(f"{address}/v1/relations", body)["id"])
            process.kill()
            process.wait()
        assert set(said) <= {row[1] for row in everything_in(tmp_path / "state")["relations"]}
    tell(TABLE, "`hire serve`, after some requests", kills=kills)


def test_a_child_that_hangs_would_be_noticed() -> None:
    assert killed_at(0, lambda: Path(os.devnull).open("w").close())
    assert not killed_at(5, lambda: None)
    with pytest.raises(AssertionError, match="failed at operation"):
        killed_at(5, lambda: 1 / 0)


@torture
def test_an_interruption_is_told_in_words(tmp_path: Path) -> None:
    process = hire(*TRAIN, "-o", tmp_path / "run")
    while not (tmp_path / "run" / CONFIG).exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 2 and "--resume" in output and "Traceback" not in output
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    assert config["system"] == "hire"
    with pytest.raises(HireError, match="has no weights yet"):
        load(tmp_path / "run")
