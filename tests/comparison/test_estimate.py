from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from hire.comparison import estimate as module
from hire.comparison.estimate import Forecast, duration
from hire.comparison.plan import Row, jobs_of
from hire.comparison.run import RUNS, TRAINING, Bench, Protocol
from hire.comparison.speed import SPEEDS, Speed
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.util.checksums import write_record
from tests.support import small_settings

STEPS = {"training__steps": 6, "selection__evaluate_every": 6}
ROWS = [
    Row("metar", small_settings("metar", **STEPS, embedding__margin=3.0), "common"),
    Row("popularity", small_settings("popularity")),
]
METAR, POPULARITY, EMBEDDINGS = Speed(10.0, 2.0, 100, 5.0, 4, 3.0), Speed(1.0), Speed(0.0, 0.5, 100)
JOBS = jobs_of(ROWS, (1, 3), 2, "graph")  # metar, popularity, metar with another seed


@pytest.fixture
def bench(tmp_path: Path, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    return Bench(tmp_path / "comparison", "umls-one", umls)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The systems, and the embeddings, whose speed is measured from now on; the speeds are made up."""
    found: list[str] = []

    def measured(_: Any, system: str, *__: Any, **___: Any) -> Speed:
        found.append(system)
        return METAR if system == "metar" else POPULARITY

    def measured_embeddings(_: Any, settings: Any, __: Any) -> Speed:
        found.append(settings.model)
        return EMBEDDINGS

    monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr(module, "measured_embeddings", measured_embeddings)
    return found


def finish(bench: Bench, number: int, seconds: float) -> None:
    """Let it seem that a job was trained in so many seconds."""
    place = bench.folder / RUNS / JOBS[number].name
    place.mkdir(parents=True)
    write_record(place / TRAINING, {"seconds": seconds, "finished": True})


def test_nothing_is_known_before_it_is_measured(bench: Bench) -> None:
    forecast = Forecast(bench, JOBS)
    assert forecast.summary == "3 of 3 runs to do, 3 of unknown length (--plan measures it)"
    assert forecast.of(JOBS[0]) == (None, None) and forecast.seconds == 0 and forecast.unknown == 3
    limited = Forecast(replace(bench, budget=2.0), JOBS)  # no run takes longer than that
    assert limited.of(JOBS[0]) == (120.0, None) and limited.summary == "3 of 3 runs to do, about 6 min"


def test_what_is_measured_once_is_known_for_every_seed(bench: Bench, asked: list[str], umls: FewShotDataset) -> None:
    forecast = Forecast(bench, JOBS)
    forecast.measure()
    assert asked == ["transe", "metar", "popularity"]
    training, tasks = 10 + 100 * 2 + 4 * 5, len(umls.split("test"))
    for later in (forecast, Forecast(bench, JOBS)):
        later.measure()
        assert len(asked) == 3  # not again
        assert later.of(JOBS[0]) == later.of(JOBS[2]) == (training, 2 * 3 * tasks)  # at 1 and at 3 shots
        assert later.of(JOBS[1]) == (1, 0) and later.unknown == 0
        assert later.seconds == 2 * (training + 2 * 3 * tasks) + 1 + 2 * 50  # embeddings of two seeds
    drawn = Forecast(replace(bench, protocol=Protocol(draws=5)), JOBS)
    assert drawn.of(JOBS[0]).ranking == 5 * 2 * 3 * tasks
    assert Forecast(replace(bench, budget=1.0), JOBS).of(JOBS[0]).training == 60
    among_all = Forecast(replace(bench, protocol=Protocol(among_all=True)), JOBS)
    assert among_all.unknown == 3  # ranking among all entities is another thing


def test_a_run_that_is_there_tells_more_than_a_few_steps(bench: Bench, asked: list[str]) -> None:
    other = replace(jobs_of(ROWS[:1], (5,), 1, "graph")[0], name="another")
    finish(bench, 0, 77.0)
    forecast = Forecast(bench, [*JOBS, other])
    assert forecast.of(JOBS[0]).training == 0  # it is to be ranked
    assert forecast.of(JOBS[2]).training == forecast.of(other).training == 77
    forecast.measure()
    assert forecast.of(JOBS[2]).training == 77 and forecast.of(other).training == METAR.training
    place = bench.folder / RUNS / JOBS[2].name
    place.mkdir()
    write_record(place / TRAINING, {"seconds": 70.0})
    assert forecast.of(JOBS[2]).training == 7  # what was trained before counts


def test_what_cannot_be_measured_stays_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Speed:
        raise HireError("does not fit into memory", remedy="buy some")

    for name in ("measured", "measured_embeddings"):
        monkeypatch.setattr(module, name, refuse)
    messages: list[str] = []
    forecast = Forecast(bench, JOBS)
    forecast.measure(messages.append)
    assert forecast.unknown == 3 and len(messages) == 3
    assert messages[1].startswith(JOBS[0].alike) and messages[1].endswith(
        "cannot be measured: does not fit into memory"
    )


def test_estimates_are_shown_while_a_comparison_runs(bench: Bench) -> None:
    Forecast(bench, JOBS).measure()
    messages: list[str] = []
    bench.carry_out(JOBS, messages.append)
    said = [message for message in messages if "runs to do" in message]
    assert [message.split(" of ")[0].strip() for message in said] == ["3", "2", "1"]
    assert all(", about " in message and "unknown" not in message for message in said)
    after = Forecast(bench, JOBS)
    assert after.summary == "all 3 runs are there" and not after.embeddings  # they are in the cache
    more = Forecast(bench, jobs_of(ROWS, (1, 3), 3, "graph"))
    more.measure()
    (left,) = more.left
    there = [bench.outcome(job) for job in (JOBS[0], JOBS[2])]
    assert more.of(left).training == pytest.approx(sum(outcome.training.seconds for outcome in there) / 2)
    ranked = [evaluation.seconds for outcome in there for evaluation in outcome.evaluations]
    assert more.of(left).ranking == pytest.approx(2 * sum(ranked) / 4) and min(ranked) > 0


def test_times_for_people() -> None:
    assert [duration(seconds) for seconds in (0.2, 44, 100, 5_340, 20_000)] == [
        "1 s",
        "44 s",
        "2 min",
        "89 min",
        "5 h 33 min",
    ]


SETTINGS = """
system = "metar"
[model]
dimension = 8
[embedding]
dimension = 8
steps = 20
margin = 2.0
[training]
steps = 6
tasks = 2
"""


def test_the_plan(
    run: Callable[..., Result], tmp_path: Path, asked: list[str], umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.toml").write_text(SETTINGS)
    folder = tmp_path / "out"
    command = ["compare", "umls-one", "--systems", f"popularity,{tmp_path / 'mine.toml'}", "--shots", "1"]
    command += ["--seeds", "2", "-o", str(folder)]
    ranking = 3 * len(umls.split("test"))
    shown = run(*command, "--plan").output
    assert asked == ["transe", "popularity", "metar"] and [path.name for path in folder.iterdir()] == [SPEEDS]
    lines = {line.split("  ")[0].strip(): line.split()[-5:] for line in shown.splitlines()}
    assert lines["mine (mine.toml), seed 1"] == ["do", "about", "4", "under", "1"]
    assert lines["transe embeddings, seed 0"][-2:] == ["under", "1"]
    total = 2 * 230 + 1 + 2 * 50
    assert lines["sum of what is to do"][-4:] == ["about", f"{total / 60:.0f}", "under", "1"]
    assert f"3 of 3 runs to do, about {duration(total + 2 * ranking)}" in shown and "0.0" not in shown
    planned = json.loads(run(*command, "--plan", "--json").stdout)
    assert len(asked) == 3
    assert planned["expected"] == pytest.approx(total + 2 * ranking) and planned["unknown"] == 0
    assert [each["expected"] for each in planned["runs"]] == [
        {"training": 1, "ranking": 0},
        *2 * [{"training": 230, "ranking": ranking}],
    ]
    assert [each["expected"] for each in planned["embeddings"]] == [50, 50]
    assert run(*command).exit_code == 0
    shown = run(*command, "--plan").output
    assert "all 3 runs are there" in shown and "sum" not in shown and "0.0" not in shown and "under 0.1" in shown
