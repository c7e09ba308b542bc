"""Why the path model gives a tail its score: rules and their paths, tuples that it shares with reference tails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hire.systems.evidence import Evidence, Rule, SharedTuple, SimilarReference, strongest_first
from hire.systems.path.features import HEAD, TAIL, ReferenceEvidence
from hire.systems.path.model import PathModel, PathState
from hire.systems.path.walks import HOPS, Layer, TailInputs, Tails, Walks, walks
from hire.util.arrays import IntArray, expand_rows, row_offsets
from hire.util.keys import Keying

PATHS_AT_ONCE = 20_000  # between two hubs, the walks with the largest gradients
REMOVALS_AT_ONCE = 32  # bounds the memory of measuring many rules
NOTICEABLE = 0.005  # smaller losses of the score are left out: with two decimals they would be 0.00
Floats = NDArray[Any]  # float64, which numpy's own types lose
EdgeTypes = tuple[int, ...]  # of the edges of a path
Nodes = tuple[int, ...]  # on a path, from head to tail


class _Paths(NamedTuple):
    """Paths between a head and a tail; shorter paths are padded with -1."""

    edge_types: NDArray[np.int64]  # [paths, HOPS]
    nodes: NDArray[np.int64]  # [paths, HOPS + 1]: the head, the nodes in between, and in the last column the tail
    facts: NDArray[np.int64]  # [paths, HOPS]: the position of each edge's fact among the gradients


def explain_path(model: PathModel, state: PathState, head: int, tail: int, *, most: int = 10) -> Evidence:
    """Explain the score of a tail by rules, paths of each rule and shared tuples, at most `most` of each.

    The weight of a rule is what the score loses when the facts on its listed paths are removed from the graph; the
    weight of a shared tuple, when the tail's fact is removed. Evidence that the score does not depend on is left out.
    Gradients choose the rules that are worth measuring.
    """
    evidence = state.evidence
    block = Tails.of(evidence, np.array([tail]))
    walked = walks(evidence, np.array([head]), block)
    facts, gradients = _fact_gradients(evidence, tail, walked, _gradients(model, state, block, walked))
    paths = _paths(walked, head, tail, facts, gradients)
    rules = _rules(paths, gradients, most)
    shared = shared_tuples(evidence, tail)[:most]
    removals = [_path_facts(evidence, *rule) for rule in rules]
    removals += [_facts(evidence, np.array([(tail, each.edge_type, each.entity)])) for each in shared]
    score, weights = _weights(model, state, head, tail, removals)
    of_rules = [
        Rule(
            _named(evidence, edge_types), count_support(evidence, edge_types), len(evidence.pairs), weight, tuple(paths)
        )
        for (edge_types, paths), weight in zip(rules, weights[: len(rules)], strict=True)
        if weight
    ]
    of_tail = [
        replace(each, edge_type=_named(evidence, [each.edge_type])[0], weight=weight)
        for each, weight in zip(shared, weights[len(rules) :], strict=True)
        if weight
    ]
    return Evidence(score, strongest_first(of_rules), strongest_first(of_tail), _most_similar(evidence, head, block))


def _named(evidence: ReferenceEvidence, edge_types: Sequence[int]) -> EdgeTypes:
    """Edge types as in `Evidence`: first those of the dataset's relations, then their twins, then "same name"."""
    graph = evidence.graph
    inverse, relations = np.divmod(np.array(edge_types), graph.relation_count)
    twin, known = np.divmod(relations, graph.known_relations)
    numbers = np.where(twin < 2, known + (2 * twin + inverse) * graph.known_relations, 4 * graph.known_relations)
    return tuple(numbers.tolist())


