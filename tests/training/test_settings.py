from __future__ import annotations

import json
from pathlib import Path

import pytest

from hire.errors import HireError
from hire.systems.registry import BUILT_IN, describe, system_names
from hire.training.settings import PRESETS, RunSettings, preset, read_settings
from hire.util.settings import items, parse_assignment, paths


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json(name: str) -> None:
    settings = preset(name)
    assert RunSettings.from_plain(json.loads(json.dumps(settings.to_plain()))) == settings


@pytest.mark.parametrize("name", system_names())
def test_every_setting_of_every_system_can_be_set(name: str) -> None:
    settings = preset("levels") if name == "ensemble" else RunSettings.of(name)
    for path, value in items(settings.settings):
        if isinstance(value, bool):
            other: object = not value
        elif isinstance(value, int | float):
            other = value + 1
        elif isinstance(value, tuple):
            other = (2,)
        else:
            continue
        assert dict(items(settings.changed({path: other}).settings))[path] == other
    assert describe(name)["settings"].keys() == set(paths(RunSettings.of(name).settings))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_setting_says_what_it_is(name: str) -> None:
    found = describe(name)
    assert found["about_settings"].keys() == found["settings"].keys() and all(found["about_settings"].values())


def test_settings_of_members_may_be_named_in_short() -> None:
    settings = preset("levels")
    one = settings.changed({"hire.training.steps": 7})
    assert one == settings.changed({"members.hire.settings.training.steps": 7}) != settings
    both = settings.changed({"training.steps": 7}).settings.members
    assert both["hire"].settings.training.steps == both["path"].settings.training.steps == 7
    assert settings.changed({"evidence.max_degree": 3}).settings.members["path"].settings.evidence.max_degree == 3
    assert settings.changed({"path.weight": 0.5}).settings.members["path"].weight == 0.5
    assert settings.changed({"teaching.max_candidates": 9}).teaching.max_candidates == 9
    seeded = dict(items(settings.seeded(4).settings))
    assert {value for path, value in seeded.items() if path.endswith(".seed")} == {4}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("training.stepz", 3, "unknown setting 'training.stepz'"),
        ("steps", 3, "unknown setting 'steps'"),
        ("training", 3, "is a section"),
        ("training.steps", "three", "cannot be 'three'"),
        ("training.steps", 3.5, "cannot be 3.5"),
        ("training.steps", True, "cannot be True"),
        ("model.decoder", "mtransx", "cannot be 'mtransx'"),
        ("training.shots", ["a"], "cannot be"),
        ("model.residual", 1, "cannot be 1"),
    ],
)
def test_what_cannot_be_set_is_told(path: str, value: object, message: str) -> None:
    with pytest.raises(HireError, match=message) as caught:
        preset("fast").changed({path: value})
    assert caught.value.problems[0].remedy


def test_near_names_are_suggested() -> None:
    for path, near in (
        ("training.stepz", "training.steps"),
        ("steps", "training.steps"),
        ("optimiser.clip", "optimizer.clip"),
    ):
        with pytest.raises(HireError) as caught:
            preset("fast").changed({path: 1})
        assert near in str(caught.value.problems[0].remedy)


def test_values_are_written_as_in_toml_or_plain() -> None:
    assert parse_assignment("training.steps=200") == ("training.steps", 200)
    assert parse_assignment("training.shots = [1, 3]") == ("training.shots", [1, 3])
    assert parse_assignment("model.decoder=mtransh") == ("model.decoder", "mtransh")
    assert parse_assignment("optimizer.ema=none") == ("optimizer.ema", None)
    assert parse_assignment("model.residual=false") == ("model.residual", False)


def test_a_file_builds_on_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "levels"\n[members.hire.training]\nsteps = 5\n[members.path]\nweight = 0.5\n')
    settings = read_settings(file)
    assert settings == preset("levels").changed({"hire.training.steps": 5, "path.weight": 0.5})
    file.write_text('system = "path"\n[evidence]\ntrain_facts = false\n[teaching]\nmax_candidates = 5\n')
    assert read_settings(file) == RunSettings.of("path").changed(
        {"evidence.train_facts": False, "teaching.max_candidates": 5}
    )
    for text, message in (
        ("[training]\nsteps = 3\n", "names no system"),
        ('system = "hire"\n[training]\nstepz = 3\n', "unknown setting 'training.stepz'"),
        ('system = "hire"\n[', "is not valid TOML"),
        ('preset = "bets"', "unknown preset"),
    ):
        file.write_text(text)
        with pytest.raises(HireError, match=message) as caught:
            read_settings(file)
        assert caught.value.problems[0].file == str(file)


def test_a_recipe_is_a_preset_or_changes_of_the_defaults() -> None:
    assert RunSettings.of_recipe("hire", "published") == preset("paper")
    assert RunSettings.of_recipe("hire", "common") == preset("fast") == RunSettings.of("hire")
    assert RunSettings.of_recipe("metar", "published").settings.model.loss == "margin"
    assert RunSettings.of_recipe("popularity", "published") == RunSettings.of("popularity")
