"""The path level: message passing from a head over the graph, with edge types weighted by what references say.

In the manner of NBFNet (Zhu et al., 2021), conditioned on a handful of references instead of a relation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.path.features import EDGE_FEATURES, ENTITY_FEATURES, FEATURE, TASK_FEATURES
from hire.systems.path.graph import FAN_OUTS
from hire.systems.path.messages import asinh, gelu, pass_messages
from hire.systems.path.settings import PathModelSettings
from hire.systems.path.walks import HOPS, PAIR_FEATURES, TailInputs, Walks

DEGREE = FEATURE["degree"]


class PathMember(nn.Module):
    """One network: weights of each edge type, three hops, and a read-out for each pair of head and tail."""

    log_fan_outs: Tensor  # of each level

    def __init__(self, settings: PathModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self._kept_powers: dict[int, tuple[Tensor, Tensor]] = {}
        channels, width = settings.channels, settings.readout_width
        # Of edge types: a hidden layer, then the weights for each hop. Trained weights are stored by these names.
        self.kinds = nn.Linear(len(EDGE_FEATURES), settings.edge_width)
        self.kind_weights = nn.ModuleList(nn.Linear(settings.edge_width, channels) for _ in range(HOPS))
        self.profile_weights = nn.Linear(settings.edge_width, settings.profile_channels)
        self.start = nn.Parameter(0.5 * torch.randn(channels))
        self.start_features = nn.Linear(len(ENTITY_FEATURES), channels)
        # Exponents, after a sigmoid: how much degree and fan-outs along its way weaken a message.
        spread = torch.linspace(-2, 2, channels)
        self.thinning = nn.Parameter(
            torch.stack([spread[torch.randperm(channels)] for _ in range(3 * HOPS)]).view(HOPS, 3, channels)
        )
        self.register_buffer("log_fan_outs", torch.from_numpy(np.log(FAN_OUTS)), persistent=False)
        self.updates = nn.ModuleList(nn.Linear(2 * channels, channels, bias=False) for _ in range(HOPS))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(HOPS - 1))
        self.gate = nn.Linear(len(ENTITY_FEATURES), channels)  # by the nodes that the first hop leads to
        # The read-out: a linear output and a hidden layer, each the sum of a part for the pair and one for the tail.
        self.of_pairs = nn.Linear(2 * channels + len(PAIR_FEATURES), 1 + width)
        tail_inputs = settings.profile_channels + len(ENTITY_FEATURES) + len(TASK_FEATURES)
        self.of_tails = nn.Linear(tail_inputs, 1 + width, bias=False)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)
        for layer in (self.last, self.start_features):
            nn.init.zeros_(layer.weight)
        for part in (self.of_pairs, self.of_tails):
            nn.init.zeros_(part.weight[:1])
        nn.init.normal_(self.gate.weight, std=0.1)
        nn.init.zeros_(self.gate.bias)

    def weigh(self, edge_features: Tensor, seen: Tensor | None = None) -> list[Tensor]:
        """The weights of each edge type [tasks * edge types, channels] for every hop, and those for profiles."""
        hidden = F.gelu(self.kinds(edge_features.flatten(0, -2)))
        weights = [layer(hidden) for layer in (*self.kind_weights, self.profile_weights)]
        return weights if seen is None else [weight * seen[:, None] for weight in weights]

    def describe(self, weights: list[Tensor], tails: TailInputs) -> Tensor:
        """The part of the read-out that depends on the tail alone, [tails, readout width + 1]."""
        profile = tails.features.new_zeros(len(tails.features), self.settings.profile_channels)
        messages = weights[HOPS].index_select(0, tails.profile_edge_types) * tails.profile_counts[:, None]
        profile = asinh(profile.index_add(0, tails.profile_owners, messages))
        inputs = torch.cat([profile, tails.features], dim=-1)
        return F.linear(inputs, self.of_tails.weight, self.of_pairs.bias)

    def forward(
        self,
        weights: list[Tensor],
        described: Tensor,
        degrees: Tensor,
        walks: Walks,
        edge_mask: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The score of each pair, [pairs], from degrees [tails] and the result of `describe` for the tails.

        edge_mask holds a factor [edges] for the edges of each hop; without it, all edges count fully.
        """
        state = self.start + self.start_features(walks.heads)  # [queries, channels]
        for hop in range(HOPS - 1):
            arrived = self._pass(hop, state, weights[hop], walks, walks.degrees[hop + 1], edge_mask)
            arrived = F.gelu(self.norms[hop](self.updates[hop](arrived)))
            if hop == 0:
                arrived = arrived * (1 + self.gate(walks.near))
            state = arrived + _staying(state, walks.kept[hop])
        of_tails = degrees.index_select(0, walks.tails.index_select(0, walks.reached))
        last = self._pass(HOPS - 1, state, weights[HOPS - 1], walks, of_tails, edge_mask)
        return self._read_out(described, walks, torch.cat([last, _staying(state, walks.kept[-1])], dim=-1))

    def _read_out(self, described: Tensor, walks: Walks, arrived: Tensor) -> Tensor:
        """The score of each pair, [pairs], from the messages that arrived at reached pairs, [reached, 3 * channels]."""
        channels = self.settings.channels
        of_last, of_state, of_pairs = torch.split(self.of_pairs.weight, [channels, channels, len(PAIR_FEATURES)], dim=1)
        if walks.one_by_one:
            inputs = torch.addmm(described, walks.pairs, of_pairs.t())
        else:
            inputs = torch.addmm(described.index_select(0, walks.tails), walks.pairs, of_pairs.t())
        # The last update and the first layer of the read-out are both linear: applied at once.
        of_walks = torch.cat([of_last @ self.updates[-1].get_parameter("weight"), of_state], dim=1)
        inputs.index_add_(0, walks.reached, F.linear(arrived, of_walks))
        # The linear output is column 0. Slicing it off after the activation keeps the memory contiguous.
        linear = inputs[:, 0].clone()
        hidden = F.dropout(gelu(inputs)[:, 1:], self.settings.dropout, self.training)
        hidden = F.dropout(gelu(self.hidden(hidden)), self.settings.dropout, self.training)
        scores: Tensor = linear + self.last(hidden)[:, 0]
        return scores

    def _pass(
        self,
        hop: int,
        state: Tensor,
        weights: Tensor,
        walks: Walks,
        after: Tensor,
        edge_mask: Sequence[Tensor] | None,
    ) -> Tensor:
        """The messages that arrive at each node of a layer, given the degrees in it, [nodes, 2 * channels].

        As they are, and less for high degrees.
        """
        exponents = torch.sigmoid(self.thinning[hop, :1])
        state = state * torch.exp(-self.settings.degree_scale * walks.degrees[hop][:, None] @ exponents)
        mask = None if edge_mask is None else edge_mask[hop]
        summed = pass_messages(state, weights, *self._fan_out_powers(hop), walks.layers[hop], len(after), mask)
        arrived = asinh(self.settings.message_scale * summed)
        return torch.cat([arrived, arrived / (1 + self.settings.degree_scale * after[:, None])], dim=-1)

    def _fan_out_powers(self, hop: int) -> tuple[Tensor, Tensor]:
        """How much each level of a fan-out at the source, and at the target, weakens a message, [levels, channels]."""
        kept = self._kept_powers.get(hop)
        if kept is None:
            both = torch.exp(-self.log_fan_outs[:, None] * torch.sigmoid(self.thinning[hop, 1:, None])).unbind()
            kept = both[0].contiguous(), both[1].contiguous()
            if not (self.training or torch.is_grad_enabled()):
                self._kept_powers[hop] = kept
        return kept

    def train(self, mode: bool = True) -> PathMember:
        """Begin or end training; what follows from the weights is computed anew."""
        self._kept_powers = {}
        return super().train(mode)


