"""Entities by what a person types: an id, a label, the beginning or a part of one, or nearly one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.data.vocabulary import StringTable
from hire.errors import HireError
from hire.util.arrays import IntArray

MOST_MATCHES = 500  # looked at before the best are chosen
MOST_COMPARED = 2_000  # names compared with a misspelt one
LEAST_LIKENESS = 0.6  # from 0 to 1, for a near match
WORD_STARTS = (" ", ":", "/", "#", "-")


class EntityNames:
    """The ids and labels of a graph's entities, searchable; nothing is made before the first search."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph

    @cached_property
    def _ids(self) -> _Text:
        return _Text(self.graph.entities)

    @cached_property
    def _labels(self) -> _Text | None:
        return None if self.graph.labels is None else _Text(self.graph.labels)

    @property
    def _texts(self) -> list[_Text]:
        return [text for text in (self._ids, self._labels) if text is not None]

    def id(self, name: str) -> int:
        """The number of the entity with an id or, failing that, with a label; an error with near matches if none."""
        found = self.graph.entities.find(name)
        if found is not None:
            return found
        labelled = self._with_label(name)
        if len(labelled) == 1:
            return labelled[0]
        entities = self.graph.entities
        if labelled:
            ids = " or ".join(repr(entities[number]) for number in labelled[:3])
            raise HireError(f"several entities are called {name!r}", remedy=f"say which by its id: {ids}")
        near = [entities[number] for number in self.search(name, 10)]
        near.sort(key=lambda other: -SequenceMatcher(None, name, other).ratio())
        remedy = (
            f"did you mean {' or '.join(map(repr, near[:3]))}?" if near else "give the id or the label of an entity"
        )
        raise HireError(f"unknown entity {name!r}", remedy=remedy)

    def ids(self, names: Sequence[str]) -> IntArray:
        """The numbers of many entities by id or label; an error for the first that is unknown."""
        found = self.graph.entities.ids(names)
        for place in np.flatnonzero(found < 0):
            found[place] = self.id(names[int(place)])
        return found

    def _with_label(self, label: str) -> list[int]:
        if self._labels is None or not _folded(label):
            return []
        alike = self._labels.holding(f"\n{_folded(label)}\n", MOST_MATCHES)
        return [number for number in alike if self.graph.label(number) == label] or alike

    def search(self, text: str, k: int = 10) -> list[int]:
        """At most k entities: whose id or label is the text, begins with it, has a word that does, or holds it.

        Among those that match alike, the best connected come first. Where there are none, those that resemble it.
        """
        wanted = _folded(text)
        if not wanted or k < 1:
            return []
        places: dict[int, int] = {}
        for names in self._texts:
            for entity in names.matches(wanted):
                place = _place(names.name(entity), wanted)
                places[entity] = min(place, places.get(entity, place))
        offsets = self.graph.offsets

        def order(entity: int) -> tuple[int, int, int]:
            return places[entity], int(offsets[entity] - offsets[entity + 1]), entity

        return sorted(places, key=order)[:k] or self._near(wanted)[:k]

    def _near(self, wanted: str) -> list[int]:
        """Entities whose id or label, or its last part, resembles a text.

        They are looked for by its halves, then by its thirds: a text with one slip has an unharmed half, one with two
        an unharmed third.
        """
        matcher = SequenceMatcher(b=wanted)
        for count in (2, 3):
            pieces = [wanted[i * len(wanted) // count : (i + 1) * len(wanted) // count] for i in range(count)]
            likeness: dict[int, float] = {}
            for text in self._texts:
                holding = (text.holding(piece, MOST_COMPARED) for piece in pieces if len(piece) > 1)
                for entity in set(chain.from_iterable(holding)):
                    name = text.name(entity)
                    for part in {name, re.split("[:/#]", name)[-1]}:
                        matcher.set_seq1(part)
                        if matcher.real_quick_ratio() > LEAST_LIKENESS and matcher.quick_ratio() > LEAST_LIKENESS:
                            likeness[entity] = max(likeness.get(entity, 0.0), matcher.ratio())
            near = [entity for entity, like in likeness.items() if like > LEAST_LIKENESS]
            if near:
                return sorted(near, key=lambda entity: (-likeness[entity], entity))
        return []


def _place(name: str, wanted: str) -> int:
    """How well a name that holds a text matches it: 0 as a whole, 1 at its beginning, 2 at that of a word, 3 within."""
    if name.startswith(wanted):
        return int(name != wanted)
    return 2 if any(f"{start}{wanted}" in name for start in WORD_STARTS) else 3


class _Text:
    """All strings of a table as one text in lower case, a line each: a search is one pass of the fastest kind."""

    def __init__(self, table: StringTable) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        lines = pc.utf8_lower(table.arrow())
        for character in "_\n":
            lines = pc.replace_substring(lines, character, " ")
        nothing, line_feed = (pa.scalar(text, pa.large_string()) for text in ("", "\n"))
        folded = StringTable.of(pc.binary_join_element_wise(lines, nothing, line_feed))
        self.offsets = folded.offsets  # [strings + 1]: the line feed before string i is at offsets[i]
        self.text = b"\n" + folded.text.tobytes()

    def name(self, number: int) -> str:
        return self.text[self.offsets[number] + 1 : self.offsets[number + 1]].decode()

    def matches(self, needle: str) -> list[int]:
        """Strings that hold a needle; if there are too many to look at, those that begin with it before others."""
        found = self.holding(needle, MOST_MATCHES)
        if len(found) == MOST_MATCHES:
            found = self.holding(f"\n{needle}\n", 1) + self.holding(f"\n{needle}", MOST_MATCHES) + found
        return found

    def holding(self, needle: str, most: int) -> list[int]:
        """The first strings that hold a needle; a line feed in it stands for the beginning or the end of a string."""
        wanted = needle.encode("utf-8", "replace")
        found: list[int] = []
        at = self.text.find(wanted)
        while at >= 0 and len(found) < most:
            found.append(int(np.searchsorted(self.offsets, at if needle[0] == "\n" else at - 1, side="right")) - 1)
            at = self.text.find(wanted, int(self.offsets[found[-1] + 1]))
        return found


def _folded(text: str) -> str:
    return text.strip().lower().replace("_", " ").replace("\n", " ")
