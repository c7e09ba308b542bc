"""HiRe: a relation from its references by three levels, context, triplet and entity, refined by MAML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.adaptation import refine
from hire.errors import HireError
from hire.graph import KnowledgeGraph
from hire.levels.context import ContextEncoder
from hire.levels.entity import (
    Decoder,
    Relation,
    Vectors,
    distance,
    distances,
    own_distances,
    projected_tails,
    squared_distances,
    translated,
)
from hire.levels.triplet import LstmLearner, MeanLearner, SetLearner
from hire.models.base import FewShotModel, LastTails, as_tensor
from hire.randomness import random_stream
from hire.vocabulary import IntArray

Loss = Literal["softmax", "margin"]
REJECTION = 0.3  # weight of what was rejected beside the references; at 1, single verdicts do harm
FACTS_OF_A_ROLE = 1_000  # that are looked at to place an entity that was not there at training
NEVER = -1e4  # a logit; unlike minus infinity it has a gradient, zero, even where no negative is false


@dataclass(frozen=True)
class HireSettings:
    """The architecture, and how its losses are computed."""

    dimension: int = 100
    learner: Literal["set", "mean", "lstm"] = "set"  # MRL, and its ablations AVG and LSTM
    decoder: Decoder = "mtransd"
    loss: Loss = "softmax"
    margin: float = 1.0  # gamma of Eq. 12 and 20, for the margin loss
    temperature: float = 8.0  # what distances are multiplied with before the softmax; learned from here
    residual: bool = True  # add the gated mean of t - h to the meta relation
    learner_start: float = (
        1.0  # what the learner's last layer is multiplied with at first: with little, R is mean(t - h)
    )
    drop_path: float = 0.2
    inner_steps: int = 1  # of MAML; 0 leaves it out
    inner_rate: float = 0.1  # l_r of Eq. 13; learned for each dimension from here with the softmax loss
    inner_negatives: int = 512  # drawn from the candidates when a relation is learned after training
    full_negatives: int = 128  # up to so many candidates, each counts fully in the softmax; C of them beyond it
    crowding: float = 0.5  # count as full_negatives * (C / full_negatives) ** crowding, however many are drawn
    second_order: bool = True
    context_weight: float = 0.05  # lambda of Eq. 21; 0 leaves the context level out
    context_temperature: float = 0.1  # tau of Eq. 5
    false_contexts: int = 1  # N of Eq. 5
    context_heads: int = 1  # of the self-attention over a context


class HireNetwork(nn.Module):
    """All of HiRe but its tables of entities: the levels, the learned starting points, and the inner step."""

    def __init__(self, settings: HireSettings) -> None:
        super().__init__()
        self.settings = settings
        dimension = settings.dimension
        outputs = 4 * dimension  # R, and what it adds to r_p and to the projections of heads and tails
        if settings.learner == "set":
            self.learner: nn.Module = SetLearner(dimension, outputs, drop_path=settings.drop_path)
        elif settings.learner == "mean":
            self.learner = MeanLearner(dimension, outputs)
        else:
            self.learner = LstmLearner(dimension, outputs)
        last = [module for module in self.learner.modules() if isinstance(module, nn.Linear)][-1]
        for parameter in last.parameters():
            parameter.data *= settings.learner_start
        self.gate = nn.Linear(2 * dimension, dimension)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, 2.0)
        self.direction = nn.Parameter(0.1 * torch.randn(dimension))  # where r_p of an unseen relation starts
        self.log_temperature = nn.Parameter(torch.tensor(math.log(settings.temperature)))
        rates = torch.tensor([1.0, 1.0, 0.1, 0.1])[:, None].repeat(1, dimension) * settings.inner_rate
        self.log_rates = nn.Parameter(rates.log(), requires_grad=settings.loss == "softmax")
        self.context = ContextEncoder(dimension, heads=settings.context_heads) if settings.context_weight else None

    def meta_relation(self, heads: Tensor, tails: Tensor) -> Relation:
        """The relation [tasks, dim] of references [tasks, shots, dim], before it is refined (Eq. 6-8)."""
        meta = self.learner(heads, tails)
        translation, *shifts = meta.chunk(4, dim=-1)
        if self.settings.residual:
            gate = torch.sigmoid(self.gate(torch.cat([heads, tails], dim=-1)))
            translation = translation + (gate * (tails - heads)).mean(dim=-2)
        return Relation(translation, self.direction + shifts[0], *shifts[1:])

    def losses(
        self,
        relation: Relation,
        heads: Vectors,
        tails: Vectors,
        negatives: Vectors,
        false: Tensor | None = None,
        candidates: Tensor | None = None,
    ) -> Tensor:
        """The loss of each pair of some tasks, [tasks, pairs].

        heads and tails are [tasks, pairs, dim]; negatives are [tasks, pairs, n, dim], or [tasks, n, dim] and shared by
        the pairs of a task. false [tasks, pairs, n] tells where a negative is none of the true tails, candidates
        [tasks] from how many entities negatives were drawn.
        """
        decoder = self.settings.decoder
        moved = translated(decoder, relation, heads)  # [tasks, pairs, dim]
        positive = own_distances(decoder, relation, moved, Vectors(*(part.unsqueeze(-2) for part in tails)))[..., 0]
        if negatives.embeddings.dim() == moved.dim():
            negative = distances(decoder, relation, moved, negatives)  # [tasks, pairs, n]
        else:
            negative = own_distances(decoder, relation, moved, negatives)
        if self.settings.loss == "margin":  # (Eq. 12, 20)
            hinge = F.relu(positive[..., None] + self.settings.margin - negative)
            return hinge.mean(-1) if false is None else (hinge * false).sum(-1) / false.sum(-1).clamp_min(1)
        temperature = self.log_temperature.exp()
        logits = -temperature * negative
        if candidates is not None:
            logits = logits + self._stands_for(candidates, negative.shape[-1])[:, None, None]
        if false is not None:
            logits = logits.masked_fill(~false, NEVER)
        return F.softplus(torch.logsumexp(logits, dim=-1) + temperature * positive)

    def _stands_for(self, candidates: Tensor, drawn: int) -> Tensor:
        """The logarithm of how many negatives one counts as, [tasks]."""
        full = self.settings.full_negatives
        crowd = (candidates / full).clamp_min(1).log() * self.settings.crowding
        return crowd + candidates.clamp_max(full).log() - math.log(drawn)

    def adapt(
        self,
        heads: Vectors,
        tails: Vectors,
        negatives: Vectors,
        false: Tensor | None = None,
        candidates: Tensor | None = None,
        rejected: tuple[Vectors, Vectors] | None = None,
    ) -> Relation:
        """The relations of some tasks' references, refined on them and against pairs that were rejected, if any."""
        relation = self.meta_relation(heads.embeddings, tails.embeddings)
        scale = 1.0 if self.settings.loss == "margin" else 1 / self.log_temperature.exp()

        def loss(at: Relation) -> Tensor:  # L(S_r); a mean over the references, so that K does not change the step
            found = self.losses(at, heads, tails, negatives, false, candidates).mean(dim=-1) * scale
            if rejected is not None:
                found = found + REJECTION * scale * self._rejection(at, heads, tails, *rejected)
            return found

        return refine(
            relation,
            loss,
            Relation(*self.log_rates.exp()),
            steps=self.settings.inner_steps,
            second_order=self.settings.second_order and self.training,
        )

    def _rejection(
        self, relation: Relation, heads: Vectors, tails: Vectors, false_heads: Vectors, false_tails: Vectors
    ) -> Tensor:
        """The loss of some tasks [tasks] for false pairs [tasks, n, dim]: how well they fit beside the references."""
        decoder = self.settings.decoder

        def fit(heads: Vectors, tails: Vectors) -> Tensor:  # [tasks, pairs]
            moved = translated(decoder, relation, heads)
            return own_distances(decoder, relation, moved, Vectors(*(part.unsqueeze(-2) for part in tails)))[..., 0]

        closer = fit(heads, tails).mean(dim=-1, keepdim=True) - fit(false_heads, false_tails)
        if self.settings.loss == "margin":
            return F.relu(closer + self.settings.margin).mean(dim=-1)
        return F.softplus(self.log_temperature.exp() * closer).mean(dim=-1)


