"""A trained HiRe: its network, its tables, and its adaptation to the support set of a relation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.embeddings.distances import distance, squared_distances
from hire.errors import HireError
from hire.systems.base import Capability, FewShotSystem, LastTails, Recipe, Resources, Support, as_tensor, in_blocks
from hire.systems.episodic.drawing import adaptation_negatives, first_embeddings
from hire.systems.hire.entity import MetaRelation, Vectors, projected_tails, translated
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireSettings
from hire.util.arrays import IntArray

if TYPE_CHECKING:
    from hire.systems.hire.trainer import HireTrainer


class HireState(NamedTuple):
    """What a trained HiRe knows about a relation."""

    relation: MetaRelation
    projected: LastTails[Tensor]  # t_perp of the latest tails, [tails, dim]


class Hire(FewShotSystem):
    """A trained HiRe: its network and its tables."""

    name = "hire"
    summary = "context, triplet and entity level, refined by MAML on the references"
    paper = "Wu et al., Hierarchical Relational Learning for Few-Shot Knowledge Graph Completion, ICLR 2023"
    settings_type: ClassVar[type[HireSettings]] = HireSettings
    capabilities: frozenset[Capability] = frozenset({"vectors", "new-entities"})
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {"published": "paper", "common": {}}

    def __init__(self, network: HireNetwork, entities: Tensor, projections: Tensor, seed: int = 0) -> None:
        self.network = network
        self.entities = entities  # [entities, dim]
        self.projections = projections  # [entities, dim]
        self.seed = seed  # of the negatives that references are refined against
        self.scale = network.log_temperature.exp().item()

    @classmethod
    def trainer(cls, dataset: FewShotDataset, settings: HireSettings, resources: Resources) -> HireTrainer:
        """A trainer that starts from pre-trained or random embeddings."""
        from hire.systems.hire.trainer import HireTrainer

        dimension = settings.model.dimension
        embeddings = first_embeddings(
            dataset, settings.training, dimension, lambda: resources.embeddings(settings.embedding)
        )
        return HireTrainer(dataset, embeddings, settings, resources.device)

    def tensors(self) -> dict[str, Tensor]:
        """The tables and the weights of the network."""
        network = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return {"entities": self.entities, "projections": self.projections, **network}

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: HireSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> Hire:
        """A model with saved weights."""
        network = HireNetwork(settings.model)
        network.load_state_dict(
            {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
        )
        entities, projections = (tensors[name].to(device) for name in ("entities", "projections"))
        return cls(network.to(device).eval(), entities, projections, settings.training.seed)

    def _vectors(self, entities: IntArray) -> Vectors:
        ids = as_tensor(entities).to(self.entities.device)
        return Vectors(self.entities[ids].float(), self.projections[ids].float())

    @torch.no_grad()
    def adapt(self, support: Support) -> HireState:
        """The meta relation, refined by MAML against some of the candidates, and away from rejected pairs."""
        self.network.eval()
        size = len(self.entities) if support.candidates is None else len(support.candidates)
        count = self.network.settings.inner_negatives
        negatives = adaptation_negatives(self.seed, support.pairs[:, 1], size, support.candidates, count)
        heads, tails = (self._vectors(column[None]) for column in support.pairs.T)
        rejected = None
        if len(support.rejected):
            false_heads, false_tails = (self._vectors(column[None]) for column in support.rejected.T)
            rejected = false_heads, false_tails
        sizes = torch.tensor([size], device=self.entities.device)
        relation = self.network.adapt(heads, tails, self._vectors(negatives[None]), None, sizes, rejected)
        return HireState(MetaRelation(*(part[0].detach() for part in relation)), LastTails())

    @torch.no_grad()
    def score(self, state: HireState, heads: IntArray, tails: IntArray) -> Tensor:
        """Minus the distance, [heads, tails]."""
        decoder, relation = self.network.settings.decoder, state.relation

        def project(tails: IntArray) -> Tensor:
            return projected_tails(decoder, relation, self._vectors(tails))

        def score(tails: IntArray) -> Tensor:
            return -distance(squared_distances(moved, state.projected.get(tails, project))).cpu()

        moved = translated(decoder, relation, self._vectors(heads))
        return in_blocks(score, tails, self.entities.shape[1])

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self._vectors(entities).embeddings

    @torch.no_grad()
    def extended(self, graph: KnowledgeGraph) -> Hire:
        """The same model with embeddings of new entities, derived from their facts with known ones.

        A fact (e, r, o) puts e at o - r, where r is the mean of t - h over facts of r; the more exactly r translates,
        the more its facts count. The projection of e is the mean one of the entities on the same side of r.
        """
        known, count = len(self.entities), len(graph.entities)
        entities, projections = (
            torch.cat([table.float(), table.new_zeros(count - known, table.shape[1], dtype=torch.float32)])
            for table in (self.entities, self.projections)
        )
        placed = np.arange(count) < known
        roles: dict[int, _Role] = {}
        waiting = list(range(known, count))
        while waiting:
            ready = [e for e in waiting if placed[graph.neighbors_of(e, None)[:, 1]].any()]
            if not ready:
                raise HireError(f"{graph.entities[waiting[0]]!r} has no fact with a known entity", remedy="give one")
            for entity in ready:
                facts = graph.neighbors_of(entity, None)
                facts = facts[placed[facts[:, 1]]]
                for edge_type in np.unique(facts[:, 0]).tolist():
                    if edge_type not in roles:
                        roles[edge_type] = self._role(graph, edge_type)
                own = [roles[edge_type] for edge_type in facts[:, 0].tolist()]
                weights = torch.stack([role.weight for role in own])[:, None]
                at = entities[as_tensor(facts[:, 1])] - torch.stack([role.translation for role in own])
                entities[entity] = (weights * at).sum(dim=0) / weights.sum()
                projections[entity] = (weights * torch.stack([role.projection for role in own])).sum(0) / weights.sum()
            placed[ready] = True
            waiting = [e for e in waiting if not placed[e]]
        return Hire(self.network, entities, projections, self.seed)

    def _role(self, graph: KnowledgeGraph, edge_type: int) -> _Role:
        """What an edge type says about its sources."""
        relation = edge_type % len(graph.relations)
        facts = graph.triples[graph.triples[:, 1] == relation]
        facts = facts[(facts[:, [0, 2]] < len(self.entities)).all(axis=1)][: self.network.settings.facts_of_a_role]
        if not len(facts):
            name = graph.relations[relation]
            raise HireError(f"{name!r} has no fact in the graph to learn it from", remedy="use a background relation")
        sources, targets = facts[:, [0, 2]].T if edge_type == relation else facts[:, [2, 0]].T
        of_sources = self._vectors(sources)
        moves = self.vectors(targets) - of_sources.embeddings  # [facts, dim]
        translation = moves.mean(dim=0)
        spread = (moves - translation).square().sum(dim=1).mean()
        return _Role(translation, of_sources.projections.mean(dim=0), 1 / (spread + 1e-3))


class _Role(NamedTuple):
    """What an edge type says about its sources."""

    translation: Tensor  # [dim]: from the sources to the targets, in the mean
    projection: Tensor  # [dim]: the mean one of the sources
    weight: Tensor  # []