class PathNetwork(nn.Module):
    """An ensemble of networks with the same inputs, whose scores are averaged."""

    def __init__(self, settings: PathModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self._members = nn.ModuleList(PathMember(settings) for _ in range(settings.members))

    @property
    def members(self) -> list[PathMember]:
        """The networks."""
        return [member for member in self._members if isinstance(member, PathMember)]

    def forward(self, edge_features: Tensor, tails: TailInputs, walks: Walks) -> Tensor:
        """The scores of each member for the pairs of some tasks, [members, pairs]."""
        scores = []
        for member in self.members:
            seen = None
            if self.training and self.settings.relation_dropout:
                tasks, edge_types, _ = edge_features.shape
                seen = (
                    (torch.rand(tasks, edge_types // 2, device=edge_features.device) >= self.settings.relation_dropout)
                    .repeat(1, 2)
                    .flatten()
                    .float()
                )
            weights = member.weigh(edge_features, seen)
            scores.append(member(weights, member.describe(weights, tails), tails.features[:, DEGREE], walks))
        return torch.stack(scores)


def _staying(state: Tensor, kept: Tensor) -> Tensor:
    """The states of nodes that were in the previous layer too; zero for the others."""
    return torch.cat([state, state.new_zeros(1, state.shape[1])]).index_select(0, kept)
