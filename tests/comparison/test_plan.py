from __future__ import annotations

from pathlib import Path

import pytest

from hire.comparison.plan import Row, jobs_of, one_model_per_shots, rows_of
from hire.errors import HireError
from hire.systems.registry import system_names
from hire.training.settings import RunSettings, preset


def test_all_systems_but_ensembles() -> None:
    rows = rows_of(["all"], ["common"])
    assert [row.name for row in rows] == [name for name in system_names() if name != "ensemble"]
    assert {row.recipe for row in rows} == {"common", "default"}


def test_a_row_is_a_system_in_a_recipe_a_preset_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "fast"\n[model]\ndecoder = "mtransh"\n')
    rows = rows_of(["hire", "popularity", "levels", str(file), "hire"], ["published", "common"])
    assert [row.key for row in rows] == [
        "hire (published)",
        "hire (common)",
        "popularity (default)",
        "levels (preset)",
        "mine (mine.toml)",
    ]
    assert rows[0].settings == preset("paper") and rows[1].settings == RunSettings.of("hire")
    assert rows[4].settings.settings.model.decoder == "mtransh"
    for name, problem in (("hiro", "did you mean 'hire'"), ("ensemble", "the preset levels")):
        with pytest.raises(HireError) as caught:
            rows_of([name], ["common"])
        assert problem in str(caught.value.problems[0].remedy)


def test_a_model_for_each_number_of_references_only_where_it_is_trained_for_one() -> None:
    assert not one_model_per_shots(preset("fast")) and one_model_per_shots(preset("paper"))
    assert not one_model_per_shots(preset("levels")) and not one_model_per_shots(RunSettings.of("transe"))
    published = jobs_of(rows_of(["hire"], ["published"]), (1, 5), 1, "graph")
    assert [job.shots for job in published] == [(1,), (5,)]
    assert [job.settings.settings.training.shots for job in published] == [(1,), (5,)]
    assert [job.shots for job in jobs_of(rows_of(["hire"], ["common"]), (1, 5), 1, "graph")] == [(1, 5)]


def test_seeds_come_one_after_the_other_and_what_has_none_is_run_once() -> None:
    jobs = jobs_of(rows_of(["popularity", "metar"], ["common"]), (1,), 3, "graph")
    assert [(job.row.name, job.seed) for job in jobs] == [("popularity", 0), ("metar", 0), ("metar", 1), ("metar", 2)]
    assert [job.settings.settings.training.seed for job in jobs[1:]] == [0, 1, 2]


def test_equal_settings_on_equal_graphs_share_a_folder() -> None:
    usual = RunSettings.of("hire")
    other = usual.changed({"model.decoder": "mtranse"})
    rows = [*rows_of(["hire"], ["common"]), Row("same", usual), Row("other", other)]
    names = [job.name for job in jobs_of(rows, (1,), 1, "graph")]
    assert names[0] == names[1] != names[2]
    assert jobs_of(rows[:1], (1,), 1, "other")[0].name != names[0]


def test_the_name_of_a_folder_is_made_of_what_is_not_usual() -> None:
    (usual,) = jobs_of([Row("hire", RunSettings.of("hire"))], (1,), 1, "graph")
    (named,) = jobs_of([Row("hire", RunSettings.of("hire").changed({"model.margin": 1.0}))], (1,), 1, "graph")
    (other,) = jobs_of([Row("hire", RunSettings.of("hire").changed({"model.margin": 2.0}))], (1,), 1, "graph")
    assert usual.name == named.name != other.name
