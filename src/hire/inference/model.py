"""Use a trained system: teach it a relation with a few examples, by name, at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.evaluation.calibration import Calibration
from hire.inference.answers import Direction, Match
from hire.inference.candidates import CandidateFinder
from hire.inference.relation import TaughtRelation
from hire.inference.search import EntityNames
from hire.systems.base import FewShotSystem, Support, no_pairs
from hire.training.run import check_processes, load_system, read_calibration, read_config, read_run_settings
from hire.training.settings import TeachingSettings
from hire.util.arrays import IntArray
from hire.util.checksums import checksum_of
from hire.util.processes import in_turn
from hire.util.tensors import device_named

RECENT = 16  # relations that were taught last are kept: an accepted pair often leads back to one of them


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A trained system together with the dataset whose entities it knows."""

    system: FewShotSystem
    dataset: FewShotDataset
    calibrations: Mapping[int, Calibration] = field(default_factory=dict)  # by the number of references
    newcomers: int = 0  # the last entities, which were not there at training
    teaching: TeachingSettings = field(default_factory=TeachingSettings)
    across_graphs: bool = False  # whether the calibration was fitted to other graphs than this one
    _recent: OrderedDict[tuple[bytes | str | None, ...], TaughtRelation] = field(default_factory=OrderedDict)

    def __repr__(self) -> str:
        graph = self.dataset.graph
        size = f"{len(graph.entities):,} entities, {len(graph.triples):,} facts"
        confidence = "calibrated" if self.calibrations else "not calibrated"
        confidence += " across graphs" if self.across_graphs else ""
        return f"<TrainedModel {self.system.name} on {self.dataset.name}: {size}, {confidence}>"

    @cached_property
    def names(self) -> EntityNames:
        """The entities by id or label."""
        return EntityNames(self.dataset.graph, self.dataset.mapped.check)

    @cached_property
    def _candidate_finder(self) -> CandidateFinder:
        return CandidateFinder(self.dataset.graph, self.teaching.type_similarity)

    def search(self, text: str, k: int = 10) -> list[Match]:
        """At most k entities whose id or label is a text, begins with it, contains it or resembles it, best first."""
        graph = self.dataset.graph
        return [Match(graph.entities[entity], graph.label(entity)) for entity in self.names.search(text, k)]

    def with_entities(self, entities: Mapping[str, Iterable[tuple[str, str, Direction]]]) -> TrainedModel:
        """The model with entities that were not there at training, each given with a few facts of its own.

        A fact is (relation, other entity, "out") if the new entity is its head, and "in" if it is its tail. The new
        entities can be heads, and are candidates of whatever is taught afterwards.
        """
        triples = [
            (name, relation, other) if direction == "out" else (other, relation, name)
            for name, facts in entities.items()
            for relation, other, direction in facts
        ]
        return self.with_facts(triples, list(entities))

    def with_facts(self, triples: Sequence[tuple[str, str, str]], new: Sequence[str] = ()) -> TrainedModel:
        """The model with more facts (head, relation, tail); the new entities in them, if not given, are the unknown."""
        graph = self.dataset.graph
        if not new:
            new = list(dict.fromkeys(name for h, _, t in triples for name in (h, t) if name not in graph.entities))
        known = [name for name in new if name in graph.entities]
        if known:
            raise HireError(f"the entity {known[0]!r} already exists", remedy="give only new ones")
        ids = {name: entity for entity, name in enumerate(new, len(graph.entities))}

        def id_of(name: str) -> int:
            return ids[name] if name in ids else self.names.id(name)

        rows = [(id_of(h), graph.relations.id(r), id_of(t)) for h, r, t in triples]
        dataset = self.dataset.extended(new, np.array(rows, np.int32).reshape(-1, 3))
        system = self.system.extended(dataset.graph)
        newcomers = self.newcomers + len(new)
        return TrainedModel(system, dataset, self.calibrations, newcomers, self.teaching, self.across_graphs)

    def teach(
        self,
        references: Iterable[tuple[str, str]],
        name: str | None = None,
        *,
        candidates: Iterable[str] | None = None,
    ) -> TaughtRelation:
        """Learn a relation from (head, tail) examples, entities by id or label, at once, without training.

        If the dataset has a relation of that name, its facts are taken for known, and none of them is evidence. Unless
        candidates are given, answers are entities that have a type like that of an example's tail, where the graph
        knows types, or any entities; of more than 20,000 those whose edge types are most like those of the examples'
        tails.
        """
        pairs = self.pairs(references)
        if not len(pairs):
            raise HireError("a relation needs at least one example", remedy="give (head, tail) pairs")
        chosen = None if candidates is None else np.unique(self.names.ids(list(candidates)))
        return self.taught(pairs, name, chosen)

    def taught(
        self,
        references: IntArray,
        name: str | None = None,
        chosen: IntArray | None = None,
        rejected: IntArray | None = None,
    ) -> TaughtRelation:
        """As `teach`, by ids: references [shots, 2], chosen candidates if any, and pairs [n, 2] that are false."""
        references = np.ascontiguousarray(references, np.int64)
        false = no_pairs() if rejected is None else np.ascontiguousarray(rejected, np.int64)
        among = None if chosen is None else checksum_of([np.ascontiguousarray(chosen)])  # there may be millions
        key = (references.tobytes(), name, among, false.tobytes())
        found = self._recent.get(key) or self._learn(references, name, chosen, false)
        with suppress(KeyError):  # if another thread is faster
            self._recent[key] = found
            self._recent.move_to_end(key)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return found

    def forget(self) -> None:
        """Give up the relations that were taught last: they and the model would keep one another in memory."""
        self._recent.clear()

    def _learn(
        self, references: IntArray, name: str | None, chosen: IntArray | None, rejected: IntArray
    ) -> TaughtRelation:
        relation = None if name is None else self.dataset.graph.relations.find(name)
        candidates = self.similar_entities(references[:, 1], relation) if chosen is None else chosen
        among = None if len(candidates) == len(self.dataset.graph.entities) else candidates
        state = self.system.adapt(Support(references, among, rejected, relation))
        return TaughtRelation(self, references, candidates, state, name, chosen, rejected)

    def similar_entities(self, entities: IntArray, hidden: int | None = None) -> IntArray:
        """The entities that are similar to some examples, and all new ones, sorted."""
        count = len(self.dataset.graph.entities)
        found = self._candidate_finder.entities(entities, self.teaching.max_candidates, hidden)
        return np.union1d(found, np.arange(count - self.newcomers, count))

    def pairs(self, names: Iterable[tuple[str, str]]) -> IntArray:
        """Pairs [n, 2] of entities by id or label."""
        flat = [self.names.id(name) for pair in names for name in pair]
        return np.array(flat, np.int64).reshape(-1, 2)


def load(run: str | Path, dataset: str | Path | None = None, *, device: torch.device | str = "auto") -> TrainedModel:
    """The model of a run with its dataset, which is looked for where it was unless another place is given."""
    run = Path(run)
    opened = in_turn(lambda: open_dataset(dataset if dataset is not None else read_config(run)["dataset"]["source"]))
    settings, calibrations = read_run_settings(run), read_calibration(run)
    check_processes(opened, settings, calibrations=repr(calibrations))
    system = load_system(run, opened, device_named(device))
    return TrainedModel(system, opened, calibrations, teaching=settings.teaching)
