"""A cache that is bounded by the bytes it holds, not by the number of its entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

ENTRY_BYTES = 200  # of an entry besides its texts: the key, the node, the containers


class SizedCache(Generic[T]):
    """Calls of a function with their results, the least recently used forgotten first; safe to call from threads.

    `size_of` says how many bytes a result takes. A result larger than a tenth of the bound is not kept.
    """

    def __init__(self, function: Callable[..., T], max_bytes: int, size_of: Callable[[T], int]) -> None:
        self.function = function
        self.max_bytes = max_bytes
        self.size_of = size_of
        self.bytes = 0
        self._found: OrderedDict[tuple[Hashable, ...], tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *arguments: Hashable) -> T:
        """The result, computed unless it is remembered."""
        with self._lock:
            known = self._found.get(arguments)
            if known is not None:
                self._found.move_to_end(arguments)
                return known[0]
        result = self.function(*arguments)
        size = ENTRY_BYTES + self.size_of(result) + sum(text_bytes(part) for part in arguments)
        if size > self.max_bytes // 10:
            return result
        with self._lock:
            self.bytes += size - self._found.get(arguments, (result, 0))[1]
            self._found[arguments] = result, size
            while self.bytes > self.max_bytes:
                self.bytes -= self._found.popitem(last=False)[1][1]
        return result

    def __len__(self) -> int:
        return len(self._found)


def text_bytes(value: Any) -> int:
    """About how many bytes a text takes, each character as many as the widest; a small object otherwise."""
    return 60 + 4 * len(value) if isinstance(value, str) else 32
