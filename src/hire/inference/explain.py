"""Evidence for and against a tail: paths that lead to it, facts shared with reference tails, a similar reference."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.systems.base import FewShotSystem
from hire.systems.evidence import Evidence, Rule, SharedTuple, SimilarReference
from hire.util.arrays import IntArray

BY_NAME, SAME_NAME = 2, 4  # sorts of edge types, see `Rule.edge_types`
INVERSE_MARK = "⁻¹"
VARIABLES = {1: "ht", 2: "hxt", 3: "hxyt"}  # of a rule, by the number of its edges
MAX_NEIGHBORS = 10_000  # of an entity that are considered
MAX_PATHS = 200_000  # between two hubs
MAX_WEIGHED = 100  # shared tuples whose idf is looked up


@dataclass(frozen=True)
class Explanation:
    """The evidence for and against one answer, as a sentence, as plain data and as a picture."""

    graph: KnowledgeGraph
    relation: str
    head: int
    tail: int
    evidence: Evidence
    confidence: float | None

    def edge_type_name(self, edge_type: int) -> str:
        """The name of an edge type, marked if it is followed from tail to head, or holds for the same name only."""
        sort, relation = divmod(edge_type, len(self.graph.relations))
        if sort == SAME_NAME:
            return "same name"
        name: str = self.graph.relations[relation]
        return f"{name}{INVERSE_MARK if sort % 2 else ''}{' by name' if sort >= BY_NAME else ''}"

    def rule_text(self, rule: Rule) -> str:
        """Like `coach(h, t) <- plays_for(h, x), led_by(x, t): 4 of 5 references`."""
        variables = VARIABLES[len(rule.edge_types)]
        ends = zip(rule.edge_types, pairwise(variables), strict=True)
        body = ", ".join(f"{self.edge_type_name(edge_type)}({a}, {b})" for edge_type, (a, b) in ends)
        return f"{self.relation}(h, t) <- {body}: {_of(rule)}"

    @property
    def sentence(self) -> str:
        """The main reasons for the answer and the main reason against it, in words."""
        label, similar = self.graph.label, self.evidence.most_similar
        reasons = [*self._reasons_for(), *self._reasons_against()]
        if similar.tail == self.tail:
            reasons.append(f"{label(self.tail)} is the tail of a reference itself")
        if similar.head_similarity or similar.tail_similarity:
            reasons.append(f"the most similar reference is {label(similar.head)} → {label(similar.tail)}")
        return f"{'; '.join(reasons)}."

    def _reasons_for(self) -> list[str]:
        """The strongest rule and the strongest shared tuple, or else a rule that no reference has."""
        rules = [rule for rule in self.evidence.rules if rule.weight > 0]
        supported = [f"{self._path(rule)} is a path like those of {_of(rule)}" for rule in rules if rule.support]
        shared = [
            f"{self._fact(each)} is also said of the tails of {_of(each)}"
            for each in self.evidence.shared
            if each.weight > 0
        ]
        others = [f"{self._path(rule)} is a path that no reference has" for rule in rules if not rule.support]
        return [*supported[:1], *shared[:1]] or others[:1] or ["Nothing in the graph speaks for it"]

    def _reasons_against(self) -> list[str]:
        """The strongest piece of evidence against the answer, if there is one."""
        pieces: list[Rule | SharedTuple] = [*self.evidence.rules, *self.evidence.shared]
        against = min((piece for piece in pieces if piece.weight < 0), key=lambda piece: piece.weight, default=None)
        if against is None:
            return []
        if isinstance(against, SharedTuple):
            return [f"speaks against: {self._fact(against)}, though it is said of the tails of {_of(against)}"]
        how = f"though such a path links {_of(against)}" if against.support else "a path that no reference has"
        return [f"speaks against: {self._path(against)}, {how}"]

    def _path(self, rule: Rule) -> str:
        """Like `ann —plays_for→ x —led_by→ kim`: the first path of a rule."""
        label, path = self.graph.label, rule.paths[0]
        steps = zip(rule.edge_types, path[1:], strict=True)
        return label(path[0]) + "".join(
            f" —{self.edge_type_name(edge_type)}→ {label(entity)}" for edge_type, entity in steps
        )

    def _fact(self, shared: SharedTuple) -> str:
        label = self.graph.label
        return f"{label(self.tail)} —{self.edge_type_name(shared.edge_type)}→ {label(shared.entity)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, entities by their ids; `labels` has the labels of those that have one."""
        names, evidence = self.graph.entities, self.evidence
        similar = evidence.most_similar
        rules = [
            {
                "text": self.rule_text(rule),
                "words": rule_words(rule),
                **_metrics(rule),
                "paths": [[names[entity] for entity in path] for path in rule.paths],
                "kinds": [self.edge_type_name(edge_type) for edge_type in rule.edge_types],
            }
            for rule in evidence.rules
        ]
        shared = [
            {
                "relation": self.edge_type_name(each.edge_type),
                "entity": names[each.entity],
                "words": shared_words(each),
                **_metrics(each),
            }
            for each in evidence.shared
        ]
        return {
            "relation": self.relation,
            "head": names[self.head],
            "tail": names[self.tail],
            "score": evidence.score,
            "confidence": self.confidence,
            "sentence": self.sentence,
            "rules": rules,
            "shared": shared,
            "similar": {
                "head": names[similar.head],
                "tail": names[similar.tail],
                "head_similarity": similar.head_similarity,
                "tail_similarity": similar.tail_similarity,
            },
            "labels": self._labels(),
        }

    def _labels(self) -> dict[str, str]:
        evidence, graph = self.evidence, self.graph
        entities = {self.head, self.tail, evidence.most_similar.head, evidence.most_similar.tail}
        entities |= {entity for rule in evidence.rules for path in rule.paths for entity in path}
        entities |= {shared.entity for shared in evidence.shared}
        named = {graph.entities[entity]: graph.label(entity) for entity in sorted(entities)}
        return {name: label for name, label in named.items() if label != name}


