"""A seeded mutator: bytes, JSON and numbers as nobody would write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

BYTES = (
    *(b"\x00", b"\xff", b"\n", b"\r\n", b"\t", b'"', b"\\", b"<", b">", b"{", b"}", b"[", b"]", b",", b"\xef\xbb\xbf"),
    *(b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"NaN", b"1e999", b"-1", b"9" * 30, b"null", b"\\ud800", b"<<(", b"'''"),
    *(b"../", b"%00", b"&amp;", b"<!--", b"@prefix", b"_:b", b'"""', b"\xc2\x85", b"\x1f\x8b", b"(/\xb5\xfd"),
)
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**20), 0.5, 1e-300, 1e300)
NUMBERS_AS_TEXT = ("nan", "inf", "-inf", "1e999", "-0", "1_000", "٣", "0x10", "9" * 5_000, "", " ", "1,5", "--", "\x00")
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    *(None, True, False, "", "x", "\ud800", "a\tb", "\x00", [], {}, [[]], {"": None}, [None] * 50, "9" * 500),
    *(float("nan"), float("inf"), float("-inf")),
)


def mutated(content: bytes, random: Random, most: int = 4) -> bytes:
    """The same with a few changes."""
    for _ in range(random.randint(1, most)):
        content = random.choice(CHANGES)(content, random)
    return content


def _place(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.choice((1, 2, 8, 64)))


def _flip(content: bytes, random: Random) -> bytes:
    if not content:
        return b"\x00"
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]


def _insert(content: bytes, random: Random) -> bytes:
    at, _ = _place(content, random)
    return content[:at] + random.choice(BYTES) + content[at:]


def _delete(content: bytes, random: Random) -> bytes:
    start, end = _place(content, random)
    return content[:start] + content[end:]


def _replace(content: bytes, random: Random) -> bytes:
    start, end = _place(content, random)
    return content[:start] + random.choice(BYTES) + content[end:]


def _repeat(content: bytes, random: Random) -> bytes:
    start, end = _place(content, random)
    return content[:end] + content[start:end] * random.choice((1, 10, 200)) + content[end:]


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randint(0, len(content))]


CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (_flip, _flip, _insert, _delete, _replace, _repeat, _truncate)


def mutated_json(content: Any, random: Random, most: int = 3) -> Any:
    """Plain data with a few of its values or keys replaced, removed or added."""
    found = json.loads(json.dumps(content))
    for _ in range(random.randint(1, most)):
        found = _other(found, random)
    return found


def _other(content: Any, random: Random) -> Any:
    holders: list[Any] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict | list) and value:
            holders.append(value)
            for part in value.values() if isinstance(value, dict) else value:
                collect(part)

    collect(content)
    if not holders or random.random() < 0.02:
        return _value(random)
    holder = random.choice(holders)
    key: Any = random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    change = random.random()
    if change < 0.7:
        holder[key] = _value(random)
    elif change < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[random.choice(("x", "", "weight", "members", "system", "9" * 30))] = _value(random)
    else:
        holder.insert(key, _value(random))
    return content


def _value(random: Random) -> Any:
    return deepcopy(random.choice(VALUES))
