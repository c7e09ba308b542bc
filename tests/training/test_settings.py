from __future__ import annotations

import json
from pathlib import Path

import pytest

from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.sampling.task_pool import TaskShares
from hire.systems.hire.settings import HireModelSettings
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
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, float):
            other = value / 2 or 0.5
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
        ("training.steps", 0, "cannot be 0"),
        ("model.dimension", 10**9, "cannot be 1000000000"),
        ("training.seed", 2**63, "cannot be 9223372036854775808"),
        ("model.margin", float("nan"), "cannot be nan"),
        ("optimizer.learning_rate", float("inf"), "cannot be inf"),
        ("model.context_weight", 1e38, "cannot be 1e\\+38"),
        ("model.drop_path", 1.0, "cannot be 1.0"),
        ("training.shots", [1, 0], "cannot be"),
        ("model.margin", 10**400, "cannot be 1000"),
        ("training.shares", {"train": 0, "background": 0, "types": 0}, "all shares of tasks are 0"),
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
    assert RunSettings.of_recipe("hire", "common") == RunSettings.of("hire")
    assert preset("fast") == RunSettings.of("hire").changed({"model.residual_shots": 2})
    assert RunSettings.of_recipe("metar", "published").settings.model.loss == "margin"
    assert RunSettings.of_recipe("popularity", "published") == RunSettings.of("popularity")


def test_python_is_checked_like_files() -> None:
    for make in (
        lambda: HireModelSettings(dimension=0),
        lambda: EmbeddingSettings(learning_rate=float("nan")),
        lambda: TaskShares(0, 0, 0),
    ):
        with pytest.raises(HireError) as caught:
            make()
        assert caught.value.problems[0].remedy


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_number_has_a_range(name: str) -> None:
    found = describe(name)
    for path, value in found["settings"].items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        number = number or (isinstance(value, list) and isinstance(value[0], int))
        assert not number or any(word in found["allowed"][path] for word in ("from ", "above ")), path


@pytest.mark.parametrize(
    "members", [3, [], {"hire": 3}, {"hire": {"settings": 3}}, {"hire": {"weight": "x"}}, {"hire": {"weight": 1e99}}]
)
def test_members_that_are_none_are_told(members: object) -> None:
    with pytest.raises(HireError):
        RunSettings.of("ensemble", {"members": members})