def _metrics(piece: Rule | SharedTuple) -> dict[str, Any]:
    return {
        "for": piece.weight > 0,
        "weight": piece.weight,
        "support": piece.support,
        "references": piece.references,
    }


def rule_words(rule: Rule) -> str:
    """Like `linked as 4 of 5 references are`."""
    linked = (
        f"linked as {_of(rule)} {'are' if rule.support > 1 else 'is'}" if rule.support else "linked as no reference is"
    )
    if rule.weight > 0:
        return linked
    return f"speaks against, though {linked}" if rule.support else f"speaks against: {linked}"


def shared_words(shared: SharedTuple) -> str:
    """Like `shared with the tails of 4 of 5 references`."""
    return f"{'' if shared.weight > 0 else 'speaks against, though '}shared with the tails of {_of(shared)}"


def _of(piece: Rule | SharedTuple) -> str:
    return f"{piece.support or 'none'} of {piece.references} reference{'s' if piece.references > 1 else ''}"


def find_evidence(
    model: FewShotSystem,
    graph: KnowledgeGraph,
    state: Any,
    references: IntArray,
    pair: tuple[int, int],
    *,
    hidden: int | None = None,
    most: int = 10,
) -> Evidence:
    """The model's own evidence for a (head, tail) pair if it can explain itself, otherwise evidence from the graph.

    Edges of the hidden relation, the one that is asked about, are no evidence. Evidence from the graph always speaks
    for the answer, since at least one reference has it too. Its weight is the share of references that have it (for a
    shared tuple, times its idf), not what the score would lose without it.
    """
    if "explain" in model.capabilities:
        return model.explain(state, *pair, most=most)
    score = float(model.score(state, np.array(pair[:1]), np.array(pair[1:]))[0, 0])
    return Evidence(
        score,
        tuple(_rules(graph, references, pair, hidden, most)),
        tuple(_shared(graph, references[:, 1], pair[1], hidden, most)),
        _most_similar(model, graph, references, pair),
    )


def _neighbors(graph: KnowledgeGraph, entity: int, hidden: int | None) -> IntArray:
    found = graph.neighbors_of(entity, MAX_NEIGHBORS)
    return found if hidden is None else found[found[:, 0] % len(graph.relations) != hidden]


