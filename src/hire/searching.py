"""Entities by what a person types: an id, a label, the beginning or a part of one, or nearly one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np

from hire.errors import HireError
from hire.graph import KnowledgeGraph
from hire.vocabulary import IntArray, StringTable

MOST_OF_A_KIND = 200  # matches looked at before the best connected of them are chosen
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

    def number(self, name: str) -> int:
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
        near = [entities[number] for number in self.search(name, 3)]
        remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else None
        raise HireError(f"unknown entity {name!r}", remedy=remedy)

    def numbers(self, names: Sequence[str]) -> IntArray:
        """The numbers of many entities by id or label; an error for the first that is unknown."""
        found = self.graph.entities.numbers(names)
        for place in np.flatnonzero(found < 0):
            found[place] = self.number(names[int(place)])
        return found

    def _with_label(self, label: str) -> list[int]:
        if self._labels is None or not _folded(label):
            return []
        alike = self._labels.holding(f"\n{_folded(label)}\n", MOST_OF_A_KIND)
        return [number for number in alike if self.graph.label(number) == label] or alike

    def search(self, text: str, k: int = 10) -> list[int]:
        """At most k entities: whose id or label is the text, begins with it, has a word that does, holds it, is near.

        Among those that match alike, the best connected come first.
        """
        wanted = _folded(text)
        if not wanted or k < 1:
            return []
        found: dict[int, None] = {}
        needles = (f"\n{wanted}\n", f"\n{wanted}", *(f"{start}{wanted}" for start in WORD_STARTS), wanted)
        stages = [needles[:1], needles[1:2], needles[2:-1], needles[-1:]]
        texts = [text for text in self._texts if text.holds(wanted)]
        for stage in stages:
            if len(found) >= k or not texts:
                break
            alike = {
                entity: None for text in texts for needle in stage for entity in text.holding(needle, MOST_OF_A_KIND)
            }
            degrees = self.graph.offsets
            found |= dict.fromkeys(sorted(alike, key=lambda entity: int(degrees[entity] - degrees[entity + 1])))
        if len(found) < k:
            found |= dict.fromkeys(self._near(wanted))
        return list(found)[:k]

    def _near(self, wanted: str) -> Iterable[int]:
        """Entities whose id or label, or its last part, resembles a text: it has one of the text's halves or thirds.

        A text with one slip has an unharmed half, one with two an unharmed third.
        """
        pieces = [wanted[i * len(wanted) // n : (i + 1) * len(wanted) // n] for n in (2, 3) for i in range(n)]
        likeness: dict[int, float] = {}
        matcher = SequenceMatcher(b=wanted)
        for text in self._texts:
            compared = {entity for piece in pieces if len(piece) > 1 for entity in text.holding(piece, MOST_COMPARED)}
            for entity in compared:
                name = text.name(entity)
                for part in {name, re.split("[:/#]", name)[-1]}:
                    matcher.set_seq1(part)
                    if matcher.real_quick_ratio() > LEAST_LIKENESS and matcher.quick_ratio() > LEAST_LIKENESS:
                        likeness[entity] = max(likeness.get(entity, 0.0), matcher.ratio())
        near = [entity for entity, like in likeness.items() if like > LEAST_LIKENESS]
        return sorted(near, key=lambda entity: (-likeness[entity], entity))


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

    def holds(self, needle: str) -> bool:
        return needle.encode("utf-8", "replace") in self.text

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
