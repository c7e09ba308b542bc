"""HiRe's network: the levels, the learned starting points, and the inner step."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.episodic.losses import crowd, margin_losses, softmax_losses
from hire.systems.episodic.maml import refine
from hire.systems.hire.context import ContextEncoder
from hire.systems.hire.entity import MetaRelation, Vectors, distances, own_distances, translated
from hire.systems.hire.settings import HireModelSettings
from hire.systems.hire.triplet import NOTHING, Dropping, LstmLearner, MeanLearner, SetLearner, dropped, path_factors


class HireNetwork(nn.Module):
    """All of HiRe except its tables of entities: the levels, the learned starting points, and the inner step."""

    def __init__(self, settings: HireModelSettings) -> None:
        super().__init__()
        self.settings = settings
        dimension = settings.dimension
        # R and, if learned, what it adds to r_p and to the projections of heads and tails
        self.outputs = outputs = dimension * (4 if settings.learned_shifts else 1)
        if settings.learner == "set":
            self.learner: nn.Module = SetLearner(dimension, outputs)
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

    def dropping(self, tasks: int) -> Dropping:
        """Draw what to drop of so many tasks in a step of training."""
        settings, device = self.settings, self.direction.device
        of_block = settings.drop_path if settings.learner == "set" else 0.0
        attention, row_wise = (path_factors(of_block, tasks, 1, 1, device=device) for _ in range(2))
        outputs = None
        if settings.dropout:
            outputs = F.dropout(torch.ones(tasks, self.outputs, device=device), settings.dropout)
        return Dropping(attention, row_wise, outputs, path_factors(settings.drop_relation, tasks, 1, device=device))

    def meta_relation(self, heads: Tensor, tails: Tensor, dropping: Dropping = NOTHING) -> MetaRelation:
        """The relation [tasks, dim] of references [tasks, shots, dim], before it is refined (Eq. 6-8)."""
        meta = dropped(self.learner(heads, tails, dropping), dropping.outputs)
        meta = dropped(meta, dropping.relation)
        if not self.settings.learned_shifts:
            meta = F.pad(meta, (0, 3 * self.settings.dimension))
        translation, *shifts = meta.chunk(4, dim=-1)
        if self.settings.residual:
            gate = torch.sigmoid(self.gate(torch.cat([heads, tails], dim=-1)))
            counts = min(1.0, heads.shape[-2] / self.settings.residual_shots)  # a mean of few is not to be trusted
            translation = translation + counts * (gate * (tails - heads)).mean(dim=-2)
        return MetaRelation(translation, self.direction + shifts[0], *shifts[1:])

    def losses(
        self,
        relation: MetaRelation,
        heads: Vectors,
        tails: Vectors,
        negatives: Vectors,
        false: Tensor | None = None,
        candidates: Tensor | None = None,
    ) -> Tensor:
        """The loss of each pair of some tasks, [tasks, pairs].

        heads and tails are [tasks, pairs, dim]; negatives are [tasks, pairs, n, dim], or [tasks, n, dim] and shared by
        the pairs of a task. false [tasks, pairs, n] says where a negative is not a true tail, candidates [tasks] from
        how many entities the negatives were drawn.
        """
        decoder = self.settings.decoder
        moved = translated(decoder, relation, heads)  # [tasks, pairs, dim]
        positive = own_distances(decoder, relation, moved, Vectors(*(part.unsqueeze(-2) for part in tails)))[..., 0]
        if negatives.embeddings.dim() == moved.dim():
            negative = distances(decoder, relation, moved, negatives)  # [tasks, pairs, n]
        else:
            negative = own_distances(decoder, relation, moved, negatives)
        settings = self.settings
        if settings.loss == "margin":  # (Eq. 12, 20)
            return margin_losses(-positive, -negative, settings.margin, false)
        stands_for = None
        if candidates is not None:
            drawn = negative.shape[-1]
            stands_for = crowd(candidates, drawn, full=settings.full_negatives, crowding=settings.crowding)
        return softmax_losses(-positive, -negative, self.log_temperature.exp(), false, stands_for)

    def adapt(
        self,
        heads: Vectors,
        tails: Vectors,
        negatives: Vectors,
        false: Tensor | None = None,
        candidates: Tensor | None = None,
        rejected: tuple[Vectors, Vectors] | None = None,
    ) -> MetaRelation:
        """The relations of some tasks' references, refined on the references and against rejected pairs, if any."""
        relation = self.meta_relation(heads.embeddings, tails.embeddings)
        return self.refined(relation, heads, tails, negatives, false, candidates, rejected)

    def refined(
        self,
        relation: MetaRelation,
        heads: Vectors,
        tails: Vectors,
        negatives: Vectors,
        false: Tensor | None = None,
        candidates: Tensor | None = None,
        rejected: tuple[Vectors, Vectors] | None = None,
    ) -> MetaRelation:
        """Relations after the inner steps on their references (Eq. 13-16)."""
        scale = 1.0 if self.settings.loss == "margin" else 1 / self.log_temperature.exp()

        def loss(at: MetaRelation) -> Tensor:  # L(S_r); a mean over the references, so that K does not change the step
            found = self.losses(at, heads, tails, negatives, false, candidates).mean(dim=-1) * scale
            if rejected is not None:
                found = found + self.settings.rejection_weight * scale * self._rejection(at, heads, tails, *rejected)
            return found

        return refine(
            relation,
            loss,
            MetaRelation(*self.log_rates.exp()),
            steps=self.settings.inner_steps,
            second_order=self.settings.second_order and self.training,
        )

    def _rejection(
        self, relation: MetaRelation, heads: Vectors, tails: Vectors, false_heads: Vectors, false_tails: Vectors
    ) -> Tensor:
        """The loss [tasks] of false pairs [tasks, n, dim]: how well they fit compared to the references."""
        decoder = self.settings.decoder

        def fit(heads: Vectors, tails: Vectors) -> Tensor:  # [tasks, pairs]
            moved = translated(decoder, relation, heads)
            return own_distances(decoder, relation, moved, Vectors(*(part.unsqueeze(-2) for part in tails)))[..., 0]

        closer = fit(heads, tails).mean(dim=-1, keepdim=True) - fit(false_heads, false_tails)
        if self.settings.loss == "margin":
            return F.relu(closer + self.settings.margin).mean(dim=-1)
        return F.softplus(self.log_temperature.exp() * closer).mean(dim=-1)