def _gradients(model: PathModel, state: PathState, block: Tails, walked: Walks) -> list[NDArray[np.float32]]:
    """The gradient of the pair's score with respect to the edge mask, hop by hop."""
    edge_mask = [torch.ones(len(layer.edge_types), device=model.device, requires_grad=True) for layer in walked.layers]
    with torch.enable_grad():
        score = model.pair_scores(state, block, walked, edge_mask=edge_mask).mean()
        gradients = torch.autograd.grad(score, edge_mask, allow_unused=True)
    return [
        np.zeros(len(part), np.float32) if gradient is None else gradient.cpu().numpy()
        for part, gradient in zip(edge_mask, gradients, strict=True)
    ]


def _fact_gradients(
    evidence: ReferenceEvidence, tail: int, walked: Walks, gradients: list[NDArray[np.float32]]
) -> tuple[list[NDArray[np.int64]], Floats]:
    """The index of each edge's fact, hop by hop, and what the score would lose without each fact, to first order.

    A fact may be walked in several hops and in both directions.
    """
    graph = evidence.graph
    pairs, tails = [], []  # (head, relation), numbered, and tail
    ends = (*walked.nodes[1:], np.full(len(walked.reached), tail))
    for layer, before, after in zip(walked.layers, walked.nodes, ends, strict=True):
        edges = np.stack(
            [before[layer.sources.numpy()], layer.edge_types.numpy(), after[layer.targets.numpy()]], axis=1
        )
        heads, relations, of_hop = _facts(evidence, edges).T
        pairs.append(heads * graph.relation_count + relations)
        tails.append(of_hop)
    pair_count = graph.entity_count * graph.relation_count
    _, keys = Keying.of(np.concatenate(pairs), np.concatenate(tails), pair_count, graph.entity_count)
    facts, positions = np.unique(keys, return_inverse=True)
    sums = np.bincount(positions, np.concatenate(gradients), minlength=len(facts))
    return np.split(positions, np.cumsum([len(of_hop) for of_hop in pairs[:-1]])), sums


def _rules(paths: _Paths, gradients: Floats, most: int) -> list[tuple[EdgeTypes, list[Nodes]]]:
    """The rules that the score depends on most, by its gradient, as edge types, and the main paths of each."""
    rules, owners = np.unique(_keys(paths.edge_types), return_inverse=True)
    of_paths = np.append(gradients, 0)[paths.facts].sum(axis=1)
    order = np.lexsort([-np.abs(of_paths), owners])
    order = order[np.arange(len(order)) - row_offsets(owners, len(rules))[owners[order]] < most]
    # A fact that several paths have in common counts once.
    used = np.unique(owners[order, None] * (len(gradients) + 1) + paths.facts[order] + 1)
    of_rules, facts = np.divmod(used, len(gradients) + 1)
    losses = np.bincount(of_rules, np.insert(gradients, 0, 0)[facts], minlength=len(rules))
    found = []
    for rule in _strongest(losses, most):
        own = order[owners[order] == rule]
        length = int((paths.edge_types[own[0]] >= 0).sum())
        nodes = np.delete(paths.nodes[own], slice(length, HOPS), axis=1)
        found.append((tuple(paths.edge_types[own[0], :length].tolist()), [tuple(path) for path in nodes.tolist()]))
    return found


