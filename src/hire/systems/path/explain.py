"""Why the path model suggests a tail: rules and their paths, what it shares with reference tails, the most alike."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray

from hire.systems.evidence import Evidence, Path, Rule, SharedTuple, SimilarReference
from hire.systems.path.features import HEAD, TAIL, ReferenceEvidence
from hire.systems.path.model import PathModel, PathRelation
from hire.systems.path.walks import HOPS, Layer, Tails, Walks, walks
from hire.util.arrays import expand_rows, row_offsets

PATHS_AT_ONCE = 20_000  # the weightiest of the walks between two hubs


def explain_path(model: PathModel, relation: PathRelation, head: int, tail: int, *, most: int = 10) -> Evidence:
    """Why a tail has the score it has: at most so many rules, paths of each, and shared tuples."""
    evidence = relation.evidence
    block = Tails.of(evidence, np.array([tail]))
    walked = walks(evidence, np.array([head]), block)
    score, weights = _edge_weights(model, relation, block, walked)
    return Evidence(
        score,
        tuple(_rules(evidence, head, tail, walked, weights, most)),
        tuple(shared_tuples(evidence, tail)[:most]),
        _most_similar(evidence, head, block),
    )


def _edge_weights(
    model: PathModel, relation: PathRelation, block: Tails, walked: Walks
) -> tuple[float, list[NDArray[np.float32]]]:
    """The score of the one pair, and its derivative by each edge's share in it, hop by hop."""
    counted = [torch.ones(len(layer.kinds), requires_grad=True) for layer in walked.layers]
    with torch.enable_grad():
        score = model.pair_scores(relation, block, walked, counted=counted).mean()
        gradients = torch.autograd.grad(score, counted, allow_unused=True)
    found = [
        np.zeros(len(part), np.float32) if gradient is None else gradient.numpy()
        for part, gradient in zip(counted, gradients, strict=True)
    ]
    return float(score.detach()), found


def _rules(
    evidence: ReferenceEvidence, head: int, tail: int, walked: Walks, weights: list[NDArray[np.float32]], most: int
) -> list[Rule]:
    by_kinds: dict[tuple[int, ...], dict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
    for kinds, entities, weight in _paths(walked, tail, weights):
        between = entities[1:-1]
        if len(set(between) | {head, tail}) == len(between) + len({head, tail}) and kinds:
            by_kinds[kinds][entities] += weight  # the same path may wait at either end
    rules = []
    for kinds, paths in by_kinds.items():
        ordered = sorted(paths.items(), key=lambda item: (-item[1], item[0]))
        found = tuple(Path(entities, weight) for entities, weight in ordered[:most])
        rules.append((kinds, sum(paths.values()), found))
    rules.sort(key=lambda rule: (-abs(rule[1]), rule[0]))
    return [
        Rule(kinds, count_support(evidence, kinds), len(evidence.pairs), weight, found)
        for kinds, weight, found in rules[:most]
    ]


def _paths(
    walked: Walks, tail: int, weights: list[NDArray[np.float32]]
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """All walks of one pair, from the last hop to the first: kinds, entities, and the weight of their edges."""
    ends = np.arange(len(walked.reached))  # one place, or none
    total = np.zeros(len(ends), np.float32)
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for hop in reversed(range(HOPS)):
        layer, stays = walked.layers[hop], walked.stays[hop].numpy()
        owners, edges, places = _ways_back(layer, stays, ends)
        total = total[owners] + np.where(edges >= 0, np.append(weights[hop], 0)[edges], 0)
        best = np.argsort(-np.abs(total), kind="stable")[:PATHS_AT_ONCE]
        owners, edges, ends, total = owners[best], edges[best], places[best], total[best]
        steps = [(past_edges[owners], past_places[owners]) for past_edges, past_places in steps]
        steps.append((edges, ends))
    kinds = [np.append(walked.layers[hop].kinds.numpy(), 0) for hop in range(HOPS)]
    found = []
    for i, weight in enumerate(total):
        walked_kinds: list[int] = []
        entities: list[int] = []
        for hop in range(HOPS):
            edges, places = steps[HOPS - 1 - hop]
            if edges[i] >= 0:
                walked_kinds.append(int(kinds[hop][edges[i]]))
                entities.append(int(walked.numbers[hop][places[i]]))
        found.append((tuple(walked_kinds), (*entities, tail), float(weight)))
    return found


def _ways_back(
    layer: Layer, stays: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All ways to have come to some places: of which, over which edge (-1 for staying), and from where."""
    targets = layer.targets.numpy()
    order = np.argsort(targets, kind="stable")
    numbers, owners = expand_rows(row_offsets(targets, len(stays)), ends)
    edges = order[numbers]
    staying = np.flatnonzero(stays[ends] >= 0)
    return (
        np.concatenate([owners, staying]),
        np.concatenate([edges, np.full(len(staying), -1)]),
        np.concatenate([layer.sources.numpy()[edges], stays[ends[staying]]]),
    )


def count_support(evidence: ReferenceEvidence, kinds: tuple[int, ...]) -> int:
    """How many references a path over some kinds of edges links, not by way of head or tail themselves."""
    graph, support = evidence.graph, 0
    for head, tail in evidence.pairs:
        reached = np.array([head])
        for hop, kind in enumerate(kinds):
            reached = np.unique(graph.targets[graph.leaving_over(reached, kind).numbers])
            if hop < len(kinds) - 1:
                reached = reached[(reached != head) & (reached != tail)]
        support += bool((reached == tail).any())
    return support


def shared_tuples(evidence: ReferenceEvidence, tail: int) -> list[SharedTuple]:
    """The neighbourhood tuples that a tail shares with reference tails, the weightiest first."""
    ours = set(_tuples(evidence, tail)[0])
    weights: dict[tuple[int, int], list[float]] = defaultdict(list)
    for other in evidence.pairs[:, TAIL]:
        tuples, rarity = _tuples(evidence, int(other))
        for each, rare in zip(tuples, rarity, strict=True):
            if each in ours:
                weights[each].append(float(rare / rarity.sum()))
    shots = len(evidence.pairs)
    found = [
        SharedTuple(kind, entity, len(parts), shots, sum(parts) / shots) for (kind, entity), parts in weights.items()
    ]
    return sorted(found, key=lambda shared: (-shared.weight, shared.kind, shared.entity))


def _tuples(evidence: ReferenceEvidence, entity: int) -> tuple[list[tuple[int, int]], NDArray[np.float32]]:
    graph = evidence.graph
    edges = graph.leaving(np.array([entity]), evidence.hidden).numbers
    return list(zip(graph.kinds[edges].tolist(), graph.targets[edges].tolist(), strict=True)), graph.tuple_rarity(edges)


def _most_similar(evidence: ReferenceEvidence, head: int, block: Tails) -> SimilarReference:
    """The reference that is most like the pair, by profiles and shared tuples alike."""
    of_head = evidence.similarities(np.array([head]), HEAD).mean(axis=(0, 1))  # [shots]
    of_tail = block.similarities.mean(axis=(0, 1))
    best = int(np.argmax(of_head + of_tail))
    pair = evidence.pairs[best]
    return SimilarReference(int(pair[0]), int(pair[1]), float(of_head[best]), float(of_tail[best]))
