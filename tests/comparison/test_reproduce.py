from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from hire.cli.reproduce import EXPERIMENTS
from hire.comparison import experiments, reproduce
from hire.comparison.experiments import ABLATIONS, NAMES, TRAINED, context_statistics, trained_section
from hire.comparison.page import Section, page
from hire.comparison.plan import Row
from hire.comparison.published import SYSTEMS, facts, figures, hire_figures, published_name
from hire.comparison.run import RUNS
from hire.comparison.table import compare
from hire.data.dataset import FewShotDataset
from tests.comparison.support import ABOUT, outcome
from tests.support import small_settings

VOID = ("meta", "line", "circle", "rect", "polyline")


class Balanced(HTMLParser):
    """Fails if a page has tags that do not match, or that load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("link", "script", "img", "iframe")
        assert not {"src", "xlink:href"} & {name for name, _ in attributes}
        if tag not in VOID or tag in ("circle", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made_up(name: str, dataset: FewShotDataset, **changes: Any) -> Section:
    """The section of an experiment with made-up ranks."""
    experiment, generator = TRAINED[name], np.random.default_rng(0)
    rows = experiment.rows("published")
    outcomes = [
        outcome(row, seed, share=float(generator.uniform(0.1, 0.4)), shots=experiment.shots, **changes)
        for row in rows
        for seed in (0, 1)
    ]
    return trained_section(experiment, compare(rows, outcomes, experiment.shots, ABOUT), dataset)


@pytest.fixture(scope="module")
def named(umls: FewShotDataset) -> FewShotDataset:
    """A small dataset that calls itself by the name of a published one."""
    return replace(umls, name="nell-one")


def test_the_published_figures() -> None:
    assert figures("comparison", "nell-one")["HiRe"][1] == {
        "mrr": 0.288,
        "hits@10": 0.472,
        "hits@5": 0.403,
        "hits@1": 0.184,
    }
    assert figures("ablation", "wiki-one")["w/o MAML"][5]["mrr"] == 0.286
    assert 1 not in figures("comparison", "nell-one")["FAAN"] and figures("comparison", "umls-one") == {}
    whole, plain = hire_figures("nell-one")
    assert sorted(whole) == [1, 3, 5] and sorted(plain) == [3, 5] and plain[3]["mrr"] == 0.29
    for dataset in ("nell-one", "wiki-one"):
        assert set(figures("comparison", dataset)) <= set(SYSTEMS) and set(figures("ablation", dataset)) == set(
            ABLATIONS
        )


def test_a_dataset_of_the_paper_is_known_by_its_name_or_size(umls: FewShotDataset, named: FewShotDataset) -> None:
    assert published_name(umls) is None and published_name(named) == "nell-one"


def test_nell_one_is_known_whatever_its_folder_is_called(nell_one: FewShotDataset) -> None:
    assert published_name(replace(nell_one, name="elsewhere")) == "nell-one"
    data = context_statistics(nell_one).data
    assert data["background and train tasks"] == facts()["context-statistics"]["nell-one"]


def test_every_experiment_of_the_paper_can_be_asked_for() -> None:
    assert (*NAMES, "all") == EXPERIMENTS
    ablation = {row.name: row.settings.settings.model for row in TRAINED["ablation"].rows("common")}
    assert ablation["w/o MAML"].inner_steps == 0 and ablation["w/o MRL (LSTM)"].learner == "lstm"
    assert [row.settings.settings.model.false_contexts for row in TRAINED["false-contexts"].rows("common")] == [
        1,
        2,
        4,
        6,
    ]
    weights = [row.settings.settings.model.context_weight for row in TRAINED["lambda"].rows("published")]
    assert weights[0] == 0 and weights[-1] == 0.5 and 0.05 in weights
    metar = {
        row.name: row.settings.settings.training
        for row in TRAINED["comparison"].rows("published")
        if "MetaR" in row.name
    }
    assert (metar["MetaR-I"].regime, metar["MetaR-I"].initial) == ("in-train", "random")
    assert (metar["MetaR-P"].regime, metar["MetaR-P"].initial) == ("tasks", "pretrained")
    assert (metar["MetaR-I"].embedding_norm, metar["MetaR-P"].embedding_norm) == (None, 1.0)
    common = [row.settings.settings.training for row in TRAINED["comparison"].rows("common") if "MetaR" in row.name]
    assert {training.embedding_norm for training in common} == {1.5}


def test_each_cell_stands_beside_the_published_one(named: FewShotDataset) -> None:
    section = made_up("ablation", named, training={"finished": False, "steps": 70})
    first = section.tables[0]
    assert first.title == "3-shot" and len({len(row) for row in first.rows}) == 1 == len(
        {len(first.head), sum(n for _, n in first.groups)}
    )
    cell = next(
        each for each in section.data if each["row"] == "w/o MAML" and each["shots"] == 3 and each["metric"] == "mrr"
    )
    assert cell["published"] == 0.177 and cell["difference"] == pytest.approx(cell["mean"] - 0.177)
    (row,) = [row for row in first.rows if row[0].text.startswith("w/o MAML")]
    assert row[3].text == ".177" and float(row[4].text.replace("−", "-")) == pytest.approx(cell["difference"], abs=6e-4)
    assert row[4].strong == (not cell["interval"][0] <= 0.177 <= cell["interval"][1])
    losses = section.tables[2]
    assert [row[0].text for row in losses.rows] == list(ABLATIONS)[1:] and losses.rows[2][3].text == "−.123"
    assert len(section.cut) == 7 and all("cut at step 70" in note for note in section.cut)


def test_what_the_paper_lacks_has_no_difference(umls: FewShotDataset, named: FewShotDataset) -> None:
    assert "The paper has no figures of umls-one." in made_up("lambda", umls).notes
    section = made_up("lambda", named)
    assert {each["row"] for each in section.data if each["published"] is not None} == {"λ = 0", "λ = 0.05"}
    assert "3-shot, paper: 0.290" in section.charts[0] and "1-shot, paper: 0.288" in section.charts[0]


def test_a_system_that_is_not_here_is_named(named: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "system_names", lambda: ["hire", "metar", "transe"])
    section = made_up("comparison", named)
    assert any(note.startswith("Not here: TransH, DistMult") for note in section.notes)


def test_the_page_is_whole_and_loads_nothing(named: FewShotDataset) -> None:
    sections = [made_up("comparison", named), made_up("lambda", named, training={"finished": False, "steps": 7})]
    sections += [context_statistics(named), experiments.complexity()]
    text = page("A <title>", sections, {"dataset": "<&>"}, ["ablation"])
    checked = Balanced()
    checked.feed(text)
    assert not checked.open and "A &lt;title&gt;" in text and "Not done yet: ablation." in text
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "Cut by the budget" in text and text.count("<svg") == 2 and "@import" not in text


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiRe in the experiments, made for a training of a second."""
    monkeypatch.setattr(experiments, "row_of", lambda _, recipe: Row("hire", small_settings("hire"), recipe))
    monkeypatch.setattr(experiments, "SYSTEMS", {"HiRe": ("hire", {})})


