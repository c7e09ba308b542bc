from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hire.errors import HireError
from hire.training.schema import check_config

RIGHT = {
    "system": "hire",
    "settings": {},
    "teaching": {},
    "dataset": {"name": "a", "source": "b", "fingerprint": "c"},
    "embeddings": None,
}


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"a": [found]}
    return found


def test_what_is_right_passes() -> None:
    check_config(RIGHT, Path("config.json"))
    check_config(RIGHT | {"embeddings": "file"}, Path("config.json"))


@pytest.mark.parametrize(
    "change",
    [
        {"system": 3},
        {"system": None},
        {"settings": []},
        {"teaching": "x"},
        {"dataset": {}},
        {"dataset": {"name": "a", "source": 1, "fingerprint": "c"}},
        {"embeddings": 5},
        {"settings": nested(500)},
    ],
)
def test_what_is_wrong_is_told_with_its_file(change: dict[str, Any]) -> None:
    with pytest.raises(HireError) as caught:
        check_config(RIGHT | change, Path("config.json"))
    assert caught.value.problems[0].file == "config.json" and caught.value.problems[0].remedy == "train again"


@pytest.mark.parametrize("config", [None, 3, [], "x", {}, {"system": "hire"}])
def test_what_is_no_configuration_is_told(config: Any) -> None:
    with pytest.raises(HireError):
        check_config(config, Path("config.json"))
