"""The types of entities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hire.data.vocabulary import Vocabulary
from hire.util.arrays import IntArray, distinct, expand_rows, row_offsets
from hire.util.compiled import compiled


@dataclass(frozen=True)
class Types:
    """The types of entities; an entity may have none, one or several."""

    names: Vocabulary
    offsets: NDArray[np.int64]  # [entities + 1]: entity e has members[offsets[e]:offsets[e + 1]]
    members: IntArray  # [memberships]: type ids

    @classmethod
    def of(cls, names: Vocabulary, entities: IntArray, types: IntArray, entity_count: int) -> Types:
        """Types from (entity, type) pairs, in any order; duplicates are ignored."""
        pairs = distinct(entities.astype(np.int64) * len(names) + types)
        owners, members = np.divmod(pairs, max(1, len(names)))
        return cls(names, row_offsets(owners, entity_count), members.astype(np.int32))

    def of_entity(self, entity: int) -> IntArray:
        """The ids of an entity's types."""
        return self.members[self.offsets[entity] : self.offsets[entity + 1]]

    def of_entities(self, entities: IntArray) -> IntArray:
        """The ids of all types that any of the entities has, sorted."""
        positions, _ = expand_rows(self.offsets, distinct(entities))
        return distinct(self.members[positions])

    @cached_property
    def by_type(self) -> tuple[NDArray[np.int64], IntArray]:
        """The entities of each type, in compressed rows: offsets [types + 1], and sorted entities."""
        offsets = row_offsets(self.members, len(self.names))
        entities = np.empty(len(self.members), np.int32)
        _sort_by_type(self.offsets, self.members, offsets[:-1].copy(), entities)
        return offsets, entities

    def entities_with(self, types: IntArray) -> NDArray[np.int32]:
        """All entities that have at least one of the types, sorted."""
        wanted = np.zeros(len(self.names), bool)
        wanted[types] = True
        found = np.empty(len(self.offsets) - 1, np.int32)
        return found[: _find_entities(self.offsets, self.members, wanted, found)].copy()


@compiled
def _find_entities(offsets: IntArray, members: IntArray, wanted: NDArray[np.bool_], found: IntArray) -> int:
    """Write the entities that have a wanted type [types], and return how many there are."""
    count = 0
    for entity in range(len(offsets) - 1):
        has_one = False
        for position in range(offsets[entity], offsets[entity + 1]):
            has_one |= wanted[members[position]]
        found[count] = entity  # overwritten by the next, unless it counts
        count += has_one
    return count


@compiled
def _sort_by_type(offsets: IntArray, members: IntArray, next_of: IntArray, entities: IntArray) -> None:
    """Write the entities of each type where they belong; `next_of` [types] is where the next one of a type goes."""
    for entity in range(len(offsets) - 1):
        for position in range(offsets[entity], offsets[entity + 1]):
            of_type = members[position]
            entities[next_of[of_type]] = entity
            next_of[of_type] += 1
