from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from hire.comparison import run as module
from hire.comparison.plan import Job, Row, jobs_of
from hire.comparison.run import LOCK, RUN, RUNS, TRAINING, Bench, Protocol
from hire.comparison.speed import SPEEDS
from hire.comparison.table import compare
from hire.data.dataset import FewShotDataset
from hire.errors import HireError
from hire.training import loop
from hire.training.loop import STATE
from hire.training.run import CONFIG, MODEL
from hire.util.checksums import write_record
from hire.util.tensors import load_tensors
from tests.support import small_settings

ROWS = [
    Row("hire", small_settings("hire", training__steps=12, selection__evaluate_every=5), "common"),
    Row("popularity", small_settings("popularity")),
]


def jobs(seeds: int = 2, rows: list[Row] = ROWS, shots: tuple[int, ...] = (1, 3)) -> list[Job]:
    return jobs_of(rows, shots, seeds, "graph")


@pytest.fixture
def bench(tmp_path: Path, umls: FewShotDataset) -> Bench:
    return Bench(tmp_path / "comparison", "umls-one", umls)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are trained from now on, by the names of their folders."""
    found: list[str] = []

    def train_run(source: str, run: Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        found.append(run.parent.name)
        return original(source, run, *arguments, **options)

    original: Callable[..., dict[str, Any]] = vars(module)["train_run"]
    monkeypatch.setattr(module, "train_run", train_run)
    return found


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send this process the signal of Ctrl-C in a training step, once."""
    original = loop._finite
    sent: list[int] = []

    def finite(loss: float, trainer: Any, stage: Any) -> float:
        if trainer.step == step and stage.title == "Training hire" and not sent:
            sent.append(step)
            os.kill(os.getpid(), signal.SIGINT)
        return original(loss, trainer, stage)

    monkeypatch.setattr(loop, "_finite", finite)


def same(one: Path, other: Path) -> bool:
    first, second = load_tensors(one), load_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_what_is_there_is_reused(bench: Bench, trained: list[str]) -> None:
    messages: list[str] = []
    outcomes = bench.carry_out(jobs(), messages.append)
    assert len(trained) == 3 and len(outcomes) == 3  # popularity has no seed
    assert messages[0].startswith("3 of 3 runs to do") and any(": hire (common), seed 1" in said for said in messages)
    assert any("1 of 3 runs to do, about " in said for said in messages)  # known from the first seed
    assert all(outcome.training.finished and not outcome.cut for outcome in outcomes)
    assert [len(outcome.evaluations) for outcome in outcomes] == [2, 2, 2]
    assert not list(bench.folder.rglob(STATE))  # of no use any more
    again = bench.carry_out(jobs(), messages.append)
    assert len(trained) == 3 and messages[-1] == "all 3 runs are there"
    before, after = (compare(ROWS, of, (1, 3)) for of in (outcomes, again))
    assert [line.cells for line in before.lines] == [line.cells for line in after.lines]
    bench.carry_out(jobs(shots=(1, 5)))  # one model for any number of references: only the ranks are new
    assert len(trained) == 3 and len(list(bench.folder.rglob("test-5-shot.json"))) == 3


