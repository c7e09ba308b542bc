"""Several systems as one: each adapts by itself, and their logits are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.systems.base import CAPABILITIES, Capability, FewShotSystem, Resources, Support
from hire.systems.evidence import Evidence
from hire.systems.registry import system_class
from hire.util.arrays import IntArray
from hire.util.ranges import Weight
from hire.util.settings import Settings, changed, from_plain, paths, unknown

GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)  # weights that are tried
ROUNDS = 2  # over all weights that are chosen


@dataclass(frozen=True)
class MemberSettings(Settings):
    """One system of an ensemble."""

    system: str
    weight: Weight | None = None  # of its logits in the sum; None to choose it on the dev tasks
    settings: Any = None  # of the system

    @classmethod
    def from_plain(cls, content: Mapping[str, Any], where: str = "") -> MemberSettings:
        """With the settings of the system that is named; the name of the member is that of its system by default."""
        given = dict(content)
        system = given.pop("system", where.rpartition(".")[2])
        if not isinstance(system, str):
            raise HireError(f"the setting '{where}.system' cannot be {system!r}", remedy="give the name of a system")
        nested = given.pop("settings", {})
        if not isinstance(nested, Mapping):
            raise HireError(f"the setting '{where}.settings' is a section", remedy=f"set {where}.settings.NAME")
        weight = changed(cls(system), "weight", given.pop("weight", None)).weight
        return cls(system, weight, from_plain(system_class(system).settings_type, {**nested, **given}, where))


@dataclass(frozen=True)
class EnsembleSettings(Settings):
    """Which systems, and how much each counts.

    Paths may leave out `members` and `settings`: hire.training.steps. Without a member's name, training.steps means
    that of all members that have it.
    """

    members: Mapping[str, MemberSettings] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, content: Mapping[str, Any], where: str = "") -> EnsembleSettings:
        """The members, each with the settings of its system."""
        strange = [name for name in content if name != "members"]
        if strange:
            raise unknown(strange[0], ["members"])
        prefix = f"{where}.members" if where else "members"
        members = content.get("members", {})
        if not isinstance(members, Mapping) or not all(isinstance(part, Mapping) for part in members.values()):
            raise HireError(f"the setting {prefix!r} is not a section of sections", remedy="see the preset levels")
        return cls({name: MemberSettings.from_plain(part, f"{prefix}.{name}") for name, part in members.items()})

    def short_paths(self) -> list[str]:
        """The paths of all settings, without `members` and `settings`."""
        own = [f"{name}.weight" for name in self.members]
        return own + [f"{name}.{path}" for name, of in self.members.items() for path in paths(of.settings)]

    def routes(self, path: Sequence[str]) -> list[list[str]]:
        """The paths in full that one stands for."""
        name, *rest = path
        if name == "members":
            return [list(path)]
        if name in self.members and rest:
            inside = rest if rest[0] in ("system", "weight", "settings") else ["settings", *rest]
            return [["members", name, *inside]]
        wanted = ".".join(path)
        having = [member for member, of in self.members.items() if wanted in paths(of.settings)]
        return [["members", member, "settings", *path] for member in having]


class Ensemble(FewShotSystem):
    """The weighted sum of its members' logits."""

    name = "ensemble"
    summary = "the weighted sum of other systems' logits; the weights are set, or chosen on the dev tasks"
    settings_type: ClassVar[type[EnsembleSettings]] = EnsembleSettings

    def __init__(self, members: Mapping[str, FewShotSystem], weights: Mapping[str, float]) -> None:
        if not members:
            raise HireError("an ensemble needs members", remedy="name some, as in the preset levels")
        self.members = dict(members)
        self.weights = dict(weights)
        self.capabilities = frozenset(capability for capability in CAPABILITIES if self._has(capability))

    def _has(self, capability: Capability) -> bool:
        have = [capability in member.capabilities for member in self.members.values()]
        return all(have) if capability == "new-entities" else any(have)

    @classmethod
    def parts(cls, settings: EnsembleSettings) -> dict[str, tuple[str, Any]]:
        """The members, which are trained first."""
        return {name: (member.system, member.settings) for name, member in settings.members.items()}

    @classmethod
    def without_training(cls, dataset: FewShotDataset, settings: EnsembleSettings, resources: Resources) -> Ensemble:
        """The trained members; weights that are not set are chosen on the dev tasks."""
        given = {name: member.weight for name, member in settings.members.items()}
        weights = {name: 1.0 if weight is None else weight for name, weight in given.items()}
        chosen = [name for name, weight in given.items() if weight is None]
        if len(chosen) == len(given):
            chosen = chosen[1:]  # the first is the measure of the others
        for _ in range(ROUNDS if len(chosen) > 1 else 1):
            for name in chosen:
                tried = {weight: resources.evaluate(cls(resources.parts, {**weights, name: weight})) for weight in GRID}
                weights[name] = max(tried, key=lambda weight: tried[weight])
        return cls(resources.parts, weights)

    def tensors(self) -> dict[str, Tensor]:
        """The weights in the sum, and the tensors of each member, with its name before theirs."""
        found = {"weights": torch.tensor([self.weights[name] for name in self.members], dtype=torch.float64)}
        for name, member in self.members.items():
            found |= {f"{name}.{part}": tensor for part, tensor in member.tensors().items()}
        return found

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: EnsembleSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> Ensemble:
        """With the members that were saved."""
        members = {}
        for name, member in settings.members.items():
            own = {part.removeprefix(f"{name}."): t for part, t in tensors.items() if part.startswith(f"{name}.")}
            members[name] = system_class(member.system).restore(dataset, member.settings, own, device)
        return cls(members, dict(zip(members, tensors["weights"].tolist(), strict=True)))

    def adapt(self, support: Support) -> dict[str, Any]:
        """The state of each member."""
        return {name: member.adapt(support) for name, member in self.members.items()}

    def score(self, state: dict[str, Any], heads: IntArray, tails: IntArray) -> Tensor:
        """The sum of logits, [heads, tails]."""
        return self._sum({name: member.score(state[name], heads, tails) for name, member in self.members.items()})

    def score_many(self, state: dict[str, Any], heads: IntArray, tails: IntArray) -> Tensor:
        """The same, each member in its own way."""
        return self._sum({name: member.score_many(state[name], heads, tails) for name, member in self.members.items()})

    def _sum(self, scores: Mapping[str, Tensor]) -> Tensor:
        return reduce(torch.add, (self._factor(name) * of_member for name, of_member in scores.items()))

    def _factor(self, name: str) -> float:
        return self.weights[name] * self.members[name].scale

    def explain(self, state: dict[str, Any], head: int, tail: int, *, most: int = 10) -> Evidence:
        """The evidence of the weightiest member that gives any, in the ensemble's logits."""
        able = [name for name, member in self.members.items() if "explain" in member.capabilities]
        if not able:
            raise self._cannot("explain")
        name = max(able, key=self._factor)
        found = self.members[name].explain(state[name], head, tail, most=most).scaled(self._factor(name))
        return replace(found, score=self.score(state, np.array([head]), np.array([tail])).item())

    def vectors(self, entities: IntArray) -> Tensor:
        """The vectors of the first member that has any."""
        able = [member for member in self.members.values() if "vectors" in member.capabilities]
        if not able:
            raise self._cannot("vectors")
        return able[0].vectors(entities)

    def extended(self, graph: KnowledgeGraph) -> Ensemble:
        """All members with the new entities."""
        return Ensemble({name: member.extended(graph) for name, member in self.members.items()}, self.weights)