@pytest.mark.usefixtures("small")
def test_all_experiments_on_one_page(run: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--dataset", "umls-one", "--seeds", "1", "--recipe", "common", "-o", str(out)]
    planned = json.loads(run("reproduce", "all", *options, "--plan", "--json").stdout)
    assert not any(each["done"] for each in planned["runs"]) and not (out / RUNS).exists()
    assert all(each["expected"]["training"] > 0 for each in planned["runs"])
    nothing = run("reproduce", "lambda", *options, "--report")
    assert nothing.exit_code == 2 and "runs is done yet" in nothing.output
    assert not (out / "lambda-common.html").exists()
    result = run("reproduce", "all", *options)
    assert result.exit_code == 0, result.output
    assert "Ablation of HiRe's parts: 3-shot (MRR)" in result.output and "reproduction-common.html" in result.output
    text = (out / "reproduction-common.html").read_text("utf-8")
    assert all(f'id="{name}"' in text for name in NAMES) and "Not done yet" not in text
    trained = list((out / "runs").iterdir())
    variants = {"HiRe", *ABLATIONS, "N = 2", "N = 4", "N = 6", *(f"λ = {weight:g}" for weight in (0.01, 0.1, 0.2, 0.5))}
    assert len(trained) == len(variants)  # N = 1 and the best lambda are HiRe itself, lambda = 0 is without context
    assert (out / "ablation-common" / "comparison.tex").exists()
    content = json.loads((out / "reproduction-common.json").read_text())
    assert list(content["sections"]) == list(NAMES)
    one = run("reproduce", "lambda", *options, "--json")
    assert list(json.loads(one.stdout)["sections"]) == ["lambda"] and (out / "lambda-common.html").exists()
    # of the second seed nothing is there
    more = run("reproduce", "lambda", *options[:3], "2", *options[4:], "--report", "--json")
    assert more.exit_code == 0 and "have no metrics (not done yet)" in (out / "lambda-common.html").read_text()
    assert len(list((out / "runs").iterdir())) == len(variants)
    # the page of Table 2 leaves the files alone that `hire compare` writes into the same folder
    run("compare", "umls-one", "--systems", "popularity", "--shots", "1", "--seeds", "1", *options[-2:])
    own = (out / "comparison.json").read_bytes()
    for recipe, name in (("common", "table-2-common.html"), ("published", "table-2.html")):
        assert run("reproduce", "comparison", *options, "--recipe", recipe, "--report").exit_code == 0
        assert (out / name).exists() and own == (out / "comparison.json").read_bytes()


@pytest.mark.usefixtures("small")
def test_an_interruption_leaves_the_page_of_what_is_done(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Section:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "NAMES", ("complexity", "context-statistics"))
    monkeypatch.setattr(reproduce, "context_statistics", interrupted)
    result = run("reproduce", "all", "--dataset", "umls-one", "-o", tmp_path / "out")
    assert result.exit_code == 2 and "the same command continues" in result.output
    assert "Not done yet: context-statistics." in (tmp_path / "out" / "reproduction.html").read_text("utf-8")


def test_a_dataset_that_is_not_there(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("reproduce", "complexity")
    assert result.exit_code == 2 and "data/nell-one" in result.output and "hire data get" in result.output
