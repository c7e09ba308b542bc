"""Search entities by id or label: exact, prefix, substring and near matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.data.vocabulary import StringTable
from hire.errors import HireError
from hire.util.arrays import IntArray

MAX_MATCHES = 500  # ranked by how well they match
MAX_COMPARED = 2_000  # names compared with a misspelt one
MIN_SIMILARITY = 0.6  # from 0 to 1, of a near match
OF_A_WORD = 0.95  # a word that is as similar as a whole name counts a little less
WORD = re.compile(r"[^\W_]+")
WORD_STARTS = (" ", ":", "/", "#", "-")


class UnknownEntityError(HireError):
    """No entity has this name."""


class EntityNames:
    """Search over the names (ids in the source) and labels of entities; the index is built at the first search."""

    def __init__(self, graph: KnowledgeGraph, check: Callable[[], None] = lambda: None) -> None:
        self.graph = graph
        self.check = check  # called before every lookup: whoever asks for anything asks by name

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
        """The id of the entity with a name or, failing that, a label; an error with suggestions if there is none."""
        self.check()
        found = self.graph.entities.find(name)
        if found is not None:
            return found
        labelled = self._with_label(name)
        if len(labelled) == 1:
            return labelled[0]
        entities = self.graph.entities
        if labelled:
            ids = " or ".join(repr(entities[entity]) for entity in labelled[:3])
            raise HireError(f"several entities have the label {name!r}", remedy=f"use the id of one of them: {ids}")
        near = [entities[entity] for entity in self.search(name, 10)]
        near.sort(key=lambda other: -SequenceMatcher(None, name, other).ratio())
        remedy = f"did you mean {' or '.join(map(repr, near[:3]))}?" if near else "use the id or label of an entity"
        raise UnknownEntityError(f"unknown entity {name!r}", remedy=remedy)

    def ids(self, names: Sequence[str]) -> IntArray:
        """The ids of many entities by name or label; an error for the first unknown one."""
        self.check()
        found = self.graph.entities.ids(names)
        for i in np.flatnonzero(found < 0):
            found[i] = self.id(names[int(i)])
        return found

    def _with_label(self, label: str) -> list[int]:
        if self._labels is None or not label.strip():
            return []
        found = self._labels.containing(f"\n{_folded(label)}\n", MAX_MATCHES)
        return [entity for entity in found if self.graph.label(entity) == label] or found

    def search(self, text: str, k: int = 10) -> list[int]:
        """At most k entities whose name or label equals the text, starts with it, has a word that does, or contains it.

        Equally good matches are sorted by degree, highest first. If nothing matches, entities with similar names.
        """
        self.check()
        wanted = _folded(text.strip())
        if not wanted or k < 1:
            return []
        ranks: dict[int, int] = {}
        for names in self._texts:
            for entity in names.matches(wanted):
                rank = _match_rank(names.name(entity), wanted)
                ranks[entity] = min(rank, ranks.get(entity, rank))
        offsets = self.graph.offsets

        def order(entity: int) -> tuple[int, int, int]:
            return ranks[entity], int(offsets[entity] - offsets[entity + 1]), entity

        return sorted(ranks, key=order)[:k] or self._near(wanted)[:k]

    def _near(self, wanted: str) -> list[int]:
        """Entities whose name or label, or its last part, or a word of it, is similar to a text.

        Candidates contain one half of the text or, if there are none, one third: a text with one typo has an intact
        half, one with two typos an intact third.
        """
        matcher = SequenceMatcher(b=wanted)
        for count in (2, 3):
            pieces = [wanted[i * len(wanted) // count : (i + 1) * len(wanted) // count] for i in range(count)]
            similarity: dict[int, float] = {}
            for text in self._texts:
                containing = (text.containing(piece, MAX_COMPARED) for piece in pieces if len(piece) > 1)
                for entity in set(chain.from_iterable(containing)):
                    name = text.name(entity)
                    whole = {name, re.split("[:/#]", name)[-1]}
                    for part in whole.union(WORD.findall(name)):
                        matcher.set_seq1(part)
                        if matcher.real_quick_ratio() > MIN_SIMILARITY and matcher.quick_ratio() > MIN_SIMILARITY:
                            ratio = matcher.ratio() * (1.0 if part in whole else OF_A_WORD)
                            similarity[entity] = max(similarity.get(entity, 0.0), ratio)
            near = [entity for entity, ratio in similarity.items() if ratio > MIN_SIMILARITY]
            if near:
                return sorted(near, key=lambda entity: (-similarity[entity], entity))
        return []


def _match_rank(name: str, wanted: str) -> int:
    """How well a name matches a text it contains: 0 equal, 1 at its start, 2 at the start of a word, 3 elsewhere."""
    if name.startswith(wanted):
        return int(name != wanted)
    return 2 if any(f"{start}{wanted}" in name for start in WORD_STARTS) else 3


class _Text:
    """All strings of a table as one lower-case text, one per line: a search is a single scan."""

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

    def name(self, string_id: int) -> str:
        return self.text[self.offsets[string_id] + 1 : self.offsets[string_id + 1]].decode()

    def matches(self, needle: str) -> list[int]:
        """Strings that contain a needle; if there are too many, those that start with it come first."""
        found = self.containing(needle, MAX_MATCHES)
        if len(found) == MAX_MATCHES:
            found = self.containing(f"\n{needle}\n", 1) + self.containing(f"\n{needle}", MAX_MATCHES) + found
        return found

    def containing(self, needle: str, limit: int) -> list[int]:
        """The first strings that contain a needle; a line feed in it stands for the start or end of a string."""
        wanted = needle.encode("utf-8", "replace")
        found: list[int] = []
        at = self.text.find(wanted)
        while at >= 0 and len(found) < limit:
            found.append(int(np.searchsorted(self.offsets, at if needle[0] == "\n" else at - 1, side="right")) - 1)
            at = self.text.find(wanted, int(self.offsets[found[-1] + 1]))
        return found


def _folded(text: str) -> str:
    return text.lower().replace("_", " ").replace("\n", " ")
