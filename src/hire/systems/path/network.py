"""The path level: message passing from a head over the graph, with edge types weighted by what references say.

In the manner of NBFNet (Zhu et al., 2021), conditioned on a handful of references instead of a relation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hire.systems.path.counting import FAN_OUTS
from hire.systems.path.features import EDGE_FEATURES, ENTITY_FEATURES, FEATURE, TASK_FEATURES
from hire.systems.path.messages import add_messages, add_profiles, asinh, pass_messages
from hire.systems.path.readout import (
    Described,
    Inputs,
    ReadOut,
    by_member,
    hidden_units,
    of_each_member,
    reached_inputs,
    read_out,
    side_by_side,
    staying,
)
from hire.systems.path.settings import PathModelSettings
from hire.systems.path.tile_kernels import TiledHop, TiledTails, TiledWeights, unreached_scores
from hire.systems.path.tiles import tiled_hop, tiled_scores, tiled_tails, tiled_weights, updated
from hire.systems.path.walks import HOPS, PAIR_FEATURES, TailInputs, Walks
from hire.util.arrays import FloatArray

DEGREE = FEATURE["degree"]
LEAST_ROWS = 16  # of a product: fewer are summed in another order, and a tail is to have the same bits anywhere


class MemberLinear(nn.Module):
    """A linear layer of each member, with outputs side by side, [n, members * outputs].

    Inputs are the same for all members, [n, inputs], or each has its own, [n, members * inputs].
    """

    def __init__(self, members: int, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound)) if bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs."""
        shared = inputs.shape[1] == self.weight.shape[1]
        weight = side_by_side(self.weight) if shared else of_each_member(self.weight)
        return inputs @ weight if self.bias is None else torch.addmm(self.bias.flatten(), inputs, weight)


class Hop(NamedTuple):
    """The weights of a hop, with the members side by side."""

    exponents: Tensor  # [members * channels]: how much the degree of a node weakens what leaves it
    at_source: Tensor  # [levels, members * channels]: how much a fan-out at the source of an edge weakens a message
    at_target: Tensor  # [levels, members * channels]
    update: Tensor  # [members * channels, members * channels]: of what arrives
    update_lessened: Tensor  # the same size: of what arrives, less for high degrees


class Weights(NamedTuple):
    """The weights by which pairs are scored, with the members side by side."""

    start: tuple[Tensor, Tensor]  # [features, members * channels], and the bias
    gate: tuple[Tensor, Tensor]  # likewise
    hops: list[Hop]
    readout: ReadOut


