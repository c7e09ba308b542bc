from __future__ import annotations

import ctypes

import pytest

from hire.util import memory
from hire.util.memory import give_back_memory


def test_it_is_asked_for_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    give_back_memory()
    assert asked == [0]


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    memory._trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    try:
        give_back_memory()
        assert memory._trim() is None
    finally:
        memory._trim.cache_clear()