def test_interrupted_between_runs(bench: Bench, trained: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted = vars(module)["train_run"]

    def killed(*arguments: Any, **options: Any) -> Any:
        if len(trained) == 1:
            raise KeyboardInterrupt
        return counted(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "train_run", killed)
        with pytest.raises(KeyboardInterrupt):
            bench.carry_out(jobs())
    assert len(bench.left(jobs())) == 2
    outcomes = bench.carry_out(jobs())
    assert len(trained) == len(set(trained)) == 3 and all(outcome.evaluations for outcome in outcomes)


def test_interrupted_inside_a_training_and_continued_bit_for_bit(
    bench: Bench, tmp_path: Path, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = jobs(1, ROWS[:1])
    with monkeypatch.context() as patch:
        interrupt_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            bench.carry_out([job])
    record = bench.training(job)
    assert record.seconds > 0 and not record.finished and record.started is None
    assert int(load_tensors(bench.folder / RUNS / job.name / RUN / STATE)["step"]) == 7
    (outcome,) = bench.carry_out([job])
    assert outcome.training.finished and outcome.training.seconds > record.seconds
    whole = Bench(tmp_path / "whole", "umls-one", umls)
    whole.carry_out([job])
    assert same(*(place.folder / RUNS / job.name / RUN / MODEL for place in (bench, whole)))


def test_interrupted_while_ranking(bench: Bench, trained: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = jobs(1, ROWS[1:])
    original: Callable[..., Any] = vars(module)["rank_split"]
    ranked: list[int] = []

    def rank_split(*arguments: Any, **options: Any) -> Any:
        ranked.append(arguments[3])
        if len(ranked) == 2:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(module, "rank_split", rank_split)
    with pytest.raises(KeyboardInterrupt):
        bench.carry_out([job])
    (outcome,) = bench.carry_out([job])
    assert ranked == [1, 3, 3] and len(trained) == 1 and len(outcome.evaluations) == 2


def test_a_budget_cuts_a_run_and_a_larger_one_continues_it(
    bench: Bench, trained: list[str], umls: FewShotDataset
) -> None:
    small = Bench(bench.folder, "umls-one", umls, budget=1e-6)
    (job,) = jobs(1, ROWS[:1])
    (cut,) = small.carry_out([job])
    assert cut.cut and cut.training.steps == 1 and len(cut.evaluations) == 2
    (line,) = compare(ROWS[:1], [cut], (1, 3)).lines
    assert line.notes == ["1 of 1 runs were cut at step 1"]
    small.carry_out([job])
    assert len(trained) == 1  # the budget is spent
    (whole,) = bench.carry_out([job])
    assert len(trained) == 2 and whole.training.steps == 12 and not whole.cut
    first, second = (of.evaluations[0].ranks for of in (cut, whole))
    assert any((first[name][1].optimistic != second[name][1].optimistic).any() for name in first)  # ranked anew
    assert small.carry_out([job])[0].training == whole.training  # a smaller budget takes nothing back


def test_the_time_of_a_run_that_was_killed_counts(bench: Bench, umls: FewShotDataset, trained: list[str]) -> None:
    limited = Bench(bench.folder, "umls-one", umls, budget=1e-6)
    (job,) = jobs(1, ROWS[:1])
    limited.carry_out([job])
    place = bench.folder / RUNS / job.name
    started = (place / RUN / STATE).stat().st_mtime - 40  # as if it had been killed then, without a word
    write_record(place / TRAINING, {"seconds": 25.0, "started": started})
    (outcome,) = Bench(bench.folder, "umls-one", umls, budget=1).carry_out([job])
    assert outcome.training.seconds == pytest.approx(65, abs=1) and len(trained) == 1
    write_record(place / TRAINING, {"seconds": 5.0, "started": time.time() + 1e6})  # a clock put back
    (outcome,) = Bench(bench.folder, "umls-one", umls, budget=1).carry_out([job])
    assert outcome.training.finished and outcome.training.seconds < 60


def test_a_run_that_fails_does_not_stop_the_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_finite", lambda *_: (_ for _ in ()).throw(HireError("the loss is nan", remedy="mend it")))
        messages: list[str] = []
        failed, fine = bench.carry_out(jobs(1), messages.append)
    assert failed.training.problem == "the loss is nan" and not failed.evaluations and fine.evaluations
    assert any("failed: the loss is nan\n  mend it" in said for said in messages)
    assert all(outcome.evaluations and not outcome.training.problem for outcome in bench.carry_out(jobs(1)))


def test_draws_redraw_the_references(bench: Bench, umls: FewShotDataset, trained: list[str]) -> None:
    bench.carry_out(jobs(1, ROWS[1:]))
    drawn = Bench(bench.folder, "umls-one", umls, Protocol(draws=2))
    (outcome,) = drawn.carry_out(jobs(1, ROWS[1:]))
    assert [(each.shots, each.draw) for each in outcome.evaluations] == [(1, 0), (1, 1), (3, 0), (3, 1)]
    assert len(trained) == 1 and not outcome.fixed
    first, second = outcome.evaluations[:2]
    assert any((first.ranks[name][0] != second.ranks[name][0]).any() for name in first.ranks)


def test_a_system_that_cannot_be_redrawn_has_the_first_references(bench: Bench, umls: FewShotDataset) -> None:
    settings = small_settings("transe", training__shots=[3], training__dimension=8, training__negatives=8)
    drawn = Bench(bench.folder, "umls-one", umls, Protocol(draws=2))
    rows = [Row("transe", settings), ROWS[1]]
    outcomes = drawn.carry_out(jobs(1, rows, (3,)))
    assert [outcome.fixed for outcome in outcomes] == [True, False]
    assert [each.draw for each in outcomes[0].evaluations] == [None]
    assert not drawn.left(jobs(1, rows, (3,)))
    assert "not redrawn" in compare(rows, outcomes, (3,)).lines[0].notes[0]


def test_damage_and_changes_are_noticed(bench: Bench, umls: FewShotDataset, trained: list[str], tmp_path: Path) -> None:
    (job,) = jobs(1, ROWS[1:])
    bench.carry_out([job])
    file = bench.folder / RUNS / job.name / "test-1-shot.json"
    for damage in ("", "{}", file.read_text()[:100], file.read_text().replace('"tasks": "', '"tasks": "0')):
        file.write_text(damage)
        (outcome,) = bench.carry_out([job])
        assert len(outcome.evaluations) == 2 and len(trained) == 1
    with pytest.raises(HireError, match="9999 references and a query need"):
        bench.carry_out(jobs(1, ROWS[1:], (9999,)))
    without = FewShotDataset.of("without", umls.graph, {split: {} for split in ("train", "dev", "test")}, {})
    with pytest.raises(HireError, match="has no test tasks"):
        Bench(tmp_path, "without", without).carry_out([])


def test_ranks_outlive_the_weights(bench: Bench, trained: list[str]) -> None:
    (job,) = jobs(1, ROWS[1:])
    light = replace(bench, keep_weights=False)
    bench.carry_out([job])
    assert list(bench.folder.rglob(MODEL))
    (before,) = light.carry_out([job])
    assert not list(bench.folder.rglob(MODEL)) and len(before.evaluations) == 2
    for again in (bench, light):
        (outcome,) = again.carry_out([job])
        assert len(trained) == 1 and len(outcome.evaluations) == 2 and outcome.training.finished
    (without,) = bench.carry_out(jobs(1, ROWS[1:], (5,)))
    assert not without.evaluations and "its weights have been removed" in str(without.training.problem)


def test_other_defaults_are_told(bench: Bench) -> None:
    (job,) = jobs(1, ROWS[:1])
    bench.carry_out([job])
    changed = replace(job, settings=job.settings.changed({"model.margin": 2.0}))  # as if that were the default now
    with pytest.raises(HireError, match=r"when the default of model\.margin was another one"):
        bench.carry_out([changed])


def test_two_processes_do_not_train_the_same_run(bench: Bench, trained: list[str]) -> None:
    fcntl = pytest.importorskip("fcntl")
    (job,) = jobs(1, ROWS[1:])
    place = bench.folder / RUNS / job.name
    place.mkdir(parents=True)
    messages: list[str] = []
    with (place / LOCK).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        (outcome,) = bench.carry_out([job], messages.append)
    assert not trained and not outcome.evaluations and "another process" in messages[-1]
    assert bench.carry_out([job])[0].evaluations


SMALL_FILE = """
preset = "fast"
[model]
dimension = 8
[embedding]
dimension = 8
steps = 20
[training]
steps = 6
tasks = 2
"""


def test_the_command_line(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SMALL_FILE)
    command = [
        "compare",
        "umls-one",
        "--systems",
        f"any-link,{tmp_path / 'tiny.toml'}",
        "--shots",
        "1,3",
        "--seeds",
        "2",
    ]
    command += ["-o", str(tmp_path / "out")]
    assert "3 of 3 runs to do, about " in run(*command, "--plan").output and not (tmp_path / "out" / RUNS).exists()
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "3-shot MRR" in result.output and "tiny.toml" in result.output and "± is the standard" in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {RUNS, SPEEDS, *(f"comparison.{suffix}" for suffix in ("md", "csv", "json", "tex", "svg"))}
    again = run(*command, "--json")
    found = json.loads(again.stdout)
    assert found == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [len(row["runs"]) for row in found["rows"]] == [1, 2] and found["seeds"] == 2
    plan = json.loads(run(*command, "--plan", "--json").stdout)
    assert all(each["done"] for each in plan["runs"]) and plan["remaining"] == "all 3 runs are there"
    one = run(*command[:-2], "--shots", "3", "--draws", "2", "--candidates", "all", "-o", tmp_path / "out")
    assert one.exit_code == 0 and "Hits@10" in one.output and "among all entities" in one.output
    other = (tmp_path / "out" / "comparison-all-2-draws.md").read_text()  # beside the table of the other protocol
    assert "among all entities" in other and "(comparison-all-2-draws.svg)" in other
    assert found == json.loads((tmp_path / "out" / "comparison.json").read_text())
    for wrong, message in (
        (("--systems", "hiro"), "did you mean 'hire'"),
        (("--systems", ","), "at least one"),
        (("--shots", "1,x"), "not a valid integer"),
        (("--recipe", "secret"), "'published', 'common'"),
        (("--budget", "0"), "--budget"),
    ):
        result = run(*command, *wrong)
        assert result.exit_code == 2 and message in result.output and "Traceback" not in result.output


def test_a_graph_of_ones_own(run: Callable[..., Result], tmp_path: Path, graph_file: Path) -> None:
    built = run("data", "build", graph_file, "-o", tmp_path / "mine", "--split", "2:1:1")
    assert built.exit_code == 0, built.output
    result = run(
        "compare", tmp_path / "mine", "--systems", "any-link,popularity", "-o", tmp_path / "out", "--shots", "3"
    )
    assert result.exit_code == 0 and "mine, test" in result.output, result.output


def test_an_interruption_says_how_to_continue_and_the_report_what_is_done(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(SMALL_FILE)
    systems = f"any-link,{tmp_path / 'tiny.toml'}"
    command = ["compare", "umls-one", "--systems", systems, "--shots", "1", "--seeds", "1", "-o", tmp_path / "out"]
    nothing = run(*command, "--report")
    assert nothing.exit_code == 2 and "none of the 2 runs is done yet" in nothing.output
    assert not (tmp_path / "out").exists()
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        result = run(*command)
    assert result.exit_code == 2 and "the same command continues" in result.output and "--report" in result.output
    assert sum((place / RUN / CONFIG).exists() for place in (tmp_path / "out" / "runs").iterdir()) == len(trained) == 2
    begun = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    report = run(*command, "--report")
    assert report.exit_code == 0 and "1 of 1 runs have no metrics (not done yet)" in report.output
    rows = json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"]
    assert [bool(row["metrics"]) for row in rows] == [True, False]
    assert begun == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    whole = run(*command)
    assert whole.exit_code == 0 and "have no metrics" not in whole.output and len(trained) == 3


def test_a_plan_is_no_report(run: Callable[..., Result]) -> None:
    result = run("compare", "umls-one", "--plan", "--report")
    assert result.exit_code == 2 and "not both" in result.output