class PathNetwork(nn.Module):
    """An ensemble of networks with the same inputs, computed together.

    The first axis of all weights is the member; in what is computed, the values of all members lie side by side in a
    row. Each member has weights of each edge type, three hops, and a read-out for each pair of head and tail.
    """

    log_fan_outs: Tensor  # of each level

    def __init__(self, settings: PathModelSettings) -> None:
        super().__init__()
        self.settings = settings
        members, channels, width = settings.members, settings.channels, settings.readout_width
        self._kept_weights: Weights | None = None
        self._kept_tiled: tuple[list[TiledHop], TiledWeights] | None = None
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
        """Which edge types of each task a training step sees, [tasks * edge types, members, 1]."""
        if not self.settings.relation_dropout:
            return None
        tasks, edge_types, _ = edge_features.shape
        drawn = torch.rand(self.settings.members, tasks, edge_types // 2, device=edge_features.device)
        return (drawn >= self.settings.relation_dropout).repeat(1, 1, 2).flatten(1).T[..., None].float()

    def weigh(self, edge_features: Tensor, seen: Tensor | None = None) -> list[Tensor]:
        """The weights of each edge type [tasks * edge types, members * channels] for every hop, and for profiles."""
        hidden = F.gelu(self.kinds(edge_features.flatten(0, -2)))
        weights = [layer(hidden) for layer in (*self.kind_weights, self.profile_weights)]
        return (
            weights
            if seen is None
            else [(by_member(weight, self.settings.members) * seen).flatten(1) for weight in weights]
        )

    def describe(self, weights: list[Tensor], tails: TailInputs) -> Described:
        """The part of the read-out that depends on the tail alone."""
        channels, profile = self.settings.profile_channels, self._profile(weights, tails)
        count, missing = len(profile), max(0, LEAST_ROWS - len(profile))
        profile, features = (F.pad(part, (0, 0, 0, missing)) for part in (profile, tails.features))
        of_profile, of_features = self.of_tails.weight[:, :channels], self.of_tails.weight[:, channels:]
        bias = self.of_pairs.get_parameter("bias").flatten()
        described = torch.addmm(bias, features, side_by_side(of_features))
        described = torch.addmm(described, profile, of_each_member(of_profile))[:count]
        described = by_member(described, self.settings.members)
        return Described(described[..., 1:].flatten(1), described[..., 0].contiguous())

    def score(
        self,
        weights: list[Tensor],
        described: Described,
        degrees: Tensor,
        walks: Walks,
        edge_mask: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The score of each pair, [members, pairs], from degrees [tails] and the result of `describe` for the tails.

        edge_mask holds a factor [edges] for the edges of each hop; without it, all edges count fully.
        """
        own = self._weights()
        return read_out(own.readout, described, walks, *self._three_hops(own, weights, degrees, walks, edge_mask))

    @property
    def last_weights(self) -> Tensor:
        """The weights of all that a score is linear in, [members, inputs]; they can be set."""
        return torch.cat([part.weight[..., 0] for part in self._last_parts], dim=1)

    @last_weights.setter
    def last_weights(self, weights: Tensor) -> None:
        sizes = [part.weight.shape[1] for part in self._last_parts]
        for part, own in zip(self._last_parts, torch.split(weights, sizes, dim=1), strict=True):
            part.weight.data[..., 0] = own
        self._kept_weights = self._kept_tiled = None

    @torch.no_grad()
    def last_inputs(self, weights: list[Tensor], tails: TailInputs, walks: Walks) -> Tensor:
        """All that the score of a pair is linear in, in the order of `last_weights`, [pairs, members, inputs]."""
        own, members = self._weights(), self.settings.members
        arrived, factors, state = self._three_hops(own, weights, tails.features[:, DEGREE], walks)
        both, stayed = reached_inputs(arrived, factors, members), staying(state, walks.kept[-1])
        last = torch.einsum("rmi,mio->rmo", both, self.updates[-1].get_parameter("weight"))
        hidden = hidden_units(own.readout, self.describe(weights, tails).units, walks, both.flatten(1), stayed)
        of_reached = torch.cat([last, by_member(stayed, members)], dim=2)
        of_pairs = of_reached.new_zeros(len(walks.pairs), *of_reached.shape[1:])
        profile, features = by_member(self._profile(weights, tails), members), tails.features[:, None]
        of_tails = torch.cat([profile, features.expand(-1, members, -1)], dim=2)
        return torch.cat(
            [
                of_tails.index_select(0, walks.tails),
                of_pairs.index_add(0, walks.reached, of_reached),
                walks.pairs[:, None].expand(-1, members, -1),
                hidden,
            ],
            dim=2,
        )

    @property
    def _last_parts(self) -> tuple[MemberLinear, MemberLinear, MemberLinear]:
        return self.of_tails, self.of_pairs, self.last

    def _profile(self, weights: list[Tensor], tails: TailInputs) -> Tensor:
        """What the edge types at each tail say, [tails, members * channels of profiles]."""
        entries = tails.profile_owners, tails.profile_edge_types, tails.profile_counts
        return asinh(add_profiles(weights[HOPS], *entries, len(tails.features)))

    def tiled(self, described: Described, degrees: Tensor) -> TiledTails:
        """The result of `describe` for tails that will be asked about often, and their degrees."""
        return tiled_tails(described, self.settings.members, self._lessening(degrees))

    def mean_scores(self, weights: list[Tensor], tails: TiledTails, walks: Walks) -> Tensor:
        """The mean of the members' scores for one head and all tails, [tails]; without gradients, on a CPU."""
        own, (hops, readout) = self._weights(), self._tiled_weights()
        state = torch.addmm(own.start[1], walks.heads, own.start[0])
        for hop, tiled in enumerate(hops):
            layer, after = walks.layers[hop], walks.degrees[hop + 1]
            summed = np.zeros((len(after), state.shape[1]), np.float32)
            carried = (self._thinned(own.hops[hop], hop, state, walks), weights[hop], *own.hops[hop][1:3])
            add_messages(carried, layer, summed)
            gate = torch.addmm(own.gate[1], walks.near, own.gate[0]) if hop == 0 else None
            scale = self.settings.message_scale
            state = updated(tiled, summed, self._lessening(after), gate, state, walks.stays[hop], scale)
        last = own.hops[-1]
        carried = self._thinned(last, HOPS - 1, state, walks), weights[HOPS - 1], last.at_source, last.at_target
        return tiled_scores(readout, tails, walks, carried, state, self.settings.message_scale)

    def unreached_scores(self, tails: TiledTails, features: FloatArray) -> FloatArray:
        """The mean of the members' scores for pairs [tails, features] whose tails no walk reaches, [tails]."""
        channels = self.settings.members * self.settings.channels
        return unreached_scores(self._tiled_weights()[1], tails, features, channels)

    def _tiled_weights(self) -> tuple[list[TiledHop], TiledWeights]:
        """The weights of the hops before the last, and of the read-out, for tiles."""
        if self._kept_tiled is None:
            hops = [
                tiled_hop(
                    self.updates[hop].get_parameter("weight"), self.norm_scale[:, hop, 0], self.norm_shift[:, hop, 0]
                )
                for hop in range(HOPS - 1)
            ]
            self._kept_tiled = hops, tiled_weights(self._weights().readout)
        return self._kept_tiled

    def _lessening(self, degrees: Tensor) -> Tensor:
        """The factors by which what arrives is lessened, for nodes of given degrees."""
        return 1 / (1 + self.settings.degree_scale * degrees)

    def _three_hops(
        self,
        own: Weights,
        weights: list[Tensor],
        degrees: Tensor,
        walks: Walks,
        edge_mask: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs of `read_out`: what arrives at reached pairs, by how much it is lessened, the state before."""
        state = self._two_hops(own, weights, walks, edge_mask)
        arrived = self._pass(own.hops[-1], HOPS - 1, state, weights, walks, len(walks.reached), edge_mask)
        return arrived, self._lessening(degrees.index_select(0, walks.tails[walks.reached])), state

    def _two_hops(
        self, own: Weights, weights: list[Tensor], walks: Walks, edge_mask: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The state of each node before the last hop, [nodes, members * channels]."""
        state = torch.addmm(own.start[1], walks.heads, own.start[0])  # [queries, members * channels]
        for hop in range(HOPS - 1):
            arrived = self._pass(own.hops[hop], hop, state, weights, walks, len(walks.degrees[hop + 1]), edge_mask)
            lessened = arrived * self._lessening(walks.degrees[hop + 1])[:, None]
            arrived = torch.addmm(arrived @ own.hops[hop].update, lessened, own.hops[hop].update_lessened)
            normal = F.layer_norm(by_member(arrived, self.settings.members), self.norm_scale.shape[-1:])
            arrived = F.gelu(self.norm_shift[:, hop, 0] + normal * self.norm_scale[:, hop, 0]).flatten(1)
            if hop == 0:
                arrived = arrived * torch.addmm(own.gate[1], walks.near, own.gate[0])
            state = arrived + staying(state, walks.kept[hop])
        return state

    def _pass(
        self,
        own: Hop,
        hop: int,
        state: Tensor,
        weights: list[Tensor],
        walks: Walks,
        target_count: int,
        edge_mask: Sequence[Tensor] | None,
    ) -> Tensor:
        """The messages that arrive at each node of a layer, [nodes, members * channels]."""
        state = self._thinned(own, hop, state, walks)
        mask = None if edge_mask is None else edge_mask[hop]
        layer = walks.layers[hop]
        summed = pass_messages(state, weights[hop], own.at_source, own.at_target, layer, target_count, mask)
        return asinh(self.settings.message_scale * summed)

    def _thinned(self, own: Hop, hop: int, state: Tensor, walks: Walks) -> Tensor:
        """The states of nodes as they leave them: weakened by their degrees."""
        return state * torch.exp(-self.settings.degree_scale * walks.degrees[hop][:, None] * own.exponents)

    def _weights(self) -> Weights:
        """The weights with the members side by side; kept where they do not change."""
        if self._kept_weights is not None:
            return self._kept_weights
        start, gate = (
            (side_by_side(of.weight), constant.flatten() + of.get_parameter("bias").flatten())
            for of, constant in ((self.start_features, self.start), (self.gate, torch.ones_like(self.start)))
        )
        found = Weights(start, gate, [self._hop_weights(hop) for hop in range(HOPS)], self._read_out_weights())
        if not (self.training or torch.is_grad_enabled()):
            self._kept_weights = found
        return found

    def _hop_weights(self, hop: int) -> Hop:
        exponents = torch.sigmoid(self.thinning[:, hop]).transpose(0, 1).flatten(1)  # [3, members * channels]
        at_source, at_target = (torch.exp(-self.log_fan_outs[:, None] * exponents[side]) for side in (1, 2))
        update, lessened = torch.split(self.updates[hop].get_parameter("weight"), self.settings.channels, dim=1)
        return Hop(exponents[0], at_source, at_target, of_each_member(update), of_each_member(lessened))

    def _read_out_weights(self) -> ReadOut:
        channels = self.settings.channels
        of_last, of_state, of_features = torch.split(
            self.of_pairs.weight, [channels, channels, len(PAIR_FEATURES)], dim=1
        )
        last = self.updates[-1].get_parameter("weight") @ of_last  # both are linear: applied at once
        linear, units = (
            Inputs(*(part[..., outputs].contiguous() for part in (of_features, last, of_state)))
            for outputs in (slice(1), slice(1, None))
        )
        return ReadOut(
            linear,
            units,
            self.hidden.weight,
            self.hidden.get_parameter("bias")[:, 0],
            self.last.weight[..., 0],
            self.last.get_parameter("bias")[:, 0, 0],
            self.settings.dropout if self.training else 0.0,
        )

    def train(self, mode: bool = True) -> PathNetwork:
        """Begin or end training; what follows from the weights is computed anew."""
        self._kept_weights = self._kept_tiled = None
        return super().train(mode)