def _rules(
    graph: KnowledgeGraph, references: IntArray, pair: tuple[int, int], hidden: int | None, most: int
) -> list[Rule]:
    """The rules of one or two hops that link a pair and at least one reference; weights are shares of references."""
    links = _links(graph, *pair, hidden)
    counts = Counter(
        edge_types for head, tail in references.tolist() for edge_types in _links(graph, head, tail, hidden)
    )
    ordered = sorted(
        (edge_types for edge_types in links if counts[edge_types]),
        key=lambda edge_types: (-counts[edge_types], len(links[edge_types]), edge_types),
    )
    return [
        Rule(
            edge_types,
            counts[edge_types],
            len(references),
            counts[edge_types] / len(references),
            tuple((pair[0], *between, pair[1]) for between in links[edge_types][:most]),
        )
        for edge_types in ordered[:most]
    ]


def _links(
    graph: KnowledgeGraph, head: int, tail: int, hidden: int | None
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """The nodes between a head and a tail on each path of one or two hops, by the edge types of the path."""
    out, back = _neighbors(graph, head, hidden), _neighbors(graph, tail, hidden)
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for edge_type in np.unique(out[out[:, 1] == tail, 0]).tolist():
        found[edge_type,].append(())
    out, back = (row[(row[:, 1] != head) & (row[:, 1] != tail)] for row in (out, back))
    back = back[np.argsort(back[:, 1], kind="stable")]
    starts, ends = (np.searchsorted(back[:, 1], out[:, 1], side=side) for side in ("left", "right"))
    owners = np.repeat(np.arange(len(out)), ends - starts)[:MAX_PATHS]
    firsts = np.cumsum(ends - starts) - (ends - starts)
    positions = np.arange(len(owners)) - firsts[owners] + starts[owners]
    count = len(graph.relations)
    to_tail = (back[positions, 0] + count) % (2 * count)
    steps = np.unique(np.stack([out[owners, 0], to_tail, out[owners, 1]], axis=1), axis=0)
    for first, second, between in steps.tolist():
        found[first, second].append((between,))
    return found


def _shared(
    graph: KnowledgeGraph, reference_tails: IntArray, tail: int, hidden: int | None, most: int
) -> list[SharedTuple]:
    """The neighborhood tuples that a tail shares with other reference tails; rare ones weigh more."""
    ours = set(map(tuple, _neighbors(graph, tail, hidden).tolist()))
    counts = Counter(
        each
        for other in reference_tails[reference_tails != tail].tolist()
        for each in set(map(tuple, _neighbors(graph, other, hidden).tolist()))
    )
    everything, shots = len(graph.entities), len(reference_tails)
    found = []
    for (edge_type, entity), support in sorted(
        (t for t in counts.items() if t[0] in ours), key=lambda t: (-t[1], t[0])
    )[:MAX_WEIGHED]:
        inverse = (edge_type + len(graph.relations)) % (2 * len(graph.relations))
        frequency = int((graph.neighbors_of(entity, None)[:, 0] == inverse).sum())
        idf = np.log((everything + 1) / (frequency + 1)) / np.log(everything + 1)
        if idf > 0:  # a tuple that every entity has says nothing
            found.append(SharedTuple(edge_type, entity, support, shots, float(support / shots * idf)))
    return sorted(found, key=lambda shared: (-shared.weight, shared.edge_type, shared.entity))[:most]


def _most_similar(
    model: FewShotSystem, graph: KnowledgeGraph, references: IntArray, pair: tuple[int, int]
) -> SimilarReference:
    """The reference most similar to a pair, by the model's embeddings or, if it has none, by shared neighbors."""
    similarities = np.stack(
        [_similarities(model, graph, references[:, side], pair[side]) for side in (0, 1)], axis=1
    )  # [shots, 2]
    best = int(similarities.sum(axis=1).argmax())
    head, tail = references[best].tolist()
    return SimilarReference(head, tail, *similarities[best].tolist())


def _similarities(model: FewShotSystem, graph: KnowledgeGraph, others: IntArray, entity: int) -> Any:
    if "vectors" in model.capabilities:
        vectors = model.vectors(np.append(others, entity))
        unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-9)
        return (unit[:-1] @ unit[-1]).clamp(0, 1).cpu().numpy()
    ours = set(map(tuple, _neighbors(graph, entity, None).tolist()))
    theirs = [set(map(tuple, _neighbors(graph, other, None).tolist())) for other in others.tolist()]
    return np.array([len(ours & other) / max(1, len(ours | other)) for other in theirs])
