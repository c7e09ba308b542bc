"""Why a tail is suggested: paths like those of references, what it shares with their tails, and which is most alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hire.data.graph import KnowledgeGraph
from hire.systems.base import FewShotSystem
from hire.systems.evidence import Evidence, Path, Rule, SharedTuple, SimilarReference
from hire.util.arrays import IntArray

INVERSE_MARK = "⁻¹"
VARIABLES = {1: "ht", 2: "hxt", 3: "hxyt"}  # of the rules, by the number of their edges
MOST_NEIGHBORS = 10_000  # of an entity that are looked at
MOST_PATHS = 200_000  # between two hubs
MOST_WEIGHED = 100  # shared tuples whose rarity is looked up


@dataclass(frozen=True)
class Explanation:
    """The reasons for one answer, as a sentence, as plain data and as a picture."""

    graph: KnowledgeGraph
    relation: str
    head: int
    tail: int
    evidence: Evidence
    confidence: float | None

    def kind_name(self, kind: int) -> str:
        """The name of a kind of edge, marked if it is followed from tail to head."""
        count = len(self.graph.relations)
        name: str = self.graph.relations[kind % count]
        return name + INVERSE_MARK if kind >= count else name

    def rule_text(self, rule: Rule) -> str:
        """Like `coach(h, t) <- plays_for(h, x), led_by(x, t): 4 of 5 references`."""
        variables = VARIABLES[len(rule.kinds)]
        ends = zip(rule.kinds, pairwise(variables), strict=True)
        body = ", ".join(f"{self.kind_name(kind)}({a}, {b})" for kind, (a, b) in ends)
        return f"{self.relation}(h, t) <- {body}: {_of(rule)}"

    @property
    def sentence(self) -> str:
        """The main reasons, for a person to read."""
        label, evidence = self.graph.label, self.evidence
        reasons = []
        rule = next((rule for rule in evidence.rules if rule.support and rule.paths), None)
        if rule is not None:
            path = rule.paths[0].entities
            steps = "".join(
                f" —{self.kind_name(kind)}→ {label(entity)}" for kind, entity in zip(rule.kinds, path[1:], strict=True)
            )
            reasons.append(f"{label(path[0])}{steps} is a path like those of {_of(rule)}")
        shared = next(iter(evidence.shared), None)
        if shared is not None:
            reasons.append(
                f"{label(self.tail)} —{self.kind_name(shared.kind)}→ {label(shared.entity)} "
                f"is also said of the tails of {_of(shared)}"
            )
        similar = evidence.most_similar
        alike = f"{label(similar.head)} → {label(similar.tail)}"
        if similar.tail == self.tail:
            reasons.append(f"{label(self.tail)} is the tail of a reference itself")
        if not reasons:
            return f"The graph itself links the two like no reference; to the model they are most like {alike}."
        return f"{'; '.join(reasons)}; the most similar reference is {alike}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data, entities by their ids; `labels` has the labels of those that have one."""
        names, evidence = self.graph.entities, self.evidence
        similar = evidence.most_similar
        rules = [
            {
                "text": self.rule_text(rule),
                "support": rule.support,
                "references": rule.references,
                "weight": rule.weight,
                "paths": [[names[entity] for entity in path.entities] for path in rule.paths],
                "kinds": [self.kind_name(kind) for kind in rule.kinds],
            }
            for rule in evidence.rules
        ]
        shared = [
            {
                "relation": self.kind_name(tuple_.kind),
                "entity": names[tuple_.entity],
                "support": tuple_.support,
                "references": tuple_.references,
                "weight": tuple_.weight,
            }
            for tuple_ in evidence.shared
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
        entities |= {entity for rule in evidence.rules for path in rule.paths for entity in path.entities}
        entities |= {shared.entity for shared in evidence.shared}
        named = {graph.entities[entity]: graph.label(entity) for entity in sorted(entities)}
        return {name: label for name, label in named.items() if label != name}


def _of(reason: Rule | SharedTuple) -> str:
    return f"{reason.support} of {reason.references} reference{'s' if reason.references > 1 else ''}"


def find_evidence(
    model: FewShotSystem,
    graph: KnowledgeGraph,
    learned: Any,
    references: IntArray,
    pair: tuple[int, int],
    *,
    hidden: int | None = None,
    most: int = 10,
) -> Evidence:
    """The model's own evidence for a (head, tail) pair if it has any, otherwise what the graph tells.

    Edges of a hidden relation, the one that is asked about, are no evidence.
    """
    if "explain" in model.capabilities:
        return model.explain(learned, *pair, most=most)
    score = float(model.score(learned, np.array(pair[:1]), np.array(pair[1:]))[0, 0])
    return Evidence(
        score,
        tuple(_rules(graph, references, pair, hidden, most)),
        tuple(_shared(graph, references[:, 1], pair[1], hidden, most)),
        _most_similar(model, graph, references, pair),
    )


def _neighbors(graph: KnowledgeGraph, entity: int, hidden: int | None) -> IntArray:
    found = graph.neighbors_of(entity, MOST_NEIGHBORS)
    return found if hidden is None else found[found[:, 0] % len(graph.relations) != hidden]


def _rules(
    graph: KnowledgeGraph, references: IntArray, pair: tuple[int, int], hidden: int | None, most: int
) -> list[Rule]:
    """The kinds of paths of one or two edges that link a pair and at least one reference."""
    links = _links(graph, *pair, hidden)
    counts = Counter(kinds for head, tail in references.tolist() for kinds in _links(graph, head, tail, hidden))
    ordered = sorted(
        (kinds for kinds in links if counts[kinds]), key=lambda kinds: (-counts[kinds], len(links[kinds]), kinds)
    )
    return [
        Rule(
            kinds,
            counts[kinds],
            len(references),
            counts[kinds] / len(references),
            tuple(
                Path((pair[0], *between, pair[1]), counts[kinds] / len(references) / len(links[kinds]))
                for between in links[kinds][:most]
            ),
        )
        for kinds in ordered[:most]
    ]


def _links(
    graph: KnowledgeGraph, head: int, tail: int, hidden: int | None
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """What lies between a head and a tail, by the kinds of the edges that lead there."""
    out, back = _neighbors(graph, head, hidden), _neighbors(graph, tail, hidden)
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for kind in np.unique(out[out[:, 1] == tail, 0]).tolist():
        found[kind,].append(())
    out, back = (row[(row[:, 1] != head) & (row[:, 1] != tail)] for row in (out, back))
    back = back[np.argsort(back[:, 1], kind="stable")]
    starts, ends = (np.searchsorted(back[:, 1], out[:, 1], side=side) for side in ("left", "right"))
    owners = np.repeat(np.arange(len(out)), ends - starts)[:MOST_PATHS]
    firsts = np.cumsum(ends - starts) - (ends - starts)
    places = np.arange(len(owners)) - firsts[owners] + starts[owners]
    count = len(graph.relations)
    to_tail = (back[places, 0] + count) % (2 * count)
    steps = np.unique(np.stack([out[owners, 0], to_tail, out[owners, 1]], axis=1), axis=0)
    for first, second, between in steps.tolist():
        found[first, second].append((between,))
    return found


def _shared(
    graph: KnowledgeGraph, reference_tails: IntArray, tail: int, hidden: int | None, most: int
) -> list[SharedTuple]:
    """The neighbourhood tuples that a tail shares with other reference tails; rare ones weigh more."""
    ours = set(map(tuple, _neighbors(graph, tail, hidden).tolist()))
    counts = Counter(
        each
        for other in reference_tails[reference_tails != tail].tolist()
        for each in set(map(tuple, _neighbors(graph, other, hidden).tolist()))
    )
    everything, shots = len(graph.entities), len(reference_tails)
    found = []
    for (kind, entity), support in sorted((t for t in counts.items() if t[0] in ours), key=lambda t: (-t[1], t[0]))[
        :MOST_WEIGHED
    ]:
        inverse = (kind + len(graph.relations)) % (2 * len(graph.relations))
        having = int((graph.neighbors_of(entity, None)[:, 0] == inverse).sum())
        rarity = np.log((everything + 1) / (having + 1)) / np.log(everything + 1)
        found.append(SharedTuple(kind, entity, support, shots, float(support / shots * rarity)))
    return sorted(found, key=lambda shared: (-shared.weight, shared.kind, shared.entity))[:most]


def _most_similar(
    model: FewShotSystem, graph: KnowledgeGraph, references: IntArray, pair: tuple[int, int]
) -> SimilarReference:
    """The reference that is most like a pair by the model's embeddings or, if it has none, by their neighbours."""
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
