from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hire.util.cache import SizedCache, text_bytes


def test_what_is_remembered_is_bounded_by_bytes_and_least_recently_used_goes_first() -> None:
    asked: list[str] = []

    def find(text: str) -> str:
        asked.append(text)
        return text * 10

    cache = SizedCache(find, 100_000, text_bytes)
    for number in range(1_000):
        assert cache(str(number)) == str(number) * 10
        assert cache("0") == "0" * 10
        assert cache.bytes <= 100_000
    assert asked.count("0") == 1 and 100 < len(cache) < 500
    cache("1")
    assert asked.count("1") == 2  # forgotten long ago


def test_what_is_too_large_is_not_kept() -> None:
    cache = SizedCache(lambda text: text, 100_000, text_bytes)
    assert len(cache("x" * 10_000)) == 10_000 and len(cache) == cache.bytes == 0


def test_threads_may_ask_at_once() -> None:
    cache = SizedCache(lambda number: str(number), 20_000, text_bytes)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cache, [number % 300 for number in range(10_000)]))
    assert found == [str(number % 300) for number in range(10_000)]
    assert cache.bytes <= 20_000 and cache.bytes == sum(size for _, size in cache._found.values())