class LearnedRelation(NamedTuple):
    """A relation as a trained HiRe knows it."""

    relation: Relation
    projected: LastTails[Tensor]  # t_perp of the tails last asked for, [tails, dim]


class Hire(FewShotModel):
    """A trained HiRe: its network and its tables."""

    name = "hire"

    def __init__(self, network: HireNetwork, entities: Tensor, projections: Tensor, seed: int = 0) -> None:
        self.network = network
        self.entities = entities  # [entities, dim]
        self.projections = projections  # [entities, dim]
        self.seed = seed

    def _vectors(self, entities: IntArray) -> Vectors:
        numbers = as_tensor(entities).to(self.entities.device)
        return Vectors(self.entities[numbers], self.projections[numbers])

    @torch.no_grad()
    def adapt(self, references: IntArray, candidates: IntArray | None = None) -> LearnedRelation:
        """Learn a relation from references [shots, 2]: meta relation, then MAML against some of the candidates."""
        return self._adapt(references, candidates, None)

    @torch.no_grad()
    def adapt_against(self, references: IntArray, candidates: IntArray | None, rejected: IntArray) -> LearnedRelation:
        """As `adapt`; the same steps also lead away from the rejected pairs."""
        heads, tails = (self._vectors(column[None]) for column in rejected.T)
        return self._adapt(references, candidates, (heads, tails))

    def _adapt(
        self, references: IntArray, candidates: IntArray | None, rejected: tuple[Vectors, Vectors] | None
    ) -> LearnedRelation:
        self.network.eval()
        size = len(self.entities) if candidates is None else len(candidates)
        negatives = self._negatives(references[:, 1], size, candidates)
        heads, tails = (self._vectors(column[None]) for column in references.T)
        sizes = torch.tensor([size], device=self.entities.device)
        relation = self.network.adapt(heads, tails, self._vectors(negatives[None]), None, sizes, rejected)
        return LearnedRelation(Relation(*(part[0].detach() for part in relation)), LastTails())

    def _negatives(self, true: IntArray, size: int, candidates: IntArray | None) -> IntArray:
        """Some candidates that are none of the true tails, if there are others; always the same."""
        count = self.network.settings.inner_negatives
        spare = min(size, count + len(true))
        drawn = random_stream(self.seed, "adaptation").choice(size, spare, replace=False)
        drawn = drawn if candidates is None else np.asarray(candidates)[drawn]
        others = drawn[~np.isin(drawn, true)]
        return others[:count] if len(others) else drawn[:count]

    @torch.no_grad()
    def score(self, relation: LearnedRelation, heads: IntArray, tails: IntArray) -> Tensor:
        """Minus the distance, [heads, tails]."""
        decoder, learned = self.network.settings.decoder, relation.relation

        def project(tails: IntArray) -> Tensor:
            return projected_tails(decoder, learned, self._vectors(tails))

        moved = translated(decoder, learned, self._vectors(heads))
        return -distance(squared_distances(moved, relation.projected.get(tails, project))).cpu()

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self._vectors(entities).embeddings

    @torch.no_grad()
    def extended(self, graph: KnowledgeGraph) -> Hire:
        """With the entities behind the known ones, each where the facts that it has with placed ones put it.

        A fact (e, r, o) puts e at o - r, where r is the mean of t - h over facts of r; the more exactly r translates,
        the more its facts count. Its projection is the mean one of the entities that stand in the same place of r.
        """
        known, count = len(self.entities), len(graph.entities)
        entities, projections = (
            torch.cat([table, table.new_zeros(count - known, table.shape[1])])
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
                for kind in np.unique(facts[:, 0]).tolist():
                    if kind not in roles:
                        roles[kind] = self._role(graph, kind)
                own = [roles[kind] for kind in facts[:, 0].tolist()]
                weights = torch.stack([role.weight for role in own])[:, None]
                at = entities[as_tensor(facts[:, 1])] - torch.stack([role.translation for role in own])
                entities[entity] = (weights * at).sum(dim=0) / weights.sum()
                projections[entity] = (weights * torch.stack([role.projection for role in own])).sum(0) / weights.sum()
            placed[ready] = True
            waiting = [e for e in waiting if not placed[e]]
        return Hire(self.network, entities, projections, self.seed)

    def _role(self, graph: KnowledgeGraph, kind: int) -> _Role:
        """What a kind of edge says of the entities that it leaves."""
        number = kind % len(graph.relations)
        facts = graph.triples[graph.triples[:, 1] == number]
        facts = facts[(facts[:, [0, 2]] < len(self.entities)).all(axis=1)][:FACTS_OF_A_ROLE]
        if not len(facts):
            name = graph.relations[number]
            raise HireError(f"{name!r} has no fact in the graph to learn it from", remedy="use a background relation")
        sources, targets = facts[:, [0, 2]].T if kind == number else facts[:, [2, 0]].T
        of_sources = self._vectors(sources)
        moves = self.vectors(targets) - of_sources.embeddings  # [facts, dim]
        translation = moves.mean(dim=0)
        spread = (moves - translation).square().sum(dim=1).mean()
        return _Role(translation, of_sources.projections.mean(dim=0), 1 / (spread + 1e-3))


class _Role(NamedTuple):
    """What a kind of edge says of the entities that it leaves."""

    translation: Tensor  # [dim]: from there to where it leads
    projection: Tensor  # [dim]: their mean one
    weight: Tensor  # []