def _strongest(weights: Floats, most: int) -> NDArray[np.int64]:
    """The positions of the largest weights, a third of them negative if there are enough."""
    order = np.argsort(-np.abs(weights), kind="stable")
    above, below = order[weights[order] >= 0], order[weights[order] < 0]
    against = min(len(below), max(most // 3, most - len(above)))
    return np.concatenate([above[: most - against], below[:against]])


def _path_facts(evidence: ReferenceEvidence, edge_types: EdgeTypes, paths: list[Nodes]) -> IntArray:
    """The facts on some paths over the same edge types, [n, 3]."""
    edges = [edge for path in paths for edge in zip(path[:-1], edge_types, path[1:], strict=True)]
    return _facts(evidence, np.array(edges))


def _facts(evidence: ReferenceEvidence, edges: IntArray) -> IntArray:
    """Edges [n, 3], as source, edge type and target, turned into facts [n, 3]: head, relation and tail."""
    sources, edge_types, targets = edges.T
    backwards = edge_types >= evidence.graph.relation_count
    heads, tails = np.where(backwards, targets, sources), np.where(backwards, sources, targets)
    return np.stack([heads, edge_types % evidence.graph.relation_count, tails], axis=1)


def _weights(
    model: PathModel, state: PathState, head: int, tail: int, removals: list[IntArray]
) -> tuple[float, list[float]]:
    """The score of a pair, and what it loses without each of some sets of facts."""
    evidence = state.evidence
    scores, removed = [], [None, *removals]
    for start in range(0, len(removed), REMOVALS_AT_ONCE):
        facts_of = removed[start : start + REMOVALS_AT_ONCE]
        some = [evidence if facts is None else evidence.without(facts) for facts in facts_of]
        scores.append(_scores(model, state, head, tail, some))
    score, *others = torch.cat(scores).tolist()
    losses = (score - other for other in others)
    return score, [loss if abs(loss) >= NOTICEABLE else 0.0 for loss in losses]


@torch.no_grad()
def _scores(
    model: PathModel, state: PathState, head: int, tail: int, evidence: list[ReferenceEvidence]
) -> torch.Tensor:
    """The score of a pair under each of several pieces of evidence, computed as a batch of tasks."""
    blocks = [Tails.of(each, np.array([tail])) for each in evidence]
    walked = [walks(each, np.array([head]), block) for each, block in zip(evidence, blocks, strict=True)]
    edge_type_count = state.evidence.graph.edge_type_count
    return model.pair_scores(
        replace(state, weights=_edge_type_weights(model, state, evidence)),
        replace(blocks[0], inputs=TailInputs.joined([block.inputs for block in blocks], edge_type_count)),
        Walks.joined(walked, [1] * len(blocks), edge_type_count),
    )


def _edge_type_weights(model: PathModel, state: PathState, evidence: list[ReferenceEvidence]) -> list[torch.Tensor]:
    """The weights of the edge types, concatenated over all evidence."""
    parts = [
        state.weights
        if each.edge_features is state.evidence.edge_features
        else model.network.weigh(torch.from_numpy(each.edge_features).to(model.device))
        for each in evidence
    ]
    return [torch.cat(of_hop) for of_hop in zip(*parts, strict=True)]


def _paths(walked: Walks, head: int, tail: int, facts: list[NDArray[np.int64]], gradients: Floats) -> _Paths:
    """The simple paths among the walks of one pair, traced from the last hop to the first."""
    ends = np.arange(len(walked.reached))  # one element, or none
    total = np.zeros(len(ends))
    found = _Paths(*(np.full((len(ends), width), -1) for width in (HOPS, HOPS + 1, HOPS)))
    found.nodes[:, HOPS] = tail
    for hop in reversed(range(HOPS)):
        owners, edges, ends = _predecessors(walked.layers[hop], walked.stays[hop].numpy(), ends)
        moves = edges >= 0
        total = total[owners]
        total[moves] += gradients[facts[hop][edges[moves]]]
        best = np.argsort(-np.abs(total), kind="stable")[:PATHS_AT_ONCE]
        edges, ends, total, moves = edges[best], ends[best], total[best], moves[best]
        found = _Paths(*(part[owners[best]] for part in found))
        found.edge_types[moves, hop] = walked.layers[hop].edge_types.numpy()[edges[moves]]
        found.nodes[moves, hop] = walked.nodes[hop][ends[moves]]
        found.facts[moves, hop] = facts[hop][edges[moves]]
    return _simple(found, head, tail)


def _simple(paths: _Paths, head: int, tail: int) -> _Paths:
    """The distinct paths that visit no node twice; walks that differ only in where they wait are the same path."""
    order = np.argsort(paths.edge_types < 0, axis=1, kind="stable")  # hops first, padding last
    edge_types, facts = (np.take_along_axis(part, order, axis=1) for part in (paths.edge_types, paths.facts))
    nodes = np.append(np.take_along_axis(paths.nodes, order, axis=1), paths.nodes[:, HOPS:], axis=1)
    inner = nodes[:, 1:HOPS]
    apart = (inner[:, 0] != inner[:, 1]) | (inner[:, 1] < 0)
    simple = np.flatnonzero((edge_types[:, 0] >= 0) & ~np.isin(inner, [head, tail]).any(axis=1) & apart)
    keys = np.stack([_keys(inner[simple]), _keys(edge_types[simple])])
    order = np.lexsort(keys)
    distinct = simple[order[np.diff(keys[:, order], prepend=-1).any(axis=0)]]
    return _Paths(*(part[distinct] for part in (edge_types, nodes, facts)))


def _keys(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """A key for each row of ids or -1; two rows have the same key if and only if they are equal."""
    base = int(columns.max(initial=-1)) + 2
    return np.asarray((columns + 1) @ base ** np.arange(columns.shape[1]))


def _predecessors(
    layer: Layer, stays: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All steps that lead to some positions: the index of the position, the edge (-1 for staying), and the source."""
    targets = layer.targets.numpy()
    order = np.argsort(targets, kind="stable")
    positions, owners = expand_rows(row_offsets(targets, len(stays)), ends)
    edges = order[positions]
    staying = np.flatnonzero(stays[ends] >= 0)
    return (
        np.concatenate([owners, staying]),
        np.concatenate([edges, np.full(len(staying), -1)]),
        np.concatenate([layer.sources.numpy()[edges], stays[ends[staying]]]),
    )


def count_support(evidence: ReferenceEvidence, edge_types: tuple[int, ...]) -> int:
    """The number of references linked by a path over some edge types that passes neither their head nor their tail."""
    graph, support = evidence.graph, 0
    for head, tail in evidence.pairs:
        reached = np.array([head])
        for hop, edge_type in enumerate(edge_types):
            reached = np.unique(graph.targets[graph.leaving_over(reached, edge_type).ids])
            if hop < len(edge_types) - 1:
                reached = reached[(reached != head) & (reached != tail)]
        support += bool((reached == tail).any())
    return support


def shared_tuples(evidence: ReferenceEvidence, tail: int) -> list[SharedTuple]:
    """The neighborhood tuples that a tail shares with other reference tails, by idf, the rarest first."""
    ours = set(_tuples(evidence, tail)[0])
    weights: dict[tuple[int, int], list[float]] = defaultdict(list)
    for other in evidence.pairs[evidence.pairs[:, TAIL] != tail, TAIL]:
        tuples, idf = _tuples(evidence, int(other))
        for each, of_tuple in zip(tuples, idf, strict=True):
            if each in ours:
                weights[each].append(float(of_tuple / idf.sum()))
    shots = len(evidence.pairs)
    found = [
        SharedTuple(edge_type, entity, len(parts), shots, sum(parts) / shots)
        for (edge_type, entity), parts in weights.items()
    ]
    return sorted(found, key=lambda shared: (-shared.weight, shared.edge_type, shared.entity))


def _tuples(evidence: ReferenceEvidence, entity: int) -> tuple[list[tuple[int, int]], NDArray[np.float32]]:
    """The neighborhood tuples of an entity, and the idf of each."""
    graph = evidence.graph
    edges = graph.leaving(np.array([entity]), evidence.hidden).ids
    tuples = zip(graph.edge_types[edges].tolist(), graph.targets[edges].tolist(), strict=True)
    return list(tuples), graph.tuple_idf(edges)


def _most_similar(evidence: ReferenceEvidence, head: int, block: Tails) -> SimilarReference:
    """The reference that is most similar to the pair, by profiles and by shared tuples."""
    of_head = evidence.similarities(np.array([head]), HEAD).mean(axis=(0, 1))  # [shots]
    of_tail = block.similarities.mean(axis=(0, 1))
    best = int(np.argmax(of_head + of_tail))
    pair = evidence.pairs[best]
    return SimilarReference(int(pair[0]), int(pair[1]), float(of_head[best]), float(of_tail[best]))
