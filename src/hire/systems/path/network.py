"""The path level: message passing from a head over the graph, with edge types weighted by what references say.

In the manner of NBFNet (Zhu et al., 2021), conditioned on a handful of references instead of a relation.
"""

from __future__ import annotations

import math
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


class MemberLinear(nn.Module):
    """A linear layer of each member: inputs [n, inputs], or [members, n, inputs], give [members, n, outputs]."""

    def __init__(self, members: int, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound)) if bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs."""
        return linear(inputs, self.weight, self.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Inputs times the weight of each member, plus a bias that may be broadcast."""
    inputs = inputs.expand(len(weight), *inputs.shape[-2:])
    return torch.bmm(inputs, weight) if bias is None else torch.baddbmm(bias, inputs, weight)


class PathNetwork(nn.Module):
    """An ensemble of networks with the same inputs, computed together: the first axis of all weights is the member.

    Each has weights of each edge type, three hops, and a read-out for each pair of head and tail.
    """

    log_fan_outs: Tensor  # of each level

    def __init__(self, settings: PathModelSettings) -> None:
        super().__init__()
        self.settings = settings
        members, channels, width = settings.members, settings.channels, settings.readout_width
        self._kept_powers: dict[int, tuple[Tensor, Tensor]] = {}
        # Of edge types: a hidden layer, then the weights for each hop. Trained weights are stored by these names.
        self.kinds = MemberLinear(members, len(EDGE_FEATURES), settings.edge_width)
        self.kind_weights = nn.ModuleList(MemberLinear(members, settings.edge_width, channels) for _ in range(HOPS))
        self.profile_weights = MemberLinear(members, settings.edge_width, settings.profile_channels)
        self.start = nn.Parameter(0.5 * torch.randn(members, 1, channels))
        self.start_features = MemberLinear(members, len(ENTITY_FEATURES), channels)
        # Exponents, after a sigmoid: how much degree and fan-outs along its way weaken a message.
        spread = torch.linspace(-2, 2, channels)
        shuffled = torch.stack([spread[torch.randperm(channels)] for _ in range(members * HOPS * 3)])
        self.thinning = nn.Parameter(shuffled.view(members, HOPS, 3, channels))
        self.register_buffer("log_fan_outs", torch.from_numpy(np.log(FAN_OUTS)), persistent=False)
        self.updates = nn.ModuleList(MemberLinear(members, 2 * channels, channels, bias=False) for _ in range(HOPS))
        self.norm_scale = nn.Parameter(torch.ones(members, HOPS - 1, 1, channels))
        self.norm_shift = nn.Parameter(torch.zeros(members, HOPS - 1, 1, channels))
        self.gate = MemberLinear(members, len(ENTITY_FEATURES), channels)  # by the nodes that the first hop leads to
        # The read-out: a linear output and a hidden layer, each the sum of a part for the pair and one for the tail.
        self.of_pairs = MemberLinear(members, 2 * channels + len(PAIR_FEATURES), 1 + width)
        tail_inputs = settings.profile_channels + len(ENTITY_FEATURES) + len(TASK_FEATURES)
        self.of_tails = MemberLinear(members, tail_inputs, 1 + width, bias=False)
        self.hidden = MemberLinear(members, width, width)
        self.last = MemberLinear(members, width, 1)
        for layer in (self.last, self.start_features):
            nn.init.zeros_(layer.weight)
        for part in (self.of_pairs, self.of_tails):
            nn.init.zeros_(part.weight[..., :1])
        nn.init.zeros_(self.kinds.weight[:, EDGE_FEATURES.index("by name")])  # of use only where names are the same
        nn.init.normal_(self.gate.weight, std=0.1)
        nn.init.zeros_(self.gate.get_parameter("bias"))

    def forward(self, edge_features: Tensor, tails: TailInputs, walks: Walks) -> Tensor:
        """The scores of each member for the pairs of some tasks, [members, pairs]."""
        weights = self.weigh(edge_features, self._seen(edge_features) if self.training else None)
        return self.score(weights, self.describe(weights, tails), tails.features[:, DEGREE], walks)

    def _seen(self, edge_features: Tensor) -> Tensor | None:
        """Which edge types of each task a training step sees, [members, tasks * edge types, 1]."""
        if not self.settings.relation_dropout:
            return None
        tasks, edge_types, _ = edge_features.shape
        drawn = torch.rand(self.settings.members, tasks, edge_types // 2, device=edge_features.device)
        return (drawn >= self.settings.relation_dropout).repeat(1, 1, 2).flatten(1)[..., None].float()

    def weigh(self, edge_features: Tensor, seen: Tensor | None = None) -> list[Tensor]:
        """The weights of each edge type [members, tasks * edge types, channels] for every hop, and for profiles."""
        hidden = F.gelu(self.kinds(edge_features.flatten(0, -2)))
        weights = [layer(hidden) for layer in (*self.kind_weights, self.profile_weights)]
        return weights if seen is None else [weight * seen for weight in weights]

    def describe(self, weights: list[Tensor], tails: TailInputs) -> Tensor:
        """The part of the read-out that depends on the tail alone, [members, tails, readout width + 1]."""
        members, channels = self.settings.members, self.settings.profile_channels
        profile = tails.features.new_zeros(members, len(tails.features), channels)
        messages = weights[HOPS].index_select(1, tails.profile_edge_types) * tails.profile_counts[:, None]
        profile = asinh(profile.index_add(1, tails.profile_owners, messages))
        of_profile, of_features = self.of_tails.weight[:, :channels], self.of_tails.weight[:, channels:]
        return linear(tails.features, of_features, linear(profile, of_profile, self.of_pairs.bias))

    def score(
        self,
        weights: list[Tensor],
        described: Tensor,
        degrees: Tensor,
        walks: Walks,
        edge_mask: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The score of each pair, [members, pairs], from degrees [tails] and the result of `describe` for the tails.

        edge_mask holds a factor [edges] for the edges of each hop; without it, all edges count fully.
        """
        state = self.start + self.start_features(walks.heads)  # [members, queries, channels]
        for hop in range(HOPS - 1):
            arrived = self.updates[hop](self._pass(hop, state, weights, walks, walks.degrees[hop + 1], edge_mask))
            normal = F.layer_norm(arrived, arrived.shape[-1:])
            arrived = F.gelu(self.norm_shift[:, hop] + normal * self.norm_scale[:, hop])
            if hop == 0:
                arrived = arrived * (1 + self.gate(walks.near))
            state = arrived + _staying(state, walks.kept[hop])
        of_tails = degrees.index_select(0, walks.tails.index_select(0, walks.reached))
        last = self._pass(HOPS - 1, state, weights, walks, of_tails, edge_mask)
        return self._read_out(described, walks, torch.cat([last, _staying(state, walks.kept[-1])], dim=-1))

    def _read_out(self, described: Tensor, walks: Walks, arrived: Tensor) -> Tensor:
        """The score of each pair from the messages that arrived at reached pairs, [members, reached, 3 * channels]."""
        channels = self.settings.channels
        of_last, of_state, of_features = torch.split(
            self.of_pairs.weight, [channels, channels, len(PAIR_FEATURES)], dim=1
        )
        if not walks.one_by_one:
            described = described.index_select(1, walks.tails)
        inputs = torch.matmul(walks.pairs, of_features).add_(described)  # half the time of one call for both
        # The last update and the first layer of the read-out are both linear: applied at once.
        of_walks = torch.cat([self.updates[-1].get_parameter("weight") @ of_last, of_state], dim=1)
        inputs.index_add_(1, walks.reached, linear(arrived, of_walks))
        # The linear output is column 0. Slicing it off after the activation keeps the memory contiguous.
        direct = inputs[..., 0].clone()
        hidden = F.dropout(gelu(inputs)[..., 1:], self.settings.dropout, self.training)
        hidden = F.dropout(gelu(self.hidden(hidden)), self.settings.dropout, self.training)
        last = [torch.mv(rows, weight) for rows, weight in zip(hidden, self.last.weight[..., 0], strict=True)]
        return direct + torch.stack(last) + self.last.get_parameter("bias")[..., 0]

    def _pass(
        self,
        hop: int,
        state: Tensor,
        weights: list[Tensor],
        walks: Walks,
        after: Tensor,
        edge_mask: Sequence[Tensor] | None,
    ) -> Tensor:
        """The messages that arrive at each node of a layer, given the degrees in it, [members, nodes, 2 * channels].

        As they are, and less for high degrees.
        """
        scale = self.settings.degree_scale
        exponents = torch.sigmoid(self.thinning[:, hop, :1])
        state = state * torch.exp(-scale * walks.degrees[hop][:, None] * exponents)
        mask = None if edge_mask is None else edge_mask[hop]
        summed = pass_messages(state, weights[hop], *self._fan_out_powers(hop), walks.layers[hop], len(after), mask)
        arrived = asinh(self.settings.message_scale * summed)
        return torch.cat([arrived, arrived / (1 + scale * after[:, None])], dim=-1)

    def _fan_out_powers(self, hop: int) -> tuple[Tensor, Tensor]:
        """How much each level of a fan-out at the source, and at the target, weakens a message.

        [members, levels, channels] each.
        """
        kept = self._kept_powers.get(hop)
        if kept is None:
            exponents = torch.sigmoid(self.thinning[:, hop, 1:, None])  # [members, 2, 1, channels]
            both = torch.exp(-self.log_fan_outs[:, None] * exponents).unbind(dim=1)
            kept = both[0].contiguous(), both[1].contiguous()
            if not (self.training or torch.is_grad_enabled()):
                self._kept_powers[hop] = kept
        return kept

    def train(self, mode: bool = True) -> PathNetwork:
        """Begin or end training; what follows from the weights is computed anew."""
        self._kept_powers = {}
        return super().train(mode)


def _staying(state: Tensor, kept: Tensor) -> Tensor:
    """The states of nodes that were in the previous layer too; zero for the others."""
    return F.pad(state, (0, 0, 0, 1)).index_select(1, kept)
